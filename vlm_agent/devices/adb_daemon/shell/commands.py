"""The commands of the simulated phone's shell: those of Android that operate a phone from outside.

Output that programs read has the format of Android 13. No command sets up a task or reports whether a task is reached,
and `am start` opens an app only as the launcher does.
"""

import base64
import re

import numpy as np

from vlm_agent.devices.adb_daemon.handset import Handset
from vlm_agent.devices.adb_daemon.shell.fingers import listing
from vlm_agent.devices.adb_daemon.shell.hierarchy import hierarchy_commands
from vlm_agent.devices.adb_daemon.shell.keys import KEYS
from vlm_agent.devices.adb_daemon.shell.session import Command, Result, failure, output
from vlm_agent.devices.android import KEYBOARD_BROADCAST, UNICODE_KEYBOARD
from vlm_agent.devices.simulated_phone.app import package_of
from vlm_agent.episodes import Action
from vlm_agent.png import encode_png

DENSITY = 420

LONG_PRESS_MILLISECONDS = 500
"""The shortest touch that counts as a long press (Android, `ViewConfiguration`)."""

PROPERTIES = {
    "ro.build.version.release": "13",
    "ro.build.version.sdk": "33",
    "ro.product.brand": "vlm-agent",
    "ro.product.device": "simulated_phone",
    "ro.product.manufacturer": "vlm-agent",
    "ro.product.model": "Simulated Phone",
    "ro.product.name": "simulated_phone",
    "sys.boot_completed": "1",
}

_PERCENT_S = re.compile(r"%s")


def commands_of(handset: Handset) -> dict[str, Command]:
    """Name → command, for `Shell`."""
    here = _Commands(handset)
    return hierarchy_commands(handset) | {
        "am": here.am,
        "cmd": here.cmd,
        "dumpsys": here.dumpsys,
        "echo": lambda words: output(" ".join(words)),
        "getevent": here.getevent,
        "getprop": _getprop,
        "ime": here.ime,
        "input": here.input,
        "pm": here.pm,
        "rm": here.rm,
        "screencap": here.screencap,
        "settings": here.settings,
        "true": lambda _: Result(),
        "wm": here.wm,
    }


def _getprop(words: list[str]) -> Result:
    if words:
        return output(PROPERTIES.get(words[0], words[1] if len(words) > 1 else ""))
    return output("\n".join(f"[{name}]: [{value}]" for name, value in PROPERTIES.items()))


def _after(words: list[str], *marks: str) -> str | None:
    """The word that follows `marks` in `words`, None if they do not occur."""
    for index in range(len(words) - len(marks)):
        if tuple(words[index : index + len(marks)]) == marks:
            return words[index + len(marks)]
    return None


def launcher_activity(app: str) -> str:
    """The `package/activity` with which the launcher starts an app."""
    return f"{package_of(app)}/.Home"


def _is_long(milliseconds: str) -> bool:
    return milliseconds.isdecimal() and int(milliseconds) >= LONG_PRESS_MILLISECONDS


class _Commands:
    """Each method is a command and takes the words after its name."""

    def __init__(self, handset: Handset) -> None:
        self._handset = handset

    def input(self, words: list[str]) -> Result:
        """`input [touchscreen|keyboard] tap|swipe|text|keyevent …`."""
        if words[:1] in (["touchscreen"], ["keyboard"]):
            words = words[1:]
        match words:
            case ["tap", *numbers] if len(numbers) == 2:
                return self._touch(numbers * 2)
            case ["swipe", *numbers, milliseconds] if len(numbers) == 4 and _is_long(milliseconds):
                return self._touch(numbers, is_long=True)
            case ["swipe", *numbers] if len(numbers) in (4, 5):
                return self._touch(numbers[:4])
            case ["text", text]:
                return self._input_text(text)
            case ["keyevent", *keys] if keys:
                return self._press(keys)
        return failure(f"Error: Invalid arguments for command: {' '.join(words[:1])}")

    def _touch(self, numbers: list[str], is_long: bool = False) -> Result:
        """Performs a swipe or tap from four numbers, x and y of touch and lift in pixels.

        It is a long press if it `is_long` and the finger does not move.
        """
        try:
            x, y, to_x, to_y = map(float, numbers)
            touch = self._fraction(y, x)
            action = Action.swipe(touch, self._fraction(to_y, to_x))
        except (ValueError, OverflowError) as error:
            return failure(f"Error: {error}")
        self._handset.perform(Action.long_press(*touch) if is_long and action.is_tap else action)
        return Result()

    def _fraction(self, y: float, x: float) -> tuple[float, float]:
        """The centre of pixel (`y`, `x`), as (y, x) in screen fractions."""
        height, width = self._handset.phone.size
        return (int(y) + 0.5) / height, (int(x) + 0.5) / width

    def _input_text(self, text: str) -> Result:
        if not all(" " <= letter <= "~" for letter in text):
            return failure("java.lang.NullPointerException: Attempt to get length of null array", 255)
        # As on Android, %s becomes a space and cannot be escaped.
        self._handset.perform(Action.type_text(_PERCENT_S.sub(" ", text)))
        return Result()

    def _press(self, keys: list[str]) -> Result:
        for key in keys:
            press = KEYS.get(key.removeprefix("KEYCODE_"))
            if press is None:
                return failure(f"Error: the simulated phone has no key {key}")
            press(self._handset)
        return Result()

    def am(self, words: list[str]) -> Result:
        """`am start -n COMPONENT` of a launcher activity, and `am broadcast`, which only ADBKeyBoard receives."""
        if words[:1] == ["start"]:
            return self._start(_after(words, "-n"))
        if words[:1] != ["broadcast"]:
            return failure(f"Error: am {' '.join(words[:1])} is not offered by the simulated phone")
        action, message = _after(words, "-a"), _after(words, "--es", "msg")
        # A keyboard that is not selected ignores the broadcast, but `am` still reports success.
        if action == KEYBOARD_BROADCAST and message is not None and self._handset.keyboard == UNICODE_KEYBOARD:
            try:
                text = base64.b64decode(message, validate=True).decode()
            except ValueError as error:  # not ASCII, not base64, or not UTF-8
                return failure(f"Error: {error}")
            self._handset.perform(Action.type_text(text))
        return output(f"Broadcasting: Intent {{ act={action} }}\nBroadcast completed: result=0")

    def _start(self, component: str | None) -> Result:
        app = next((name for name in self._handset.phone.installed if launcher_activity(name) == component), None)
        if app is None:
            return failure(f"Error type 3\nError: Activity class {{{component}}} does not exist.")
        self._handset.perform(Action.open_app(app))
        return output(f"Starting: Intent {{ cmp={component} }}")

    def cmd(self, words: list[str]) -> Result:
        """`cmd package query-activities --brief …` of the launcher's activities."""
        if words[:2] != ["package", "query-activities"] or "android.intent.category.LAUNCHER" not in words:
            return failure("Error: only cmd package query-activities of launcher activities is offered")
        components = [launcher_activity(name) for name in self._handset.phone.installed]
        lines = (f"  priority=0 preferredOrder=0 match=0x108000 isDefault=false\n  {one}" for one in components)
        return output("\n".join((f"{len(components)} activities found:", *lines)))

    def ime(self, words: list[str]) -> Result:
        """`ime list -s [-a]`, `ime enable ID`, `ime set ID`."""
        handset = self._handset
        if words[:1] == ["list"]:
            return output("\n".join(item for item in handset.keyboards if "-a" in words or item in handset.enabled))
        if len(words) != 2 or words[0] not in ("enable", "set") or words[1] not in handset.keyboards:
            return failure(f"Unknown input method {' '.join(words[1:])} cannot be selected")
        if words[0] == "set":
            handset.keyboard = words[1]
        handset.enabled.add(words[1])
        return output(f"Input method {words[1]}: now {'selected' if words[0] == 'set' else 'enabled'} for user #0")

    def settings(self, words: list[str]) -> Result:
        """`settings get …`."""
        if words[:1] != ["get"]:
            return failure("Error: only settings get is offered by the simulated phone")
        return output(self._handset.keyboard if words[1:] == ["secure", "default_input_method"] else "null")

    def screencap(self, words: list[str]) -> Result:
        """`screencap -p [FILE]`: PNG only."""
        paths = [word for word in words if not word.startswith("-")]
        if "-p" not in words and not any(path.endswith(".png") for path in paths):
            return failure("Error: the simulated phone writes PNG only: screencap -p")
        phone = self._handset.phone
        pixels = phone.screenshot() if self._handset.is_awake else np.zeros((*phone.size, 3), np.uint8)
        png = encode_png(pixels)
        if not paths:
            return Result(png)
        try:
            self._handset.files.put(paths[0], png)
        except OSError as error:
            return failure(f"Error: {error}")
        return Result()

    def rm(self, words: list[str]) -> Result:
        for path in words:
            if not path.startswith("-") and self._handset.files.pop(path, None) is None and "-f" not in words:
                return failure(f"rm: {path}: No such file or directory")
        return Result()

    def wm(self, words: list[str]) -> Result:
        height, width = self._handset.phone.size
        answers = {"size": f"Physical size: {width}x{height}", "density": f"Physical density: {DENSITY}"}
        return (
            output(answers[words[0]]) if len(words) == 1 and words[0] in answers else failure("Error: unknown command")
        )

    def pm(self, words: list[str]) -> Result:
        if words[:2] != ["list", "packages"]:
            return failure("Error: only pm list packages is offered by the simulated phone")
        apps = map(package_of, self._handset.phone.installed)
        keyboards = (keyboard.partition("/")[0] for keyboard in self._handset.keyboards)
        return output("\n".join(f"package:{name}" for name in (*apps, *keyboards)))

    def getevent(self, words: list[str]) -> Result:
        """`getevent -lp`; the server itself prints events (`getevent -lt`)."""
        if words != ["-lp"]:
            return failure("Error: the simulated phone offers getevent -lp, and getevent -lt alone in its line")
        return output(listing(self._handset))

    def dumpsys(self, words: list[str]) -> Result:
        """`dumpsys power|window|display|input|input_method`: only the lines that describe the state of the screen."""
        handset = self._handset
        height, width = handset.phone.size
        awake, locked = str(handset.is_awake).lower(), str(handset.is_locked).lower()
        front = "NotificationShade" if handset.is_locked else handset.phone.activity
        answers = {
            "power": f"  mWakefulness={'Awake' if handset.is_awake else 'Asleep'}\n"
            f"  mHoldingDisplaySuspendBlocker={awake}",
            "window": f"    KeyguardStateMonitor\n      mIsShowing={locked}\n"
            f"  mCurrentFocus=Window{{1a2b3c u0 {front}}}",
            "display": f"  mViewports=[DisplayViewport{{type=INTERNAL, valid=true, displayId=0, orientation=0, "
            f"deviceWidth={width}, deviceHeight={height}}}]",
            "input": f"  Viewport INTERNAL: displayId=0, uniqueId=local:0, port=0, orientation=0, "
            f"logicalFrame=[0, 0, {width}, {height}]",
            "input_method": f"  mShowRequested=false mInputShown={str(handset.phone.focus is not None).lower()}",
        }
        if words[:1] and words[0] in answers:
            return output(answers[words[0]])
        return failure(f"Can't find service: {' '.join(words[:1])}", 0)
