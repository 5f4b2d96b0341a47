"""`am` and `monkey`: starting and stopping apps.

No command sets up a task: an app starts only as the launcher starts it, a page only as the browser's address field
opens it.
"""

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output
from vlm_agent.simulator.adb_daemon.shell.tools.broadcasts import broadcast
from vlm_agent.simulator.adb_daemon.shell.tools.intents import Intent, read_intent
from vlm_agent.simulator.adb_daemon.shell.tools.tasks import stack
from vlm_agent.simulator.app import package_of
from vlm_agent.simulator.apps import APP_CLASSES
from vlm_agent.simulator.apps.browser import Browser

LAUNCHER, HOME = "android.intent.category.LAUNCHER", "android.intent.category.HOME"

_MAIN, _VIEW = "android.intent.action.MAIN", "android.intent.action.VIEW"
_SETTINGS = "android.settings.SETTINGS"

_NO_ADDRESS = ("http://", "https://")
"""What clients open to get the browser as it is."""

_BROWSER = next(name for name, kind in APP_CLASSES.items() if kind is Browser)


_OF_RANDOM_EVENTS = ("--pct-syskeys", "--throttle", "-s")
"""Options of `monkey` with a value that say how random events are made."""


def launcher_activity(app: str) -> str:
    """The `package/activity` with which the launcher starts an app."""
    return f"{package_of(app)}/.Home"


def installed_app(handset: Handset, package: str) -> str | None:
    """The app with this package, None if it is not installed."""
    return next((name for name in handset.phone.installed if package_of(name) == package), None)


def am(handset: Handset, call: Call) -> Result:
    """`am start|start-activity|force-stop|broadcast|stack|get-current-user …`."""
    run = _COMMANDS.get(call.words[0]) if call.words else None
    if run is None:
        raise ToolError(f"Error: am {' '.join(call.words[:1])} is not offered by the simulated phone")
    return run(handset, call.words[1:])


def monkey(handset: Handset, call: Call) -> Result:
    """`monkey -p PACKAGE [-c CATEGORY] … 1`: opens an app, which is the first event. Random events are not offered."""
    package, rest = "", list(call.words)
    for option in _OF_RANDOM_EVENTS:
        if option in rest:
            del rest[rest.index(option) : rest.index(option) + 2]
    match [word for word in rest if word not in ("-v", "-c", LAUNCHER)]:
        case ["-p", package, "1"]:
            pass
        case _:
            raise ToolError(f"Error: the simulated phone offers monkey -p PACKAGE [-c {LAUNCHER}] 1")
    app = installed_app(handset, package)
    if app is None:
        raise ToolError("** No activities found to run, monkey aborted.", 252)
    _open(handset, app)
    return output("Events injected: 1")


def _start(handset: Handset, words: list[str]) -> Result:
    intent = read_intent(words)
    start = _resolved(handset, intent)
    if "-S" in intent.flags:
        _stop(handset, intent.package or intent.component.partition("/")[0])
    start()
    lines = [f"Starting: {intent}"]
    if "-W" in intent.flags:
        lines += ["Status: ok", "LaunchState: COLD", f"Activity: {handset.phone.activity}"]
        lines += ["TotalTime: 0", "WaitTime: 0", "Complete"]
    return output("\n".join(lines))


def _resolved(handset: Handset, intent: Intent) -> Callable[[], None]:
    """What starts the intent. Raises ToolError if nothing on the phone does."""
    app = None
    if intent.component:
        package, _, activity = intent.component.partition("/")
        component = f"{package}/{activity.removeprefix(package)}"
        app = next((name for name in handset.phone.installed if launcher_activity(name) == component), None)
        if app is None:
            raise ToolError(
                f"Starting: {intent}\nError type 3\nError: Activity class {{{intent.component}}} does not exist."
            )
    elif intent.action == _MAIN and intent.categories == [HOME]:
        return lambda: _perform(handset, Action.press("home"))
    elif intent.action == _SETTINGS:
        app = "Settings"
    elif intent.package and intent.action in ("", _MAIN) and intent.categories in ([], [LAUNCHER]):
        app = installed_app(handset, intent.package)
    if intent.action == _VIEW and app in (None, _BROWSER) and intent.package in ("", package_of(_BROWSER)):
        if address := _address(intent.data):
            return lambda: _browse(handset, address)
        if intent.data in _NO_ADDRESS:
            app = _BROWSER
    if app is None:
        raise ToolError(f"Starting: {intent}\nError: Activity not started, unable to resolve {intent}")
    return lambda: _open(handset, app)


def _open(handset: Handset, app: str) -> None:
    _perform(handset, Action.open_app(app))


def _perform(handset: Handset, action: Action) -> None:
    if not handset.is_usable:
        raise ToolError("Error: the screen of the simulated phone is off or locked")
    handset.perform(action)


def _address(url: str) -> str:
    """What the browser's address field gets for a URL: the query of a search engine, else the name of the site. Empty
    for a URL that a browser does not open."""
    try:
        parts = urlsplit(url)
        host, query = parts.hostname or "", parse_qs(parts.query).get("q", [""])[0]
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return query or host.removeprefix("www.").removesuffix(".com")


def _browse(handset: Handset, address: str) -> None:
    """Opens an address as the browser's address field does: the site with this name, else the results of a search."""
    _open(handset, _BROWSER)
    browser = handset.phone.the(Browser)

    def enter() -> None:
        browser.new_search()
        browser.search(address)

    handset.press_key(enter)


def _force_stop(handset: Handset, words: list[str]) -> Result:
    """`force-stop [--user N] PACKAGE`. As on Android, an app that does not run is no error."""
    packages = words[2:] if words[:1] == ["--user"] else words
    if len(packages) != 1:
        raise ToolError("Error: force-stop needs one package", 255)
    _stop(handset, packages[0])
    return Result()


def _stop(handset: Handset, package: str) -> None:
    app = installed_app(handset, package)
    if app is not None:
        handset.phone.stop(app)  # also while the phone is off or locked


_COMMANDS: dict[str, Callable[[Handset, list[str]], Result]] = {
    "broadcast": lambda handset, words: broadcast(handset, read_intent(words)),
    "force-stop": _force_stop,
    "get-current-user": lambda handset, words: output("0"),
    "stack": stack,
    "start": _start,
    "start-activity": _start,
}
