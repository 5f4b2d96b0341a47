"""What is in the foreground of a phone, from the output of Android's commands.

Apps choose the titles of their windows, which `dumpsys window` prints in many places: `mCurrentFocus` and the list of
windows are no evidence of an app. Android itself writes the component in `mFocusedApp`.
"""

import re

from vlm_agent.devices.adb.apps import read_components
from vlm_agent.devices.adb.commands import Words

HOME_COMMAND: Words = (
    *("cmd", "package", "resolve-activity", "--brief"),
    *("-a", "android.intent.action.MAIN", "-c", "android.intent.category.HOME"),
)

_APP = re.compile(
    r"^ *mFocusedApp=[^\n]*?ActivityRecord\{[0-9a-f]+ u\d+ (?P<activity>[\w.]+/[\w.$]+)[ }]", re.MULTILINE
)
_NOTIFICATIONS = re.compile(
    r"^ *mCurrentFocus=Window\{[0-9a-f]+ u\d+ (NotificationShade|StatusBar)\}\r?$", re.MULTILINE
)

_CHOOSER = "android"
"""The package of the activity that asks which launcher to use."""


def read_activity(state: str) -> str:
    """The focused app's `package/activity` in the output of `dumpsys window`, in Android's short form.

    Open notifications (`NotificationShade`, `StatusBar`) are not part of the app below them. Empty if there are none
    or different ones: on a phone with several displays, or if the title of a window has a line that looks like one.
    """
    if (notifications := _NOTIFICATIONS.search(state)) is not None:
        return notifications[1]
    activities = set(_APP.findall(state))
    return activities.pop() if len(activities) == 1 else ""


def read_launcher(output: str) -> str | None:
    """The package of the home screen that `HOME_COMMAND` prints; None if none is chosen."""
    packages = {component.partition("/")[0] for component in read_components(output)} - {_CHOOSER}
    return packages.pop() if len(packages) == 1 else None
