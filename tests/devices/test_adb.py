"""A phone over ADB is a Device as the simulated one itself is: the same screens, the same effects."""

import numpy as np
import pytest

from vlm_agent.devices.adb import AdbPhone
from vlm_agent.devices.adb_daemon import Handset, PhoneServer
from vlm_agent.devices.adb_daemon.handset import UNICODE_KEYBOARD, USUAL_KEYBOARD
from vlm_agent.devices.adb_daemon.shell import refused
from vlm_agent.devices.adb_words import command_line, type_by_keys
from vlm_agent.devices.errors import RefusedError, UntypableTextError
from vlm_agent.devices.simulated_phone import SimulatedPhone, sample_task
from vlm_agent.episodes import SUBSETS, Action

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


def test_the_only_phone_need_not_be_named(one_adb, served):
    one_adb.run("connect", served.serial)
    with AdbPhone(**QUICK) as phone:
        assert phone.serial == served.serial
    assert served.serial.encode() in one_adb.run("devices").stdout


def test_a_phone_that_was_connected_to_is_disconnected_again(one_adb, served):
    with AdbPhone(served.serial, **QUICK):
        assert served.serial.encode() in one_adb.run("devices").stdout
    assert served.serial.encode() not in one_adb.run("devices").stdout


def test_a_status_action_sends_nothing(phone, served):
    sent = len(served.handset.commands)
    phone.perform(Action.impossible())
    assert phone.status == Action.impossible().kind
    assert len(served.handset.commands) == sent


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
        assert list(handset.performed) == [Action.type_text('it\'s 100% "ok"; rm -r /')]
        sent = len(handset.commands)
        for text in ("é", "a\nb", "a\0b", "tab\t"):
            with pytest.raises(UntypableTextError, match="ADBKeyBoard"):
                phone.perform(Action.type_text(text))
        assert len(handset.commands) == sent


@pytest.mark.parametrize("text", ["%s", "a%sb %s", "%%s", "%", "% s", "%s%s", " ", "100 %", "%%"])
def test_what_input_text_takes_for_a_blank_is_typed_as_it_stands(one_adb, text):
    handset = Handset(SimulatedPhone(7), keyboards=(USUAL_KEYBOARD,))
    with PhoneServer(handset) as server, AdbPhone(server.serial, **QUICK) as phone:
        phone.perform(Action.type_text(text))
    assert "".join(action.text for action in handset.performed) == text


def test_typing_nothing_sends_nothing(phone, served):
    sent = len(served.handset.commands)
    phone.perform(Action.type_text(""))
    assert len(served.handset.commands) == sent


def test_text_longer_than_a_request_to_adb_is_refused_before_anything_is_sent(phone, served):
    phone.perform(Action.type_text("ñ" * 20_000))
    assert served.handset.performed[-1].text == "ñ" * 20_000
    sent = len(served.handset.commands)
    with pytest.raises(UntypableTextError, match="50,000"):
        phone.perform(Action.type_text("ñ" * 50_000))
    with pytest.raises(UntypableTextError, match="65,000"):
        type_by_keys("'" * 20_000)
    assert len(served.handset.commands) == sent


def test_a_zero_byte_never_gets_into_a_line():
    with pytest.raises(ValueError, match="zero byte"):
        command_line(("input", "text", "a\0b"))


@pytest.mark.parametrize("status", [0, 255])
def test_what_the_phone_refuses_is_an_error_with_its_words(phone, served, status):
    """Some phones report it as an exception and yet with status 0."""
    phone.screenshot()
    served._shell._commands["input"] = lambda _: refused("java.lang.SecurityException: INJECT_EVENTS", status)
    with pytest.raises(RefusedError, match="INJECT_EVENTS"):
        phone.perform(Action.tap(0.5, 0.5))


class Changing:
    """A phone whose screen changes by itself in the first `times` pictures of it."""

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
