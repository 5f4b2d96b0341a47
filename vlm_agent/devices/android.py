"""Names of Android that several devices and the guard share."""

UNICODE_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""The input method ID of ADBKeyBoard (https://github.com/senzhk/ADBKeyBoard), which types the text of a broadcast."""

KEYBOARD_BROADCAST = "ADB_INPUT_B64"
"""The intent action of this broadcast. Its extra `msg` is the text, encoded in UTF-8 and base64."""


def is_launcher(package: str) -> bool:
    """Whether the package is a launcher, by its name: the launchers of nearly all manufacturers contain these words."""
    return "launcher" in package.casefold() or package.endswith(".home")
