"""Which shell lines of foreign ADB clients the simulated phone runs as Android does.

    python -m studies.simulated_phone.foreign_commands

Each line runs alone on a fresh phone. `works`: its output and its effect on the phone are Android's. `fails`: a
non-zero exit status or a message on standard error, either as on Android or because the phone does not offer it.
`silently wrong`: status 0 without a message, but without Android's output or effect; no line may be this. The last line
of output is JSON with the three counts.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.episodes import ActionKind
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset
from vlm_agent.simulator.adb_daemon.shell.commands import shell_of
from vlm_agent.simulator.adb_daemon.shell.session import STDERR, Transcript

WORKS, FAILS, SILENTLY_WRONG = "works", "fails", "silently wrong"

Check = Callable[[Handset, Transcript], bool]


@dataclass(frozen=True)
class Case:
    """`check`: whether output and effect are Android's; None if Android fails too or the phone cannot offer it.
    `start` prepares the phone."""

    line: str
    check: Check | None
    start: Callable[[Handset], None] = lambda _: None


Run = Callable[[Handset, str], Transcript]


def in_process(handset: Handset, line: str) -> Transcript:
    return shell_of(handset).run(line)


def outcome(case: Case, run: Run = in_process) -> tuple[str, Transcript]:
    """WORKS, FAILS or SILENTLY_WRONG, with what the line has printed. `run` runs a line on a phone."""
    handset = Handset(SimulatedPhone(7))
    case.start(handset)
    handset.actions.clear()
    ran = run(handset, case.line)
    if ran.status != 0 or any(kind == STDERR for kind, _ in ran.written):
        is_right = case.check is not None and ran.status == 0 and case.check(handset, ran)
        return (WORKS if is_right else FAILS), ran
    return (WORKS if case.check is not None and case.check(handset, ran) else SILENTLY_WRONG), ran


# Starts


def field(handset: Handset) -> None:
    """The search field of the store has the focus and contains `old`; further text is appended."""
    handset.phone.open("Store")
    handset.phone.app("Store").new_search()
    handset.phone.type_text("old")


def unicode_keyboard(handset: Handset) -> None:
    field(handset)
    handset.enabled.add(UNICODE_KEYBOARD)
    handset.keyboard = UNICODE_KEYBOARD


def files(handset: Handset) -> None:
    handset.files.put("/sdcard/a.txt", b"one\ntwo\nthree\n")


def in_shop(handset: Handset) -> None:
    handset.phone.open("Shop")


# Checks


def prints(pattern: str) -> Check:
    """The standard output contains a match of `pattern`."""
    return lambda handset, ran: re.search(pattern, ran.out.decode(errors="replace"), re.MULTILINE) is not None


def prints_only(text: str) -> Check:
    return lambda handset, ran: ran.out.decode(errors="replace") == text


def has_file(path: str, pattern: bytes) -> Check:
    return lambda handset, ran: (
        not ran.out and path in handset.files and re.search(pattern, handset.files[path].data) is not None
    )


def does(*kinds: ActionKind) -> Check:
    return lambda handset, ran: [action.kind for action in handset.actions] == list(kinds)


def names(name: str) -> Check:
    """One action with this name is performed."""
    return lambda handset, ran: [action.name for action in handset.actions] == [name]


def in_field(text: str) -> Check:
    def check(handset: Handset, ran: Transcript) -> bool:
        phone = handset.phone
        return phone.app("Store").fields.get("query") == text

    return check


def not_recent(handset: Handset, ran: Transcript) -> bool:
    return not handset.phone.recents and handset.phone.front == "Launcher"


def in_front(app: str) -> Check:
    return lambda handset, ran: handset.phone.front == app


def quiet(handset: Handset, ran: Transcript) -> bool:
    return not ran.out


def setting(namespace: str, key: str, value: str) -> Check:
    def check(handset: Handset, ran: Transcript) -> bool:
        return shell_of(handset).run(f"settings get {namespace} {key}").out.decode() == f"{value}\n"

    return check


def keyboard(name: str) -> Check:
    return lambda handset, ran: handset.keyboard.startswith(name)


def shade_is(is_open: bool) -> Check:
    return lambda handset, ran: handset.phone.shade == is_open


def raw_picture(handset: Handset, ran: Transcript) -> bool:
    height, width = handset.phone.size
    header = b"".join(number.to_bytes(4, "little") for number in (width, height, 1))
    return ran.out.startswith(header) and len(ran.out) == 16 + height * width * 4


def size_is(width: int, height: int) -> Check:
    return lambda handset, ran: handset.phone.size == (height, width)


PNG, XML = b"^\x89PNG", rb"^<\?xml.*</hierarchy>"
HOME, BACK, ENTER = ActionKind.PRESS_HOME, ActionKind.PRESS_BACK, ActionKind.PRESS_ENTER
RECENTS, GESTURE, TYPE = ActionKind.RECENTS, ActionKind.DUAL_POINT, ActionKind.TYPE
_ADB_KEYBOARD = UNICODE_KEYBOARD
_LATIN = "com.android.inputmethod.latin/.LatinIME"
_LAUNCHER = "-c android.intent.category.LAUNCHER"
_FOCUS = r"mCurrentFocus=Window\{\w+ u0 org\.shop/\.\w+\}"


def png(handset: Handset, ran: Transcript) -> bool:
    return ran.out.startswith(b"\x89PNG") and ran.out.endswith(b"IEND\xaeB`\x82")


CASES = (
    # Syntax
    Case("pm list packages 2>/dev/null", prints("^package:org.settings$")),
    Case("screencap -p 2>/dev/null", png),
    Case("wm size 2>&1", prints_only("Physical size: 208x448\n")),
    Case("nothing 2>&1 | cat", prints("nothing: inaccessible or not found")),
    Case("nothing >/dev/null 2>&1; echo $?", prints_only("127\n")),
    Case("wm size | cat", prints_only("Physical size: 208x448\n")),
    Case("wm size > /sdcard/f", has_file("/sdcard/f", b"^Physical size")),
    Case("echo b >> /sdcard/a.txt", has_file("/sdcard/a.txt", b"three\nb\n$"), files),
    Case("wc -l < /sdcard/a.txt", prints_only("3\n"), files),
    Case("echo -n X", prints_only("X")),
    Case("echo hello", prints_only("hello\n")),
    Case("A=x; echo $A", prints_only("x\n")),
    Case("ls $EXTERNAL_STORAGE", prints_only("a.txt\n"), files),
    Case("echo $((1+1))", prints_only("2\n")),
    Case("echo ${HOME:-x}", prints_only("/\n")),
    Case("echo {a,b}", prints_only("a b\n")),
    Case("for i in 1 2; do echo $i; done", prints_only("1\n2\n")),
    Case("if true; then echo yes; fi", prints_only("yes\n")),
    Case("sh -c 'echo a'", prints_only("a\n")),
    Case("(echo a; echo b) | wc -l", prints_only("2\n")),
    Case("{ echo a; echo b; } > /sdcard/f", has_file("/sdcard/f", b"^a\nb\n$")),
    Case("! false", quiet),
    Case("ls /sdcard/*.txt", prints_only("/sdcard/a.txt\n"), files),
    Case("rm -f /sdcard/*.txt; ls /sdcard", quiet, files),
    Case("CLASSPATH=/data/local/tmp/u2.jar app_process / com.x.Server 2.0", None),
    Case("app_process -Djava.class.path=/data/local/tmp/yadb /data/local/tmp com.x.Main -keyboard hi", None),
    Case("export A=b; echo $A", prints_only("b\n")),
    Case("exit 3", None),
    # Screen
    Case("screencap -p", png),
    Case("screencap -p /sdcard/tmp.png", has_file("/sdcard/tmp.png", PNG)),
    Case("/system/bin/screencap -p", png),
    Case("screencap", raw_picture),
    Case("screencap -p -d 0", png),
    Case("screencap -p -d 7", None),
    Case("screencap -p /sdcard/a.png && cat /sdcard/a.png | head -c 4", prints_only("\ufffdPNG")),
    Case("rm /sdcard/a.txt && ls /sdcard/a.txt", None, files),
    Case("wm size", prints_only("Physical size: 208x448\n")),
    Case("wm density", prints_only("Physical density: 420\n")),
    Case("wm size 416x896", size_is(416, 896)),
    Case("wm size 416x896; wm size reset", size_is(208, 448)),
    Case("wm size 416x896; wm size", prints("Override size: 416x896")),
    Case("wm density 320", prints_only("")),
    Case("uiautomator dump", lambda h, r: "/sdcard/window_dump.xml" in h.files),
    Case("uiautomator dump /sdcard/window_dump.xml && cat /sdcard/window_dump.xml", prints("<hierarchy")),
    Case("uiautomator dump /dev/tty", prints("<hierarchy")),
    Case("uiautomator dump --compressed /sdcard/c.xml", lambda h, r: "/sdcard/c.xml" in h.files),
    # dumpsys
    Case("dumpsys window", prints(_FOCUS), in_shop),
    Case("dumpsys window | grep mCurrentFocus", prints(f"^ *{_FOCUS}\n$"), in_shop),
    Case("dumpsys window windows", prints(_FOCUS), in_shop),
    Case("dumpsys window windows | grep -E 'mCurrentFocus|mFocusedApp'", prints(_FOCUS), in_shop),
    Case("dumpsys window displays", prints("init=208x448 420dpi cur=208x448")),
    Case("dumpsys display", prints("deviceWidth=208, deviceHeight=448")),
    Case("dumpsys activity top", prints(r"ACTIVITY org\.shop/\.\w+ \w+ pid=\d+"), in_shop),
    Case("dumpsys activity activities", prints(r"ResumedActivity.* org\.shop/\.\w+ t\d+"), in_shop),
    Case("dumpsys activity activities | grep mResumedActivity", prints(r"org\.shop/\.\w+"), in_shop),
    Case("dumpsys activity recents | grep 'Recent #0'", prints(r"org\.shop"), in_shop),
    Case("dumpsys input_method | grep mInputShown", prints("mInputShown=true"), field),
    Case("dumpsys input_method | grep mCurMethodId", prints(f"mCurMethodId={_LATIN}")),
    Case("dumpsys battery", prints("^  level: 100$")),
    Case("dumpsys package org.shop | grep versionName", prints("versionName=")),
    Case("dumpsys power", prints("mWakefulness=Awake")),
    Case("dumpsys input | grep orientation=0", prints("orientation=0")),
    Case("dumpsys SurfaceFlinger --latency", None),
    Case("dumpsys SurfaceFlinger --display-id", prints(r"^Display 0 \(HWC display 0\)")),
    Case("dumpsys input_method | grep hintText", prints("hintText=Search apps label="), field),
    Case("dumpsys input | grep physicalFrame", prints(r"physicalFrame=\[0, 0, 208, 448\]")),
    Case("dumpsys window | grep mCurrentRotation", prints("mCurrentRotation=ROTATION_0")),
    # input
    Case("input tap 100 200", does(GESTURE)),
    Case("input tap 100.5 200.5", does(GESTURE)),
    Case("input tap 9999 9999", None),
    Case("input swipe 100 300 100 100 500", names("swipe")),
    Case("input swipe 100 300 100 100", names("swipe")),
    Case("input swipe 104 224 104 -276 400", names("swipe")),
    Case("input swipe 104 224 604 224 400", names("swipe")),
    Case("input swipe 100 200 100 200 1000", names("long_press")),
    Case("input touchscreen swipe 100 300 100 100 400", names("swipe")),
    Case("input touchscreen tap 10 10", names("tap")),
    Case("input -d 0 tap 10 10", names("tap")),
    Case("input draganddrop 100 300 100 100 1000", names("swipe"), in_shop),
    Case("input motionevent DOWN 10 300; input motionevent MOVE 10 200; input motionevent UP 10 100", names("swipe")),
    Case("input motionevent DOWN 10 10; sleep 1; input motionevent UP 10 10", names("long_press")),
    Case("input motionevent UP 10 10", None),
    Case("input roll 1 1", None),
    Case("input press", None),
    Case("input text hello", in_field("oldhello"), field),
    Case("input text 'hello%sworld'", in_field("oldhello world"), field),
    Case("input text %s", in_field("old "), field),
    Case('input text "-"', in_field("old-"), field),
    Case("input text 'it'\\''s'", in_field("oldit's"), field),
    Case("input text hello world", in_field("oldhello"), field),
    Case("input text 'grüße'", None, field),
    Case("input keyevent 4", does(BACK)),
    Case("input keyevent BACK", does(BACK)),
    Case("input keyevent KEYCODE_HOME", does(HOME)),
    Case("input keyevent 66", does(ENTER)),
    Case("input keyevent 160", does(ENTER)),
    Case("input keyevent 62", in_field("old "), field),
    Case("input keyevent KEYCODE_SPACE", in_field("old "), field),
    Case("input keyevent KEYCODE_A 8", in_field("olda1"), field),
    Case("input keyevent KEYCODE_DEL", in_field("ol"), field),
    Case("input keyevent --longpress 67", in_field("o"), field),
    Case("input keyevent KEYCODE_MOVE_END", in_field("old"), field),
    Case("input keyevent 123 67 67 67", in_field(""), field),
    Case("input keyevent 82", None),
    Case("input keyevent 111", does(BACK)),
    Case("input keyevent KEYCODE_ESCAPE", does(BACK)),
    Case("input keyevent 61", None),
    Case("input keyevent 19", None),
    Case("input keyevent 84", None),
    Case("input keycombination 113 29; input keyevent 67", in_field(""), field),
    Case("input keycombination 113 29; input keycombination 113 31; input keyevent 123 279", in_field("oldold"), field),
    Case("input keyevent 279", None, field),
    Case("input keyevent 24", None),
    Case("input keyevent 187", does(RECENTS)),
    Case("input keyevent KEYCODE_APP_SWITCH", does(RECENTS)),
    Case("input keyevent 224", lambda h, r: h.is_awake),
    Case("input keyevent 26", lambda h, r: not h.is_awake),
    Case("input keyevent 26; input keyevent 26", lambda h, r: h.is_awake),
    Case("input keyevent 64", in_front("Browser")),
    Case("input keyevent 4 4", does(BACK, BACK)),
    Case("input", None),
    # Apps
    Case(f"monkey -p org.settings {_LAUNCHER} 1", in_front("Settings")),
    Case("monkey -p org.settings 1", in_front("Settings")),
    Case(f"monkey --pct-syskeys 0 -p org.settings {_LAUNCHER} -v -v --throttle 300 1", in_front("Settings")),
    Case("monkey -p org.settings 500", None),
    Case(f"monkey -p com.android.settings {_LAUNCHER} 1", None),
    Case("am start -n org.settings/.Home", in_front("Settings")),
    Case("am start -n org.settings/org.settings.Home", in_front("Settings")),
    Case("am start -W -n org.settings/.Home", prints("^Status: ok$")),
    Case("am start -n com.android.settings/.Settings", None),
    Case("am start -a android.intent.action.MAIN -c android.intent.category.HOME", in_front("Launcher"), in_shop),
    Case("am start -a android.intent.action.VIEW -d https://example.com/a", in_front("Browser")),
    Case("am start -W -a android.intent.action.VIEW -d http://example.com", in_front("Browser")),
    Case("am start -a android.settings.SETTINGS", in_front("Settings")),
    Case("am start -a android.intent.action.DIAL -d tel:123", None),
    Case("am force-stop org.shop", in_front("Launcher"), in_shop),
    Case("am force-stop com.android.settings", quiet),
    Case("am stack list | grep -E visible=true", prints(r"ComponentInfo\{org\.shop/org\.shop\.\w+\}$"), in_shop),
    Case("am stack remove $(dumpsys activity recents | grep -oE ' id=[0-9]+' | cut -d = -f 2)", not_recent, in_shop),
    Case("am stack remove 99", None, in_shop),
    Case("am start -a android.intent.action.VIEW -d http://", in_front("Browser")),
    Case("am start -a android.intent.action.VIEW -d mailto:", None),
    Case("am get-current-user", prints_only("0\n")),
    Case("pm clear org.settings", None),
    Case("pm list packages", prints("^package:org.settings$")),
    Case(
        "pm list packages -3", lambda h, r: b"adbkeyboard" in r.out and b"org.settings" not in r.out
    ),
    Case("pm list packages -s", lambda h, r: b"adbkeyboard" not in r.out and b"org.settings" in r.out),
    Case("pm list packages -f", prints(r"^package:/\S+\.apk=org\.settings$")),
    Case("pm list packages -z", None),
    Case("pm list packages settings", prints_only("package:org.settings\n")),
    Case("pm path org.settings", prints(r"^package:/\S+\.apk$")),
    Case("pm path com.android.settings", None),
    Case("cmd package list packages", prints("^package:org.settings$")),
    Case("cmd package resolve-activity --brief org.settings", prints("^org.settings/.Home$")),
    Case("pm grant x y", None),
    Case("pm install /data/local/tmp/a.apk", None),
    Case("cmd statusbar expand-notifications", shade_is(True)),
    Case("cmd statusbar expand-notifications; cmd statusbar collapse", shade_is(False)),
    Case("cmd overlay list", None),
    # Keyboards
    Case("am broadcast -a ADB_INPUT_B64 --es msg aGFsbG8=", in_field("old"), field),
    Case("am broadcast -a ADB_INPUT_B64 --es msg aGFsbG8=", in_field("oldhallo"), unicode_keyboard),
    Case("am broadcast -a ADB_INPUT_B64 --es msg ''", in_field("old"), unicode_keyboard),
    Case("am broadcast -a ADB_INPUT_TEXT --es msg 'hi you'", in_field("oldhi you"), unicode_keyboard),
    Case("am broadcast -a ADB_CLEAR_TEXT", in_field(""), unicode_keyboard),
    Case("am broadcast -a ADB_INPUT_CODE --ei code 67", in_field("ol"), unicode_keyboard),
    Case("am broadcast -a ADB_INPUT_CHARS --eia chars '128568,32,67'", in_field("old😸 C"), unicode_keyboard),
    Case("am broadcast -a ADB_EDITOR_CODE --ei code 3", does(ENTER), unicode_keyboard),
    Case("am broadcast -a ADB_NOTHING", None, unicode_keyboard),
    Case("ime list -s", prints_only(f"{_LATIN}\n")),
    Case("ime list -s -a", prints(_ADB_KEYBOARD)),
    Case("ime list -a", prints(f"mId={_ADB_KEYBOARD}")),
    Case(f"ime enable {_ADB_KEYBOARD} && ime set {_ADB_KEYBOARD}", keyboard(_ADB_KEYBOARD)),
    Case(f"ime set {_ADB_KEYBOARD}", None),
    Case(f"ime disable {_ADB_KEYBOARD}", keyboard(_LATIN), unicode_keyboard),
    Case("ime reset", keyboard(_LATIN), unicode_keyboard),
    Case(f"ime set {_LATIN}", keyboard(_LATIN), unicode_keyboard),
    Case("settings get secure default_input_method", prints_only(f"{_LATIN}\n")),
    # Settings and properties
    Case("settings put system screen_off_timeout 600000", setting("system", "screen_off_timeout", "600000")),
    Case("settings put secure show_ime_with_hard_keyboard 1", setting("secure", "show_ime_with_hard_keyboard", "1")),
    Case("settings put global window_animation_scale 0", setting("global", "window_animation_scale", "0")),
    Case("settings get system screen_brightness", prints(r"^\d+$")),
    Case("settings list secure", prints(f"^default_input_method={_LATIN}$")),
    Case("settings put system user_rotation 1", None),
    Case("getprop", prints(r"^\[ro.product.model\]: \[Simulated Phone\]$")),
    Case("getprop ro.build.version.sdk", prints_only("33\n")),
    Case("getprop ro.product.cpu.abi", prints_only("arm64-v8a\n")),
    Case("getprop ro.serialno", prints(r"^\w+$")),
    Case("getprop ro.build.version.preview_sdk", prints_only("0\n")),
    Case("getprop persist.sys.timezone", prints_only("UTC\n")),
    Case("getprop sys.boot_completed", prints_only("1\n")),
    Case("svc wifi enable", None),
    Case("svc power stayon true", None),
    Case("content query --uri content://sms", None),
    Case("service call clipboard 1", None),
    Case("logcat -d -t 1", None),
    # Files and small tools
    Case("ip route", prints(r"src 127\.0\.0\.1")),
    Case("ip addr show wlan0", prints(r"inet 127\.0\.0\.1/8")),
    Case("ifconfig wlan0", prints(r"inet addr:127\.0\.0\.1")),
    Case("date", prints(r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \w+ \d{4}$")),
    Case("date +%s", prints(r"^\d{9,}$")),
    Case("date '+%Y-%m-%d %H:%M'", prints(r"^\d{4}-\d\d-\d\d \d\d:\d\d$")),
    Case("ls /sdcard", prints_only("a.txt\n"), files),
    Case("ls -l /sdcard", prints(r"^-rw-\S+ 1 \S+ \S+ +14 .* a\.txt$"), files),
    Case("mkdir -p /sdcard/x/y && ls /sdcard/x", prints_only("y\n")),
    Case("mkdir /system/x", None),
    Case("rm -r /sdcard/x; ls /sdcard/nothing", None),
    Case("cat /sdcard/nothing", None),
    Case("cat /sdcard/a.txt", prints_only("one\ntwo\nthree\n"), files),
    Case("cat /sdcard/a.txt | grep -c t", prints_only("2\n"), files),
    Case("head -n 1 /sdcard/a.txt", prints_only("one\n"), files),
    Case("tail -n 1 /sdcard/a.txt", prints_only("three\n"), files),
    Case("wc -c /sdcard/a.txt", prints_only("14 /sdcard/a.txt\n"), files),
    Case("wm size | cut -d ' ' -f 3", prints_only("208x448\n")),
    Case("test -f /sdcard/x; echo $?", prints_only("1\n")),
    Case("[ -f /sdcard/a.txt ] && echo yes", prints_only("yes\n"), files),
    Case("which ls", prints_only("/system/bin/ls\n")),
    Case("which nothing", None),
    Case("true", quiet),
    Case("false", None),
    Case("sleep 0.1", quiet),
    Case("input tap 9 9 && sleep 1 && input tap 9 9", does(GESTURE, GESTURE)),
    Case("whoami", prints_only("shell\n")),
    Case("id", prints(r"^uid=2000\(shell\)")),
    Case("pwd", prints_only("/\n")),
    Case("su root whoami", None),
    Case("ps", None),
    Case("toybox", None),
    Case("df", None),
    Case("reboot", None),
)  # fmt: skip


def main() -> None:
    counts = Counter({WORKS: 0, FAILS: 0, SILENTLY_WRONG: 0})
    for case in CASES:
        kind, ran = outcome(case)
        counts[kind] += 1
        message = b"".join(data for stream, data in ran.written if stream == STDERR).decode(errors="replace").strip()
        detail = f"  [{ran.status}] {message.splitlines()[-1] if message else ''}" if kind == FAILS else ""
        print(f"{kind:<14}  {case.line}{detail}")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
