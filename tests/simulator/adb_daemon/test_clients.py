"""Other programs operate the simulated phone: `adb` of Debian and of adbutils, and the API of adbutils."""

import base64
import io

import adbutils
import numpy as np
import pytest
from PIL import Image

from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer


@pytest.fixture
def client(adb, served):
    """Runs the program `adb` on the phone and returns its standard output."""
    adb.run("connect", served.serial)
    yield lambda *arguments: adb.run("-s", served.serial, *arguments).stdout
    adb.run("disconnect", served.serial)


@pytest.fixture
def device(adb, served):
    """The device of adbutils, over the server of each program."""
    api = adbutils.AdbClient()
    api.connect(served.serial)
    yield api.device(served.serial)
    api.disconnect(served.serial)


def pixels(png: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(png)))


def test_it_is_listed_with_its_name(client):
    assert b"product:simulated_phone model:Simulated_Phone device:simulated_phone" in client("devices", "-l")
    assert client("shell", "getprop", "ro.product.model") == b"Simulated Phone\n"


def test_screencap_returns_the_exact_pixels(client, served, tmp_path):
    screen = served.handset.phone.screenshot()
    np.testing.assert_array_equal(pixels(client("exec-out", "screencap", "-p")), screen)
    client("shell", "screencap", "-p", "/sdcard/screen.png")
    client("pull", "/sdcard/screen.png", str(tmp_path))
    np.testing.assert_array_equal(pixels((tmp_path / "screen.png").read_bytes()), screen)


def test_pushed_files_are_pulled_unchanged(client, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(np.random.default_rng(0).bytes(700_001))
    client("push", str(there), "/data/local/tmp/file")
    client("pull", "/data/local/tmp/file", str(back))
    assert back.read_bytes() == there.read_bytes()
    client("shell", "rm", "/data/local/tmp/file")


def test_taps_swipes_text_and_keys_are_performed(client, served):
    height, width = served.handset.phone.size
    client("shell", "input", "tap", "100", "200")
    client("shell", "input swipe 10 400 20 100 300")
    client("shell", "input text 'a%sb c'; input keyevent KEYCODE_HOME 4 ENTER")
    assert list(served.handset.actions) == [
        Action.tap(200.5 / height, 100.5 / width),
        Action.swipe((400.5 / height, 10.5 / width), (100.5 / height, 20.5 / width)),
        Action.type_text("a b c"),
        *map(Action.press, ("home", "back", "enter")),
    ]


@pytest.mark.parametrize(
    "words",
    ["tap 1", "tap a b", "tap nan 1", "tap inf 1", "tap 9999 1", "tap -1 1", "swipe 1 2 3", "text", "keyevent 999", ""],
)
def test_input_that_android_refuses_has_no_effect(adb, client, served, words):
    result = adb.run("-s", served.serial, "shell", f"input {words}", check=False)
    assert result.returncode != 0
    assert result.stderr.startswith(b"Error: ")
    assert not served.handset.actions


def test_exit_status_stdout_and_stderr_are_separate(adb, client, served):
    result = adb.run("-s", served.serial, "shell", "echo out; nothing", check=False)
    assert (result.returncode, result.stdout) == (127, b"out\n")
    assert b"not found" in result.stderr


def test_an_unquoted_command_runs_and_is_recorded(client, served):
    """Otherwise the tests of quoting could not fail."""
    client("shell", "input text a;echo b")
    assert list(served.handset.commands) == [("input", "text", "a"), ("echo", "b")]


def test_nothing_sets_up_a_task_over_adb_and_apps_open_only_as_the_launcher_opens_them(adb, client, served):
    before = served.handset.phone.screenshot()
    starts = ("am start -n org.shop/.Cart", "am start -n org.absent/.Home", "am start -a android.intent.action.VIEW")
    for line in (
        *starts,
        "monkey -p org.absent 1",
        "monkey -p org.shop 20",
        "cmd activity x",
        "reset",
        "am instrument x",
        "reboot",
    ):
        assert adb.run("-s", served.serial, "shell", line, check=False).returncode != 0
    np.testing.assert_array_equal(served.handset.phone.screenshot(), before)
    assert not served.handset.actions
    client("shell", "am start -n org.shop/.Home")
    assert list(served.handset.actions) == [Action.open_app("Shop")]
    assert served.handset.phone.front == "Shop"


def test_a_swipe_in_place_is_a_long_press_if_it_lasts(client, served):
    height, width = served.handset.phone.size
    client("shell", "input swipe 100 200 100 200 600; input swipe 100 200 100 200 100; input swipe 10 400 20 100 900")
    point = (200.5 / height, 100.5 / width)
    assert list(served.handset.actions) == [
        Action.long_press(*point),
        Action.tap(*point),
        Action.swipe((400.5 / height, 10.5 / width), (100.5 / height, 20.5 / width)),
    ]


def test_adbutils_reads_size_screen_power_and_front(device, served):
    height, width = served.handset.phone.size
    assert device.window_size() == (width, height)
    assert device.rotation() == 0
    assert device.is_screen_on()
    np.testing.assert_array_equal(np.array(device.screenshot()), served.handset.phone.screenshot())
    current = device.app_current()
    assert f"{current.package}/{current.activity}" == served.handset.phone.activity
    assert "org.settings" in device.list_packages()


def test_adbutils_operates_it(device, served):
    height, width = served.handset.phone.size
    device.click(30, 40)
    device.keyevent("HOME")
    device.send_keys("x' y")
    assert list(served.handset.actions) == [
        Action.tap(40.5 / height, 30.5 / width),
        Action.press("home"),
        Action.type_text("x' y"),
    ]
    assert device.shell2("nothing").returncode == 127
    assert device.shell2("echo hi", v2=True).stdout == "hi\n"


def test_adbutils_pushes_lists_and_pulls(device):
    data = bytes(range(256)) * 1000
    assert device.sync.push(data, "/data/local/tmp/a.bin", check=True) == len(data)
    assert [info.path for info in device.sync.list("/data/local/tmp")] == ["a.bin"]
    assert device.sync.read_bytes("/data/local/tmp/a.bin") == data
    assert not device.sync.exists("/data/local/tmp/b.bin")
    with pytest.raises(adbutils.AdbError, match="No such file"):
        device.sync.read_bytes("/data/local/tmp/b.bin")


def test_broadcasts_are_typed_only_while_adbkeyboard_is_the_keyboard(device, served):
    line = f"am broadcast -a ADB_INPUT_B64 --es msg {base64.b64encode('日本 😀'.encode()).decode()}"
    assert "Broadcast completed" in device.shell(line)
    assert not served.handset.actions
    assert UNICODE_KEYBOARD not in device.shell("ime list -s").split()
    device.shell(f"ime enable {UNICODE_KEYBOARD}; ime set {UNICODE_KEYBOARD}")
    assert device.shell("settings get secure default_input_method") == UNICODE_KEYBOARD
    device.shell(line)
    assert list(served.handset.actions) == [Action.type_text("日本 😀")]


@pytest.mark.parametrize("message", ["%%%", "日本", "/////w==", "a"])
def test_a_broadcast_that_is_not_base64_of_a_text_is_an_error(device, served, message):
    device.shell(f"ime enable {UNICODE_KEYBOARD}; ime set {UNICODE_KEYBOARD}")
    answer = device.shell2(f"am broadcast -a ADB_INPUT_B64 --es msg {message}", v2=True)
    assert answer.returncode == 1 and answer.stderr.startswith("Error: ")
    assert not served.handset.actions


def test_a_screen_that_is_off_is_black_and_ignores_touches(device, served):
    before = served.handset.phone.screenshot()
    device.keyevent("SLEEP")
    assert not device.is_screen_on()
    assert not np.array(device.screenshot()).any()
    device.keyevent("HOME")
    device.shell("input swipe 100 400 100 100")
    device.keyevent("WAKEUP")
    np.testing.assert_array_equal(np.array(device.screenshot()), before)


def test_two_phones_are_two_devices(adb, served):
    other = Handset(SimulatedPhone(8))
    with PhoneServer(other) as second:
        for serial in (served.serial, second.serial):
            adb.run("connect", serial)
        adb.run("-s", second.serial, "shell", "input tap 5 5")
        for serial in (served.serial, second.serial):
            adb.run("disconnect", serial)
    assert len(other.actions) == 1
    assert not served.handset.actions
