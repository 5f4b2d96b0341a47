"""`pm`, which Android also calls `cmd package`: the installed packages."""

from collections.abc import Callable
from dataclasses import dataclass

from vlm_agent.simulator.adb_daemon.handset import USUAL_KEYBOARD, Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output
from vlm_agent.simulator.adb_daemon.shell.tools.activities import HOME, LAUNCHER, installed_app, launcher_activity
from vlm_agent.simulator.app import package_of
from vlm_agent.simulator.apps.launcher import LAUNCHER as HOME_SCREEN
from vlm_agent.simulator.words import APPS


@dataclass(frozen=True)
class Package:
    """`is_system`: it came with the phone."""

    name: str
    is_system: bool

    @property
    def path(self) -> str:
        folder = "/system/app" if self.is_system else "/data/app"
        return f"{folder}/{self.name}/base.apk"


def packages(handset: Handset) -> list[Package]:
    """The apps and keyboards of the phone."""
    apps = [Package(package_of(name), name in APPS) for name in handset.phone.installed]
    return apps + [Package(name.partition("/")[0], name == USUAL_KEYBOARD) for name in handset.keyboards]


def package_named(handset: Handset, name: str) -> Package | None:
    return next((package for package in packages(handset) if package.name == name), None)


def pm(handset: Handset, call: Call) -> Result:
    """`pm list packages …`, `pm path PACKAGE`, `cmd package query-activities|resolve-activity …`."""
    run = _COMMANDS.get(call.words[0]) if call.words else None
    if run is None:
        raise ToolError(f"Error: pm {' '.join(call.words[:1])} is not offered by the simulated phone")
    return run(handset, call.words[1:])


def _list(handset: Handset, words: list[str]) -> Result:
    """`list packages [-3|-s] [-f] [-e|-d] [--user N] [FILTER]`."""
    if words[:1] != ["packages"]:
        raise ToolError(f"Error: pm list {' '.join(words[:1])} is not offered by the simulated phone")
    found, with_path, name = packages(handset), False, ""
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        if word == "--user" and rest:
            rest.pop(0)
        elif word in ("-3", "-s"):
            found = [one for one in found if one.is_system == (word == "-s")]
        elif word == "-d":
            found = []  # nothing is disabled
        elif word == "-f":
            with_path = True
        elif word.startswith("-") and word != "-e":
            raise ToolError(f"Error: Unknown option: {word}", 255)
        elif word != "-e":
            name = word
    lines = (f"package:{one.path + '=' if with_path else ''}{one.name}\n" for one in found if name in one.name)
    return Result("".join(lines).encode())


def _path(handset: Handset, words: list[str]) -> Result:
    package = package_named(handset, words[-1]) if words else None
    return Result(status=1) if package is None else output(f"package:{package.path}")


def _query_activities(handset: Handset, words: list[str]) -> Result:
    """`query-activities --brief …` of the launcher's activities."""
    if LAUNCHER not in words or "--brief" not in words:
        raise ToolError("Error: the simulated phone offers query-activities --brief of launcher activities")
    components = [launcher_activity(name) for name in handset.phone.installed]
    lines = (f"{_PRIORITY}\n  {one}" for one in components)
    return output("\n".join((f"{len(components)} activities found:", *lines)))


_PRIORITY = "  priority=0 preferredOrder=0 match=0x108000 isDefault=false"


def _resolve_activity(handset: Handset, words: list[str]) -> Result:
    """`resolve-activity --brief [-a ACTION] [-c CATEGORY] PACKAGE`: the launcher's activity of a package; with the
    category HOME, and without a package, that of the launcher."""
    if "--brief" not in words:
        raise ToolError("Error: the simulated phone offers resolve-activity --brief")
    if HOME in words:
        return output(f"{_PRIORITY.strip()}\n{HOME_SCREEN}/.Home")
    app = installed_app(handset, words[-1])
    if app is None:
        return Result(b"No activity found\n", status=1)
    return output(f"{_PRIORITY.strip()}\n{launcher_activity(app)}")


_COMMANDS: dict[str, Callable[[Handset, list[str]], Result]] = {
    "list": _list,
    "path": _path,
    "query-activities": _query_activities,
    "resolve-activity": _resolve_activity,
}
