"""Names of Android that several devices and the guard share."""

UNICODE_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""The input method ID of ADBKeyBoard (https://github.com/senzhk/ADBKeyBoard), which types the text of a broadcast."""

KEYBOARD_BROADCAST = "ADB_INPUT_B64"
"""The intent action of this broadcast. Its extra `msg` is the text, encoded in UTF-8 and base64."""


def short_component(component: str) -> str:
    """`package/.Class` for `package/package.Class`, as Android shortens it."""
    package, _, name = component.partition("/")
    return f"{package}/{name.removeprefix(package)}" if name.startswith(f"{package}.") else component
