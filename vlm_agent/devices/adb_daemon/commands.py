"""The commands of the phone's shell: the little of Android's that operating a phone from outside needs.

Their output is worded as Android 13 words it, as far as other programs read it. Nothing here can set up a task or tell
whether it is done, and `am start` is not offered: an app is opened by touching it.
"""

import base64
import binascii
import io
import re

import numpy as np
from PIL import Image

from vlm_agent.devices.adb_daemon.handset import UNICODE_KEYBOARD, Handset
from vlm_agent.devices.adb_daemon.hierarchy import hierarchy_commands
from vlm_agent.devices.adb_daemon.keys import KEYS
from vlm_agent.devices.adb_daemon.shell import Command, Result, refused, said
from vlm_agent.episodes import Action

DENSITY = 420

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
    """The table for `Shell`."""
    here = _Commands(handset)
    return hierarchy_commands(handset) | {
        "am": here.am,
        "dumpsys": here.dumpsys,
        "echo": lambda words: said(" ".join(words)),
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
        return said(PROPERTIES.get(words[0], words[1] if len(words) > 1 else ""))
    return said("\n".join(f"[{name}]: [{value}]" for name, value in PROPERTIES.items()))


def _after(words: list[str], *marks: str) -> str | None:
    """The word behind these words, None where they are not all there."""
    for index in range(len(words) - len(marks)):
        if tuple(words[index : index + len(marks)]) == marks:
            return words[index + len(marks)]
    return None


class _Commands:
    """Each method is a command; it gets the words behind its name."""

    def __init__(self, handset: Handset):
        self._handset = handset

    def input(self, words: list[str]) -> Result:
        """`input [touchscreen|keyboard] tap|swipe|text|keyevent …`."""
        if words[:1] in (["touchscreen"], ["keyboard"]):
            words = words[1:]
        match words:
            case ["tap", *numbers] if len(numbers) == 2:
                return self._touch(numbers * 2)
            case ["swipe", *numbers] if len(numbers) in (4, 5):
                return self._touch(numbers[:4])
            case ["text", text]:
                return self._input_text(text)
            case ["keyevent", *keys] if keys:
                return self._press(keys)
        return refused(f"Error: Invalid arguments for command: {' '.join(words[:1])}")

    def _touch(self, numbers: list[str]) -> Result:
        try:
            x, y, to_x, to_y = map(float, numbers)
            action = Action.swipe(self._fraction(y, x), self._fraction(to_y, to_x))
        except (ValueError, OverflowError) as error:
            return refused(f"Error: {error}")
        self._handset.perform(action)
        return Result()

    def _fraction(self, y: float, x: float) -> tuple[float, float]:
        """The middle of a pixel in screen fractions. Raises ValueError for a point that is not on the screen."""
        height, width = self._handset.phone.size
        return (int(y) + 0.5) / height, (int(x) + 0.5) / width

    def _input_text(self, text: str) -> Result:
        if not all(" " <= letter <= "~" for letter in text):
            return refused("java.lang.NullPointerException: Attempt to get length of null array", 255)
        # Android turns %s into a blank, and there is no way to have it typed as such.
        self._handset.perform(Action.type_text(_PERCENT_S.sub(" ", text)))
        return Result()

    def _press(self, keys: list[str]) -> Result:
        for key in keys:
            press = KEYS.get(key.removeprefix("KEYCODE_"))
            if press is None:
                return refused(f"Error: the simulated phone has no key {key}")
            press(self._handset)
        return Result()

    def am(self, words: list[str]) -> Result:
        """`am broadcast`, which only ADBKeyBoard listens to."""
        if words[:1] != ["broadcast"]:
            return refused(f"Error: am {' '.join(words[:1])} is not offered by the simulated phone")
        action, message = _after(words, "-a"), _after(words, "--es", "msg")
        # A keyboard that is not in use does not hear; the one who has sent the broadcast is not told.
        if action == "ADB_INPUT_B64" and message is not None and self._handset.keyboard == UNICODE_KEYBOARD:
            try:
                text = base64.b64decode(message, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                return refused(f"Error: {error}")
            self._handset.perform(Action.type_text(text))
        return said(f"Broadcasting: Intent {{ act={action} }}\nBroadcast completed: result=0")

    def ime(self, words: list[str]) -> Result:
        """`ime list -s [-a]`, `ime enable ID`, `ime set ID`."""
        handset = self._handset
        if words[:1] == ["list"]:
            return said("\n".join(item for item in handset.keyboards if "-a" in words or item in handset.enabled))
        if len(words) != 2 or words[0] not in ("enable", "set") or words[1] not in handset.keyboards:
            return refused(f"Unknown input method {' '.join(words[1:])} cannot be selected")
        if words[0] == "set":
            handset.keyboard = words[1]
        handset.enabled.add(words[1])
        return said(f"Input method {words[1]}: now {'selected' if words[0] == 'set' else 'enabled'} for user #0")

    def settings(self, words: list[str]) -> Result:
        """`settings get …`."""
        if words[:1] != ["get"]:
            return refused("Error: only settings get is offered by the simulated phone")
        return said(self._handset.keyboard if words[1:] == ["secure", "default_input_method"] else "null")

    def screencap(self, words: list[str]) -> Result:
        """`screencap -p [FILE]`: PNG only."""
        paths = [word for word in words if not word.startswith("-")]
        if "-p" not in words and not any(path.endswith(".png") for path in paths):
            return refused("Error: the simulated phone takes pictures as PNG only: screencap -p")
        phone = self._handset.phone
        pixels = phone.screenshot() if self._handset.is_awake else np.zeros((*phone.size, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=1)
        if not paths:
            return Result(file.getvalue())
        try:
            self._handset.files.put(paths[0], file.getvalue())
        except OSError as error:
            return refused(f"Error: {error}")
        return Result()

    def rm(self, words: list[str]) -> Result:
        for path in words:
            if not path.startswith("-") and self._handset.files.pop(path, None) is None and "-f" not in words:
                return refused(f"rm: {path}: No such file or directory")
        return Result()

    def wm(self, words: list[str]) -> Result:
        height, width = self._handset.phone.size
        answers = {"size": f"Physical size: {width}x{height}", "density": f"Physical density: {DENSITY}"}
        return said(answers[words[0]]) if len(words) == 1 and words[0] in answers else refused("Error: unknown command")

    def pm(self, words: list[str]) -> Result:
        if words[:2] != ["list", "packages"]:
            return refused("Error: only pm list packages is offered by the simulated phone")
        apps = (f"org.{name.lower().replace(' ', '')}" for name in self._handset.phone.installed)
        keyboards = (keyboard.partition("/")[0] for keyboard in self._handset.keyboards)
        return said("\n".join(f"package:{name}" for name in (*apps, *keyboards)))

    def dumpsys(self, words: list[str]) -> Result:
        """`dumpsys power|window|display`: the few lines of them that tell the state of the screen."""
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
        }
        if words[:1] and words[0] in answers:
            return said(answers[words[0]])
        return refused(f"Can't find service: {' '.join(words[:1])}", 0)
