"""`dumpsys`: the lines that describe the screen, the apps and the keyboard."""

from collections.abc import Callable

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, failure, output
from vlm_agent.simulator.adb_daemon.shell.tools.packages import package_named
from vlm_agent.simulator.adb_daemon.shell.tools.settings import DENSITY, DISPLAY, PROPERTIES
from vlm_agent.simulator.adb_daemon.shell.tools.tasks import RECORD, recents, task_of
from vlm_agent.simulator.drawing.widgets import Field

_PID = 4321


def dumpsys(handset: Handset, call: Call) -> Result:
    """`dumpsys SERVICE [SECTION]`; `dumpsys -l` lists the services. As on Android, an unknown service has status 0."""
    match call.words:
        case ["-l"]:
            return output("\n".join(("Currently running services:", *(f"  {name}" for name in _SERVICES))))
        case [name, *words] if name in _SERVICES:
            return output(_SERVICES[name](handset, words))
    return failure(f"Can't find service: {' '.join(call.words[:1])}", 0)


def _activity(handset: Handset, words: list[str]) -> str:
    sections = {"activities": _activities, "a": _activities, "recents": recents, "r": recents, "top": _top}
    if not words:
        return "\n".join(section(handset) for section in (recents, _activities))
    if words[0] not in sections:
        raise ToolError(f"Bad activity command, or no activities match: {words[0]}")
    return sections[words[0]](handset)


def _activities(handset: Handset) -> str:
    record = _record(handset)
    return (
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)\n"
        f"Display #0 (activities from top to bottom):\n  topResumedActivity={record}\n"
        f"    mResumedActivity: {record}\n  ResumedActivity: {record}\n  mFocusedApp={record}"
    )


def _top(handset: Handset) -> str:
    package = handset.phone.activity.partition("/")[0]
    number = task_of(handset, handset.phone.front)
    return f"TASK {package} id={number} userId=0\n  ACTIVITY {handset.phone.activity} {RECORD} pid={_PID}"


def _record(handset: Handset) -> str:
    return f"ActivityRecord{{{RECORD} u0 {handset.phone.activity} t{task_of(handset, handset.phone.front)}}}"


def _battery(handset: Handset, words: list[str]) -> str:
    return (
        "Current Battery Service state:\n  AC powered: false\n  USB powered: true\n  status: 2\n  health: 2\n"
        "  present: true\n  level: 100\n  scale: 100\n  voltage: 4300\n  temperature: 250\n  technology: Li-ion"
    )


def _display(handset: Handset, words: list[str]) -> str:
    height, width = handset.phone.size
    return (
        "  mViewports=[DisplayViewport{type=INTERNAL, valid=true, displayId=0, orientation=0, "
        f"deviceWidth={width}, deviceHeight={height}}}]"
    )


def _input(handset: Handset, words: list[str]) -> str:
    height, width = handset.phone.size
    return (
        "  Viewport INTERNAL: displayId=0, uniqueId=local:0, port=0, orientation=0, "
        f"logicalFrame=[0, 0, {width}, {height}], physicalFrame=[0, 0, {width}, {height}]\n  SurfaceOrientation: 0"
    )


def _input_method(handset: Handset, words: list[str]) -> str:
    hint = _hint(handset)
    is_shown = str(hint is not None).lower()
    lines = [f"  mCurMethodId={handset.keyboard}", f"  mShowRequested={is_shown} mInputShown={is_shown}"]
    if hint is not None:
        lines += ["  mCurrentTextBoxAttribute:", f"    hintText={hint or 'null'} label=null"]
    return "\n".join(lines)


def _hint(handset: Handset) -> str | None:
    """The hint of the text field with the focus, None without one. It is empty if the field has no hint."""
    phone = handset.phone
    if phone.focus is None:
        return None
    page = phone.app(phone.front).page()
    fields = (one for one in (*page.top, *page.body, *page.foot, *(page.dialog or ())) if isinstance(one, Field))
    return next((field.hint for field in fields if field.focused), "")


def _package(handset: Handset, words: list[str]) -> str:
    package = package_named(handset, words[0]) if words else None
    if package is None:
        raise ToolError(f"Unable to find package: {' '.join(words)}")
    return (
        f"Packages:\n  Package [{package.name}] ({RECORD}):\n    codePath={package.path.rpartition('/')[0]}\n"
        f"    versionCode=1 minSdk=21 targetSdk={PROPERTIES['ro.build.version.sdk']}\n    versionName=1.0"
    )


def _power(handset: Handset, words: list[str]) -> str:
    state = "Awake" if handset.is_awake else "Asleep"
    return f"  mWakefulness={state}\n  mHoldingDisplaySuspendBlocker={str(handset.is_awake).lower()}"


def _window(handset: Handset, words: list[str]) -> str:
    """`dumpsys window [policy|windows|displays]`; all three without a section."""
    names = {"d": "displays", "p": "policy", "w": "windows"}
    section = names.get(words[0], words[0]) if words else None
    sections = {"policy": _policy, "displays": _displays, "windows": _windows}
    if section is not None and section not in sections:
        raise ToolError(f"Bad window command, or no windows match: {section}")
    return "\n".join(one(handset) for name, one in sections.items() if section in (None, name))


def _policy(handset: Handset) -> str:
    return f"    KeyguardStateMonitor\n      mIsShowing={str(handset.is_locked).lower()}"


def _displays(handset: Handset) -> str:
    (height, width), (usual_height, usual_width) = handset.phone.size, handset.physical_size
    sizes = f"init={usual_width}x{usual_height} {DENSITY}dpi cur={width}x{height} app={width}x{height}"
    return f"  Display: mDisplayId=0\n    {sizes}\n    mCurrentRotation=ROTATION_0"


def _windows(handset: Handset) -> str:
    front = "NotificationShade" if handset.is_locked else handset.phone.activity
    return f"  mCurrentFocus=Window{{{RECORD} u0 {front}}}\n  mFocusedApp={_record(handset)}"


def _surface_flinger(handset: Handset, words: list[str]) -> str:
    """`dumpsys SurfaceFlinger --display-id`."""
    if words != ["--display-id"]:
        raise ToolError("Error: the simulated phone offers dumpsys SurfaceFlinger --display-id")
    return f'Display {DISPLAY} (HWC display 0): port=0 pnpId=SIM displayName="simulated"'


_SERVICES: dict[str, Callable[[Handset, list[str]], str]] = {
    "SurfaceFlinger": _surface_flinger,
    "activity": _activity,
    "battery": _battery,
    "display": _display,
    "input": _input,
    "input_method": _input_method,
    "package": _package,
    "power": _power,
    "window": _window,
}
