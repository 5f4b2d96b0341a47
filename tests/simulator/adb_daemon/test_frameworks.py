"""The commands of agent frameworks, sent by `adb` and adbutils as their code sends them, and what they show.

Each test names the framework and the file that its commands come from. What the simulated phone lacks fails with an
error that says so.
"""

import base64
import re

import adbutils
import numpy as np
import pytest
from helpers.phones.operated_phone import OperatedPhone
from PIL import Image

from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.files import FOLDERS
from vlm_agent.simulator.adb_daemon.handset import USUAL_KEYBOARD, USUAL_SETTINGS

LAUNCHER = "android.intent.category.LAUNCHER"


@pytest.fixture(scope="module")
def served(adb_servers):
    adb = adb_servers("adbutils")
    with PhoneServer(Handset(SimulatedPhone(7))) as server:
        adb.run("connect", server.serial)
        yield OperatedPhone(adb, server)
        adb.run("disconnect", server.serial)


@pytest.fixture
def phone(served) -> OperatedPhone:
    """The served phone in its first state."""
    handset = served.handset
    handset.phone.size = handset.physical_size
    handset.phone.reset()
    for record in (handset.actions, handset.commands, handset.files):
        record.clear()
    handset.files.folders = set(FOLDERS)
    handset.keyboard, handset.enabled, handset.settings = USUAL_KEYBOARD, {USUAL_KEYBOARD}, dict(USUAL_SETTINGS)
    handset.is_awake, handset.finger = True, None
    return served


@pytest.fixture
def device(phone) -> adbutils.AdbDevice:
    return adbutils.AdbClient(port=phone.adb.port).device(phone.server.serial)


# Open-AutoGLM, phone_agent/adb/{device,input,screenshot}.py


def test_open_autoglm_reads_the_screen_from_a_pulled_file(phone, tmp_path):
    phone.shell("screencap", "-p", "/sdcard/tmp.png")
    phone.run("pull", "/sdcard/tmp.png", str(tmp_path / "screen.png"))
    np.testing.assert_array_equal(np.array(Image.open(tmp_path / "screen.png")), phone.handset.phone.screenshot())


def test_open_autoglm_starts_an_app_and_finds_it_in_the_foreground(phone):
    phone.shell("monkey", "-p", "org.shop", "-c", LAUNCHER, "1")
    assert phone.front == "Shop"
    lines = [line for line in phone.shell("dumpsys", "window").split("\n") if "mCurrentFocus" in line]
    assert len(lines) == 1 and "org.shop" in lines[0]
    phone.shell("input", "keyevent", "KEYCODE_HOME")
    assert phone.front == "Launcher"


def test_open_autoglm_fails_to_start_a_package_of_a_real_phone(phone):
    assert "No activities found" in phone.refusal("monkey", "-p", "com.tencent.mm", "-c", LAUNCHER, "1")


def test_open_autoglm_replaces_the_text_of_a_field(phone):
    phone.edit_store_query("old")
    usual = phone.shell("settings", "get", "secure", "default_input_method").strip()
    assert UNICODE_KEYBOARD not in phone.shell("ime", "list", "-s").split()
    phone.shell("ime", "enable", UNICODE_KEYBOARD)
    phone.shell("ime", "set", UNICODE_KEYBOARD)
    wakes = phone.run("shell", "am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", "")
    assert b"Argument expected" in wakes.stderr  # as on Android: adb drops the empty word
    phone.shell("am", "broadcast", "-a", "ADB_CLEAR_TEXT")
    assert phone.typed == ""
    phone.shell(
        "am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", base64.b64encode("微信 chess".encode()).decode()
    )
    assert phone.typed == "微信 chess"
    phone.shell("ime", "set", usual)
    assert phone.handset.keyboard == usual


def test_open_autoglm_scrolls_and_goes_back(phone):
    phone.shell("monkey", "-p", "org.settings", "-c", LAUNCHER, "1")
    before = phone.screen()
    phone.shell("input", "swipe", "100", "350", "100", "120", "1000")
    assert (phone.screen() != before).any()
    phone.shell("input", "keyevent", "4")
    assert phone.front == "Launcher"


def test_open_autoglm_presses_long_without_tapping(phone):
    phone.shell("monkey", "-p", "org.store", "-c", LAUNCHER, "1")
    before, (x, y) = phone.screen(), phone.place("Search apps")
    phone.shell("input", "swipe", x, y, x, y, "3000")
    np.testing.assert_array_equal(phone.screen(), before)
    assert [action.name for action in phone.handset.actions] == ["open_app", "long_press"]
    phone.shell("input", "tap", x, y)
    assert (phone.screen() != before).any()


# MobileAgent, Mobile-Agent-v2/MobileAgent/controller.py and Mobile-Agent-v3/mobile_v3/utils/android_controller.py


def test_mobile_agent_removes_the_last_screenshot_and_pulls_a_new_one(phone, tmp_path):
    assert "No such file" in phone.run("shell", "rm", "/sdcard/screenshot.png").stderr.decode()
    for count in range(2):
        if count:
            phone.shell("rm", "/sdcard/screenshot.png")
        phone.shell("screencap", "-p", "/sdcard/screenshot.png")
        phone.run("pull", "/sdcard/screenshot.png", str(tmp_path))
    pixels = np.array(Image.open(tmp_path / "screenshot.png").convert("RGB"))
    np.testing.assert_array_equal(pixels, phone.handset.phone.screenshot())


def test_mobile_agent_sees_the_keyboard_with_the_hint_of_its_field(phone):
    assert "mInputShown=false" in phone.shell("dumpsys", "input_method")
    phone.edit_store_query()
    text = phone.shell("dumpsys", "input_method")
    assert "mInputShown=true" in text
    assert re.search("hintText=(.*) label", text)[1] == "Search apps"


def test_mobile_agent_types_one_character_at_a_time(phone):
    phone.shell("ime", "enable", UNICODE_KEYBOARD)
    phone.shell("ime", "set", UNICODE_KEYBOARD)
    phone.edit_store_query()
    for letter in "Zo":
        phone.shell("input", "text", letter)
    phone.shell("am", "broadcast", "-a", "ADB_INPUT_TEXT", "--es", "msg", "ë")
    phone.shell("input", "text", "%s")
    for letter in "5-.!?@:/":
        phone.shell("input", "text", letter)
    assert phone.typed == "Zoë 5-.!?@:/"
    before = phone.handset.phone.activity
    phone.shell("input", "keyevent", "66")
    assert phone.handset.phone.activity != before


@pytest.mark.parametrize(
    ("sign", "error"), [("'", "no closing quote"), ("(", "unexpected"), (";", "Invalid"), ("°", "Exception")]
)
def test_mobile_agent_fails_to_type_signs_that_it_does_not_quote(phone, sign, error):
    """Android does the same: its shell, not the keyboard, reads them, and `input text` has no key for a degree sign."""
    phone.edit_store_query("a")
    assert error in phone.refusal("input", "text", sign)
    assert phone.typed == "a"


def test_mobile_agent_slides_and_goes_home_by_an_intent(phone):
    phone.shell("monkey", "-p", "org.settings", "1")
    before = phone.screen()
    phone.shell("input", "swipe", "100", "350", "100", "120", "500")
    assert (phone.screen() != before).any()
    phone.shell("am", "start", "-a", "android.intent.action.MAIN", "-c", "android.intent.category.HOME")
    assert phone.front == "Launcher"


# MAI-UI, web_ui/adb_utils.py


@pytest.mark.parametrize(
    ("x", "y"), [(104, -276), (104, 724), (-396, 224), (604, 224)], ids=["up", "down", "left", "right"]
)
def test_mai_ui_swipes_500_pixels_from_the_centre_to_the_edge(phone, x, y):
    height, width = phone.handset.phone.size
    assert phone.shell("wm", "size").split()[-1] == f"{width}x{height}"
    phone.shell("monkey", "-p", "org.settings", "-c", LAUNCHER, "1")
    before = phone.screen()
    phone.shell("input", "swipe", "104", "224", str(x), str(y), "300")
    end = (min(max(y, 0), height - 1) + 0.5) / height, (min(max(x, 0), width - 1) + 0.5) / width
    assert phone.handset.actions[-1] == Action.swipe((224.5 / height, 104.5 / width), end)
    assert (phone.screen() != before).any() == (y < 0)  # the page is at its top and has no tabs


def test_mai_ui_opens_an_installed_app_and_searches_for_others(phone):
    assert "package:" in phone.shell("pm", "path", "org.mail")
    phone.shell("monkey", "-p", "org.mail", "-c", LAUNCHER, "1")
    assert phone.front == "Mail"
    phone.refusal("pm", "path", "com.tencent.mm")
    assert "does not exist" in phone.refusal("am", "start", "-n", "org.mail/.MainActivity")
    assert phone.shell("pm", "list", "packages", "-3").startswith("package:")


def test_mai_ui_presses_the_buttons_that_the_phone_has(phone):
    phone.edit_store_query("chess")
    phone.shell("input", "keyevent", "KEYCODE_ENTER")
    assert phone.handset.phone.focus is None
    phone.shell("input", "keyevent", "KEYCODE_BACK")
    phone.shell("input", "keyevent", "KEYCODE_HOME")
    assert phone.front == "Launcher"
    phone.shell("input", "keyevent", "KEYCODE_POWER")
    assert not phone.screen().any()
    phone.shell("input", "keyevent", "KEYCODE_POWER")
    assert phone.screen().any()
    for key in ("KEYCODE_MENU", "KEYCODE_VOLUME_UP", "KEYCODE_VOLUME_DOWN"):
        assert f"the simulated phone has no key {key}" in phone.refusal("input", "keyevent", key)


def test_mai_ui_types_ascii_and_is_refused_its_own_keyboard(phone, tmp_path):
    phone.edit_store_query()
    phone.shell("input", "text", "two%swords")
    assert phone.typed == "two words"
    assert "No such file" in phone.refusal("ls", "/data/local/tmp/yadb")
    (tmp_path / "yadb").write_bytes(b"PK")
    assert phone.run("push", str(tmp_path / "yadb"), "/data/local/tmp/yadb").returncode == 0
    start = ("app_process", "-Djava.class.path=/data/local/tmp/yadb", "/data/local/tmp", "com.ysbing.yadb.Main")
    assert "the simulated phone runs no Android code" in phone.refusal(*start, "-keyboard", "你好")
    assert phone.typed == "two words"


# mobile-use of MadeAgents, mobile_use/environment/mobile_environ.py (adbutils)


def test_mobile_use_reads_its_state(phone, device):
    height, width = phone.handset.phone.size
    device.app_start("org.photos")
    assert device.window_size(landscape=False) == (width, height)
    pixels = np.array(device.screenshot(-1, error_ok=False))
    np.testing.assert_array_equal(pixels, phone.handset.phone.screenshot())
    assert device.app_current().package == "org.photos"
    assert re.search(r"\d\d:\d\d:\d\d", device.shell("date"))


def test_mobile_use_taps_swipes_and_presses_long(phone, device):
    device.app_start("org.settings")
    before = phone.screen()
    device.swipe(100, 200, 100, 200, duration=2.0)
    np.testing.assert_array_equal(phone.screen(), before)
    device.swipe(100, 350, 100, 120, duration=0.5)
    assert (phone.screen() != before).any()
    device.click(*map(int, phone.place("Settings")))
    device.keyevent("HOME")
    assert phone.front == "Launcher"
    assert [one.name for one in phone.handset.actions][1:3] == ["long_press", "swipe"]
    assert "no key MENU" in device.shell("input keyevent MENU")


def test_mobile_use_clears_and_types_by_a_keyboard_that_it_selects_and_disables(phone, device):
    phone.edit_store_query("old")
    for words in (["ime", "enable", UNICODE_KEYBOARD], ["ime", "set", UNICODE_KEYBOARD]):
        device.shell(words)
    phone.shell("am", "broadcast", "-a", "ADB_CLEAR_TEXT")
    device.shell(["ime", "disable", UNICODE_KEYBOARD])
    device.shell(["input", "text", " "])
    assert phone.typed == " "
    assert phone.handset.keyboard == USUAL_KEYBOARD
    for words in (["ime", "enable", UNICODE_KEYBOARD], ["ime", "set", UNICODE_KEYBOARD]):
        device.shell(words)
    phone.shell("am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", base64.b64encode("国际象棋".encode()).decode())
    device.shell(["ime", "disable", UNICODE_KEYBOARD])
    device.shell(["input", "text", "it's"])
    assert phone.typed == " 国际象棋it's"


def test_mobile_use_has_no_overlay_for_its_answer(phone):
    answer = ("am", "broadcast", "com.example.ACTION_UPDATE_OVERLAY", "--es", "goal_string", "42")
    assert "nothing on the simulated phone receives" in phone.refusal(*answer)


# mobile-use of minitap, minitap/mobile_use/controllers/android_controller.py (adbutils)


def test_minitap_operates_the_touch_screen_and_the_keys(phone, device):
    device.shell("monkey -p org.settings 1")
    before = phone.screen()
    device.shell("input touchscreen swipe 100 350 100 120 400")
    assert (phone.screen() != before).any()
    device.shell("input keyevent 3")
    assert phone.front == "Launcher"


def test_minitap_types_words_and_erases_them(phone, device):
    phone.edit_store_query()
    device.shell("input text 'good'")
    device.shell("input keyevent 62")
    device.shell("input text 'a%sb'")
    assert phone.typed == "good a b"
    for _ in range(3):
        device.shell("input keyevent KEYCODE_DEL")
    assert phone.typed == "good "


def test_minitap_opens_a_page_and_stops_the_app_in_the_foreground(phone, device):
    device.shell("am start -a android.intent.action.VIEW -d https://www.shop.com/offers")
    assert phone.front == "Browser"
    focus = device.shell("dumpsys window | grep mCurrentFocus")
    package = focus.split("/")[0].split()[-1]
    assert package == "org.browser"
    device.app_stop(package)
    assert phone.front == "Launcher"


# AndroidWorld, android_world/env/adb_utils.py, with android_env/components/adb_call_parser.py


def test_android_world_starts_an_activity_and_reads_it(phone):
    phone.shell("am", "start", "", "-W", "-n", "org.messages/.Home")
    assert phone.front == "Messages"
    task = phone.shell("am", "stack", "list", "|", "grep", "-E", "visible=true")
    assert re.search(r".*\{(.*)\}", task)[1] == "org.messages/org.messages.Home"
    phone.shell("am", "start", "-a", "android.intent.action.VIEW", "-d", "http://")
    assert phone.front == "Browser"
    address = ("-a", "android.intent.action.VIEW", "-d", "https://www.wiki.com")
    phone.shell("am", "start", *address, "-n", "org.browser/.Home")
    assert phone.handset.phone.activity == "org.browser/.Site"


def test_android_world_closes_the_recent_apps(phone):
    for package in ("org.mail", "org.notes"):
        phone.shell("monkey", "-p", package, "1")
    tasks = re.findall(r"id=(\d+)", phone.shell("dumpsys", "activity", "recents"))
    assert len(tasks) == 2
    for task in tasks:
        phone.shell("am", "stack", "remove", task)
    assert phone.front == "Launcher"
    assert re.findall(r"id=(\d+)", phone.shell("dumpsys", "activity", "recents")) == []


def test_android_world_types_escaped_words(phone):
    phone.edit_store_query()
    for word in ("it\\'s", "%s", 'a\\;b\\&\\(c\\)\\$d\\"\\\\'):
        phone.shell("input", "text", word)
    assert phone.typed == "it's a;b&(c)$d\"\\"
    phone.shell("input", "keyevent", "KEYCODE_ENTER")
    assert phone.handset.phone.focus is None


def test_android_world_swipes_without_a_duration_and_presses_long(phone):
    phone.shell("monkey", "-p", "org.settings", "1")
    before = phone.screen()
    phone.shell("input", "swipe", "100", "300", "100", "300", "1000")
    np.testing.assert_array_equal(phone.screen(), before)
    phone.shell("input", "swipe", "100", "350", "100", "120", "")
    assert (phone.screen() != before).any()
    assert [one.name for one in phone.handset.actions][1:] == ["long_press", "swipe"]


def test_android_world_reads_and_sets_the_screen(phone):
    height, width = phone.handset.phone.size
    frame = rf"\[0, 0, {width}, {height}\]"
    assert re.search(f"logicalFrame={frame}", phone.shell("dumpsys input | grep logicalFrame"))
    assert re.search(f"physicalFrame={frame}", phone.shell("dumpsys", "input", "|", "grep", "physicalFrame"))
    assert "mCurrentRotation=ROTATION_0" in phone.shell("dumpsys window | grep mCurrentRotation")
    phone.shell("wm size 300x600")
    assert phone.screen().shape == (600, 300, 3)
    assert phone.shell("getprop ro.build.version.sdk") == "33\n"


def test_android_world_reads_the_elements_from_a_file(phone):
    phone.shell("monkey", "-p", "org.store", "1")
    phone.shell("uiautomator", "dump", "/sdcard/window_dump.xml")
    assert 'text="Search apps"' in phone.shell("cat", "/sdcard/window_dump.xml")
    phone.shell("input", "keyevent", "KEYCODE_POWER")
    assert "null root node" in phone.refusal("uiautomator", "dump", "/sdcard/window_dump.xml")


def test_android_world_stops_an_app(phone):
    phone.shell("monkey", "-p", "org.clock", "1")
    phone.shell("am", "force-stop", "org.clock")
    assert phone.front == "Launcher"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("pm clear org.mail", "pm clear is not offered"),
        ("pm grant org.mail android.permission.CAMERA", "pm grant is not offered"),
        ("svc wifi enable", "switches on its screen only"),
        ("settings put global airplane_mode_on 1", "on its screen only"),
        ("settings put system user_rotation 1", "cannot change user_rotation"),
        ("content delete --uri content://call_log/calls", "no content providers"),
        ("am start -a android.intent.action.CALL -d tel:123", "unable to resolve"),
        ("am broadcast -a clipper.get", "nothing on the simulated phone receives"),
        ("sqlite3 /data/a.db 'select 1'", "sqlite3: inaccessible or not found"),
    ],
)
def test_android_world_fails_to_set_up_a_task(phone, words, error):
    assert error in phone.refusal(words)


def test_android_world_needs_root_and_installation(phone, tmp_path):
    (tmp_path / "a.apk").write_bytes(b"PK")
    assert phone.shell("whoami") == "shell\n"
    for words, error in ((("root",), "closed"), (("install", str(tmp_path / "a.apk")), "pm install is not offered")):
        done = phone.run(*words)
        assert done.returncode != 0
        assert error in (done.stderr + done.stdout).decode()
    assert phone.run("emu", "gsm", "call", "1").returncode != 0
