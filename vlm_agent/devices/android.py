"""Names that the ADB client and the simulated phone's ADB daemon share."""

UNICODE_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""ADBKeyBoard (https://github.com/senzhk/ADBKeyBoard), which types any text that a broadcast contains."""

KEYBOARD_BROADCAST = "ADB_INPUT_B64"
"""The intent of that broadcast; its extra `msg` is the text, base64 of UTF-8."""
