"""The apps of a phone: which one is in the foreground, and which one a name opens.

The name comes from a model and is untrusted: it only selects a component from the phone's list of launcher activities.
Android's shell does not print the labels of apps, so names are compared with packages, and with a table of known
packages that do not contain the app's name.

Apps choose the titles of their windows, which `dumpsys window` prints in many places: `mCurrentFocus` and the list of
windows are no evidence of an app. Android itself writes the component in `mFocusedApp`.
"""

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from pathlib import Path

import yaml

from vlm_agent.devices.adb.link import Success, Words
from vlm_agent.devices.errors import RefusedError, UnknownAppError

_LAUNCHER = ("-a", "android.intent.action.MAIN", "-c", "android.intent.category.LAUNCHER")

LIST_COMMAND: Words = ("cmd", "package", "query-activities", "--brief", *_LAUNCHER)

PACKAGES_COMMAND: Words = ("pm", "list", "packages")

HOME_COMMAND: Words = (
    *("cmd", "package", "resolve-activity", "--brief"),
    *("-a", "android.intent.action.MAIN", "-c", "android.intent.category.HOME"),
)

_FOCUSED_APP = re.compile(
    r"^ *mFocusedApp=[^\n]*?ActivityRecord\{[0-9a-f]+ u\d+ (?P<activity>[\w.]+/[\w.$]+)[ }]", re.MULTILINE
)
_NOTIFICATIONS = re.compile(
    r"^ *mCurrentFocus=Window\{[0-9a-f]+ u\d+ (NotificationShade|StatusBar)\}\r?$", re.MULTILINE
)

_CHOOSER = "android"
"""The package of the activity that asks which launcher to use."""

_PACKAGE = re.compile(r"^package:([A-Za-z][\w.]*)[ \t\r]*$", re.MULTILINE | re.ASCII)

_COMPONENT = re.compile(r"^[ \t]*([A-Za-z][\w.]*/[\w.$]+)[ \t\r]*$", re.MULTILINE | re.ASCII)

_PACKAGES: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("packages.yaml").read_text(encoding="utf-8"))
"""Normalised name (`_plain`) → packages, the preferred one first."""

STARTED = Success(
    "Starting: ",
    re.compile(
        r"Starting: |Warning: Activity not started, ("
        r"its current task has been brought to the front|"
        r"intent has been delivered to currently running top-most instance)"
    ),
)
"""What `am start` prints for an app that is in front afterwards, also one that was running."""


def start_command(component: str) -> Words:
    """`component`: `package/activity`."""
    return ("am", "start", *_LAUNCHER, "-n", component)


def read_components(listing: str) -> tuple[str, ...]:
    """The `package/activity` lines that `LIST_COMMAND` prints, without duplicates."""
    return tuple(dict.fromkeys(_COMPONENT.findall(listing)))


def read_packages(listing: str) -> tuple[str, ...]:
    """The packages that `PACKAGES_COMMAND` prints."""
    return tuple(_PACKAGE.findall(listing))


_NEAREST = 5
_LONGEST_NAME = 100
_SHORTEST_END = 5
"""Letters. Ends of fewer name other apps: "Pay" and com.samsung.android.spay."""


def find_component(name: str, components: Iterable[str]) -> str:
    """The launcher activity of the app with this name (or package).

    `components`: `package/activity` each. The first rule with a match decides: the name is a package; it is a key of
    the known packages; it equals the last segment of a package; it equals any segment; a package ends with it ("Clock"
    and com.google.android.deskclock). Raises UnknownAppError if no package matches, or if several match the same rule;
    RefusedError if there are no components, because every phone has some.
    """
    packages = {component: component.partition("/")[0] for component in components}
    if not packages:
        raise RefusedError(
            f"the phone lists no app that can be opened; check the output of adb shell {' '.join(LIST_COMMAND)}"
        )
    plain = _plain(name.removeprefix("Google ").removeprefix("google "))
    known = next((package for package in _PACKAGES.get(plain, ()) if package in packages.values()), None)
    rules: tuple[Callable[[str], bool], ...] = (
        lambda package: package == name.strip(),
        lambda package: package == known,
        lambda package: plain == _plain(package.rpartition(".")[2]),
        lambda package: plain in map(_plain, package.split(".")),
        lambda package: len(plain) >= _SHORTEST_END and _plain(package).endswith(plain),
    )
    for rule in rules if plain else ():
        matches = {package: component for component, package in reversed(packages.items()) if rule(package)}
        if len(matches) == 1:
            return next(iter(matches.values()))
        if matches:
            packages_text = ", ".join(sorted(matches))
            raise UnknownAppError(f"{name!r} matches several apps; use the package of one: {packages_text}")
    found = sorted(set(packages.values()))
    near = sorted(found, key=lambda package: -_likeness(plain[:_LONGEST_NAME], package))[:_NEAREST]
    raise UnknownAppError(
        f"no app on the phone has the name {name[:_LONGEST_NAME]!r}; of its {len(found)} apps the nearest are "
        f"{', '.join(near)}"
    )


def _likeness(plain: str, package: str) -> float:
    """The largest similarity of a name to a segment of a package."""
    return max(SequenceMatcher(None, plain, _plain(segment)).ratio() for segment in package.split("."))


def _plain(name: str) -> str:
    """Letters and digits only, case-folded."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def read_activity(state: str) -> str:
    """The focused app's `package/activity` in the output of `dumpsys window`, in Android's short form.

    Open notifications (`NotificationShade`, `StatusBar`) are not part of the app below them. Empty if there are none
    or different ones: on a phone with several displays, or if the title of a window has a line that looks like one.
    """
    if (notifications := _NOTIFICATIONS.search(state)) is not None:
        return notifications[1]
    activities = set(_FOCUSED_APP.findall(state))
    return activities.pop() if len(activities) == 1 else ""


def read_launcher(output: str) -> str | None:
    """The package of the home screen that `HOME_COMMAND` prints; None if none is chosen."""
    packages = {component.partition("/")[0] for component in read_components(output)} - {_CHOOSER}
    return packages.pop() if len(packages) == 1 else None
