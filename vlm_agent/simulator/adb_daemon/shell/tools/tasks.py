"""Tasks, Android's word for the running apps: `am stack list|remove` and `dumpsys activity recents`."""

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Result, ToolError, output
from vlm_agent.simulator.app import package_of

RECORD = "1a2b3c"
"""The identity of every record in the output, which clients skip."""

_LAUNCHER = "Launcher"


def task_of(handset: Handset, app: str) -> int:
    """The number of an app's task, the same as long as the phone is served."""
    return 1 if app == _LAUNCHER else 2 + list(handset.phone.catalogue).index(app)


def recents(handset: Handset) -> str:
    """The recent apps, newest first."""
    lines = ["ACTIVITY MANAGER RECENT TASKS (dumpsys activity recents)"]
    tasks = [(name, task_of(handset, name)) for name in handset.phone.recents]
    for index, (name, number) in enumerate(tasks):
        lines.append(f"  * Recent #{index}: Task{{{RECORD} #{number} type=standard A=10071:{package_of(name)} U=0}}")
    lines.append("  Visible recent tasks (most recent first):")
    for index, (_, number) in enumerate(tasks):
        lines += [f"  * RecentTaskInfo #{index}:", f"    id={number} userId=0 hasTask=true"]
    return "\n".join(lines)


def stack(handset: Handset, words: list[str]) -> Result:
    """`am stack list` and `am stack remove TASK`, which ends an app and removes it from the recent apps."""
    match words:
        case ["list"]:
            front = handset.phone.front
            return output("\n".join(_entry(handset, app) for app in dict.fromkeys((front, *handset.phone.recents))))
        case ["remove", number]:
            app = next((name for name in handset.phone.recents if str(task_of(handset, name)) == number), None)
            if app is None:
                raise ToolError(f"Error: no recent app of the simulated phone has the task {number}")
            handset.phone.stop(app)
            handset.phone.recents.remove(app)
            return Result()
    raise ToolError("Error: the simulated phone offers am stack list and am stack remove TASK")


def _entry(handset: Handset, app: str) -> str:
    height, width = handset.phone.size
    package, _, activity = handset.phone.app(app).activity().partition("/")
    component, number = f"{package}/{package}{activity}", task_of(handset, app)
    bounds = f"bounds=[0,0][{width},{height}]"
    is_visible = str(app == handset.phone.front).lower()
    top = f"visible={is_visible} topActivity=ComponentInfo{{{component}}}"
    return f"RootTask id={number} {bounds} displayId=0 userId=0\n  taskId={number}: {component} {bounds} userId=0 {top}"
