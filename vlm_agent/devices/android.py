"""Names that the ADB client and the simulated phone's ADB daemon share."""

UNICODE_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
"""The input method ID of ADBKeyBoard (https://github.com/senzhk/ADBKeyBoard), which types the text of a broadcast."""

KEYBOARD_BROADCAST = "ADB_INPUT_B64"
"""The intent action of this broadcast. Its extra `msg` is the text, encoded in UTF-8 and base64."""
