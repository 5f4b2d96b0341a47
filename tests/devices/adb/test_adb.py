"""A phone over ADB is a Device with the same screens and effects as the simulated phone that it serves."""

import re
from itertools import product

import numpy as np
import pytest

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.devices.adb import phone as adb_phone
from vlm_agent.devices.adb.apps import find_component, read_components
from vlm_agent.devices.adb.keyboard import type_by_keys
from vlm_agent.devices.adb.link import command_line
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.devices.errors import RefusedError, UnknownAppError, UntypableTextError
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.handset import USUAL_KEYBOARD
from vlm_agent.simulator.adb_daemon.shell.session import Result, failure

SIZE = (400, 190)
QUICK = {"settle_interval": 0.0, "patience": 5.0}


@pytest.fixture
def phone(one_adb, served):
    with AdbPhone(served.serial, **QUICK) as phone:
        yield phone


def served_task(seed: int):
    task = sample_task(SUBSETS[seed % 5], "train", seed)
    phone = SimulatedPhone(task.seed, SIZE)
    task.set_up(phone)
    return task, phone


def test_the_experts_actions_reach_their_goals_and_show_the_same_screens(adb):
    kinds = set()
    for seed in range(5):
        task, twin = served_task(seed)
        steps = task.solve(twin)
        handset = Handset(served_task(seed)[1])
        with PhoneServer(handset) as server, AdbPhone(server.serial, **QUICK) as phone:
            for step in steps:
                np.testing.assert_array_equal(phone.screenshot(), step.screenshot)
                assert phone.activity == step.activity
                phone.perform(step.action)
                kinds.add(step.action.name)
            assert phone.size == SIZE
            assert phone.status == steps[-1].action.kind
        assert task.reached(handset.phone), task.goal
    assert {"tap", "swipe", "type", "complete"} <= kinds


def test_the_only_connected_phone_is_the_default(one_adb, served):
    one_adb.run("connect", served.serial)
    with AdbPhone(**QUICK) as phone:
        assert phone.serial == served.serial
    assert served.serial.encode() in one_adb.run("devices").stdout


def test_closing_disconnects_from_the_phone(one_adb, served):
    with AdbPhone(served.serial, **QUICK):
        assert served.serial.encode() in one_adb.run("devices").stdout
    assert served.serial.encode() not in one_adb.run("devices").stdout


def test_a_status_action_sends_nothing(phone, served):
    sent = len(served.handset.commands)
    phone.perform(Action.impossible())
    assert phone.status == Action.impossible().kind
    assert len(served.handset.commands) == sent


def test_actions_that_aitw_lacks_reach_the_phone(phone, served):
    phone.perform(Action.long_press(0.5, 0.25))
    phone.perform(Action.open_app("mail"))
    assert served.handset.phone.front == "Mail"
    phone.perform(Action.recents())
    phone.screenshot()
    assert phone.activity == "org.launcher/.Recents"
    height, width = served.handset.phone.size
    point = ((height // 2 + 0.5) / height, (width // 4 + 0.5) / width)
    assert list(served.handset.actions) == [Action.long_press(*point), Action.open_app("Mail"), Action.recents()]


def test_an_answer_is_recorded_and_waiting_sleeps_and_neither_sends_anything(phone, served, monkeypatch):
    slept = []
    monkeypatch.setattr(adb_phone.time, "sleep", slept.append)
    sent = len(served.handset.commands)
    phone.perform(Action.wait())
    phone.perform(Action.answer("42 euros"))
    assert slept == [adb_phone.WAIT_SECONDS]
    assert (phone.answer, phone.status) == ("42 euros", None)
    assert len(served.handset.commands) == sent


@pytest.mark.parametrize("name", ["No Such App", "", "mail; reboot", "$(reboot)", "org.mail/.Home -n x", "'"])
def test_an_app_that_the_phone_lacks_is_refused_and_its_name_never_sent(phone, served, name):
    with pytest.raises(UnknownAppError, match=r"of its 32 apps the nearest are (org\.\w+, ){4}org\.\w+$"):
        phone.perform(Action.open_app(name))
    assert not served.handset.actions
    assert not any(words[0] in ("am", "reboot") for words in served.handset.commands)


COMPONENTS = (
    "com.android.chrome/com.google.android.apps.chrome.Main",
    "com.android.settings/.Settings",
    "com.google.android.deskclock/com.android.deskclock.DeskClock",
    "com.google.android.gm/.ConversationListActivityGmail",
    "com.google.android.youtube/.app.honeycomb.Shell$HomeActivity",
    "com.google.android.apps.youtube.music/.activities.MusicActivity",
    "org.one.player/.Main",
    "org.two.player/.Main",
)
UNLIKE_THEIR_NAME = (
    "com.samsung.android.dialer/.Main",
    "com.samsung.android.messaging/.Main",
    "com.google.android.apps.messaging/.Main",
    "com.google.android.apps.docs/.Main",
    "com.google.android.apps.docs.editors.docs/.Main",
    "com.facebook.katana/.Main",
    "com.facebook.orca/.Main",
    "com.google.android.googlequicksearchbox/.Main",
)
"""Activities of apps whose package does not identify their name."""


def test_the_list_of_launcher_activities_is_read_as_android_prints_it():
    lines = (f"  priority=0 preferredOrder=0 match=0x108000 isDefault=false\n  {one}\n" for one in COMPONENTS)
    assert read_components("8 activities found:\n" + "".join(lines)) == COMPONENTS


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("Chrome", "com.android.chrome"),
        ("Google Chrome", "com.android.chrome"),
        ("settings", "com.android.settings"),
        ("Clock", "com.google.android.deskclock"),
        ("Gmail", "com.google.android.gm"),
        ("YouTube", "com.google.android.youtube"),
        ("YouTube Music", "com.google.android.apps.youtube.music"),
        ("org.two.player", "org.two.player"),
        ("Phone", "com.samsung.android.dialer"),
        ("Messages", "com.google.android.apps.messaging"),
        ("Google Docs", "com.google.android.apps.docs.editors.docs"),
        ("Drive", "com.google.android.apps.docs"),
        ("Facebook", "com.facebook.katana"),
        ("Messenger", "com.facebook.orca"),
        ("Google", "com.google.android.googlequicksearchbox"),
    ],
)
def test_an_app_is_found_by_its_name_or_package(name, package):
    assert find_component(name, (*COMPONENTS, *UNLIKE_THEIR_NAME)).partition("/")[0] == package


def test_an_unknown_name_is_answered_with_the_nearest_apps():
    with pytest.raises(UnknownAppError, match=r"'Gmial'; of its 8 apps the nearest are .*com\.google\.android\.gm"):
        find_component("Gmial", COMPONENTS)


@pytest.mark.parametrize("name", ["Pay", "X", "Note"])
def test_a_short_name_that_ends_another_apps_package_opens_nothing(name):
    others = ("com.samsung.android.spay/.Main", "org.mozilla.firefox/.App", "com.microsoft.office.onenote/.Main")
    with pytest.raises(UnknownAppError, match=f"no app on the phone has the name '{name}'"):
        find_component(name, others)


def test_a_phone_that_lists_no_app_is_a_fault_of_the_phone():
    with pytest.raises(RefusedError, match="lists no app"):
        find_component("Chrome", ())


def test_a_name_of_two_apps_is_refused_with_both():
    with pytest.raises(UnknownAppError, match=r"several apps.*org\.one\.player, org\.two\.player"):
        find_component("Player", COMPONENTS)


def test_corners_are_pixels_of_the_screen(phone, served):
    height, width = phone.screenshot().shape[:2]
    for corner in ((0.0, 0.0), (1.0, 1.0)):
        phone.perform(Action.tap(*corner))
    taps = [words[2:] for words in served.handset.commands if words[:2] == ("input", "tap")]
    assert taps == [("0", "0"), (str(width - 1), str(height - 1))]


def test_the_keyboard_is_adbkeyboard_until_the_phone_is_closed(one_adb, served):
    with AdbPhone(served.serial, **QUICK):
        assert served.handset.keyboard == UNICODE_KEYBOARD
    assert served.handset.keyboard == USUAL_KEYBOARD


def test_without_adbkeyboard_plain_text_is_typed_and_other_text_refused_before_anything_is_sent(one_adb):
    handset = Handset(SimulatedPhone(7), keyboards=(USUAL_KEYBOARD,))
    with PhoneServer(handset) as server, AdbPhone(server.serial, **QUICK) as phone:
        phone.perform(Action.type_text('it\'s 100% "ok"; rm -r /'))
        assert list(handset.actions) == [Action.type_text('it\'s 100% "ok"; rm -r /')]
        sent = len(handset.commands)
        for text in ("é", "a\nb", "a\0b", "tab\t"):
            with pytest.raises(UntypableTextError, match="ADBKeyBoard"):
                phone.perform(Action.type_text(text))
        assert len(handset.commands) == sent


@pytest.mark.parametrize("text", ["%s", "a%sb %s", "%%s", "%", "% s", "%s%s", " ", "100 %", "%%"])
def test_a_literal_percent_s_is_typed_unchanged(one_adb, text):
    handset = Handset(SimulatedPhone(7), keyboards=(USUAL_KEYBOARD,))
    with PhoneServer(handset) as server, AdbPhone(server.serial, **QUICK) as phone:
        phone.perform(Action.type_text(text))
    assert "".join(action.text for action in handset.actions) == text


def test_typing_nothing_sends_nothing(phone, served):
    sent = len(served.handset.commands)
    phone.perform(Action.type_text(""))
    assert len(served.handset.commands) == sent


def test_text_longer_than_a_request_to_adb_is_refused_before_anything_is_sent(phone, served):
    phone.perform(Action.type_text("ñ" * 20_000))
    assert served.handset.actions[-1].text == "ñ" * 20_000
    sent = len(served.handset.commands)
    with pytest.raises(UntypableTextError, match="50,000"):
        phone.perform(Action.type_text("ñ" * 50_000))
    with pytest.raises(UntypableTextError, match="65,000"):
        type_by_keys("'" * 20_000)
    assert len(served.handset.commands) == sent


def test_a_zero_byte_in_a_command_is_refused():
    with pytest.raises(ValueError, match="zero byte"):
        command_line(("input", "text", "a\0b"))


@pytest.mark.parametrize("status", [0, 255])
def test_a_failure_on_the_phone_is_an_error_with_its_output(phone, served, status):
    """Some phones report a failure as an exception with status 0."""
    phone.screenshot()
    served._shell._commands["input"] = lambda _: failure("java.lang.SecurityException: INJECT_EVENTS", status)
    with pytest.raises(RefusedError, match=r"INJECT_EVENTS; .*USB debugging \(Security settings\)"):
        phone.perform(Action.tap(0.5, 0.5))


INPUTS = [
    Action.tap(0.5, 0.5),
    Action.long_press(0.5, 0.5),
    Action.swipe((0.8, 0.5), (0.2, 0.5)),
    Action.press("back"),
    Action.press("home"),
    Action.press("enter"),
    Action.recents(),
]


COMPLAINTS = (
    "Error: Permission denied",
    "Error: Invalid arguments for command: tap",
    "java.lang.SecurityException: Injecting to another application requires INJECT_EVENTS permission",
    "Usage: input [<source>] [-d DISPLAY_ID] <command> [<arg>...]",
    "Killed",
    "/system/bin/input: Operation not permitted",
)


def test_no_input_is_done_of_which_the_phone_prints_anything(phone, served):
    phone.screenshot()
    for action, stream, line in product(INPUTS, ("out", "err"), COMPLAINTS):
        served._shell._commands["input"] = lambda _, stream=stream, line=line: Result(**{stream: f"{line}\n".encode()})
        with pytest.raises(RefusedError, match=re.escape(line)):
            phone.perform(action)


@pytest.mark.parametrize(
    "note",
    [
        "WARNING: linker: libhook.so: unsupported flags DT_FLAGS_1=0x8",
        "[Warning] deprecated",
        "cutils-trace: Error opening trace file: Permission denied (13)",
    ],
)
def test_a_note_that_android_prints_anyway_is_no_failure(phone, served, note):
    usual = {name: served._shell._commands[name] for name in ("input", "am")}
    for name, run in usual.items():
        served._shell._commands[name] = lambda call, run=run: Result(run(call).out, f"{note}\n".encode())
    phone.perform(Action.tap(0.5, 0.5))
    phone.perform(Action.type_text("ñ"))
    phone.perform(Action.open_app("Clock"))
    assert [action.name for action in served.handset.actions] == ["tap", "type", "open_app"]


INTENT = "Starting: Intent { act=android.intent.action.MAIN cmp=com.some.errors/.ErrorLogActivity }"
NOT_STARTED = [
    "Error type 3\nError: Activity class {org.clock/.Home} does not exist.",
    "Error: Activity not started, you do not have permission to access it.",
    "Error: Activity not started, unable to resolve Intent { }",
    "Error: Not allowed to start background user activity that shouldn't be displayed for all users.",
    "Warning: Activity not started because the  current activity is being kept for the user.",
    "Warning: Activity not started because intent should be handled by the caller",
    "java.lang.SecurityException: Permission Denial: starting Intent { } from null (pid=1, uid=2000) not exported",
    "Exception occurred while executing 'start':",
]
STARTED_ALL_THE_SAME = [
    "",
    "Warning: Activity not started, its current task has been brought to the front",
    "Warning: Activity not started, intent has been delivered to currently running top-most instance.",
    "WARNING: linker: libhook.so: unsupported flags",
]


@pytest.mark.parametrize("stream", ["out", "err"])
@pytest.mark.parametrize("reply", NOT_STARTED)
def test_an_app_that_does_not_start_is_refused_with_the_reason(phone, served, stream, reply):
    written = {"out": f"{INTENT}\n".encode()}
    written[stream] = written.get(stream, b"") + f"{reply}\n".encode()
    served._shell._commands["am"] = lambda _: Result(**written)
    with pytest.raises(RefusedError, match=re.escape(reply.splitlines()[0])):
        phone.perform(Action.open_app("Clock"))


@pytest.mark.parametrize("stream", ["out", "err"])
@pytest.mark.parametrize("reply", STARTED_ALL_THE_SAME)
def test_an_app_that_was_running_is_opened(phone, served, stream, reply):
    written = {"out": f"{INTENT}\n".encode()}
    written[stream] = written.get(stream, b"") + f"{reply}\n".encode()
    served._shell._commands["am"] = lambda _: Result(**written)
    phone.perform(Action.open_app("Clock"))


def test_an_app_is_not_open_of_which_the_phone_says_nothing(phone, served):
    served._shell._commands["am"] = lambda _: Result()
    with pytest.raises(RefusedError, match="`am start` with status 0: no output"):
        phone.perform(Action.open_app("Clock"))


def test_a_typed_text_is_not_in_the_message_of_a_failure(phone, served):
    phone.screenshot()
    served._shell._commands["am"] = lambda _: failure("java.lang.SecurityException: denied", 255)
    with pytest.raises(RefusedError) as refused:
        phone.perform(Action.type_text("correct horse"))
    assert str(refused.value) == (
        "the phone failed at `am broadcast` with status 255: java.lang.SecurityException: denied"
    )


class Changing:
    """A phone whose screen changes by itself during its first `times` screenshots."""

    def __init__(self, phone: SimulatedPhone, times: int):
        self.taken, self._times, self._take = 0, times, phone.screenshot
        phone.screenshot = self.screenshot

    def screenshot(self) -> np.ndarray:
        pixels = self._take()
        pixels[0, 0] = min(self.taken, self._times)
        self.taken += 1
        return pixels


def test_the_screen_is_taken_when_it_has_stopped_changing(phone, served):
    changing = Changing(served.handset.phone, 4)
    assert phone.screenshot()[0, 0].tolist() == [4, 4, 4]
    assert changing.taken == 6


def test_a_screen_that_never_stops_is_taken_at_the_limit(one_adb, served):
    changing = Changing(served.handset.phone, 255)
    with AdbPhone(served.serial, settle_interval=0.0, settle_limit=0.0) as phone:
        phone.screenshot()
    assert changing.taken == 2
