"""A phone over the real adb client whose touches are watched with `getevent`."""

import queue
import time
from contextlib import contextmanager
from unittest.mock import Mock

import pytest
from helpers.phones.adb_servers import AdbServer

from vlm_agent.devices.acting.demonstrating.lines import lines_of
from vlm_agent.devices.acting.demonstrating.touched import TouchRecorder
from vlm_agent.devices.adb.fingers import LOST
from vlm_agent.devices.adb.getevent import TouchEvent
from vlm_agent.devices.errors import DeviceError, DeviceLostError
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer


@pytest.fixture
def adb(one_adb):
    return one_adb


def tick_until(recorder: TouchRecorder, condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        recorder.tick()
        time.sleep(0.02)


def tick_until_listening(handset: Handset, clients: int) -> None:
    end = time.monotonic() + 30
    while len(handset.listeners) != clients:
        assert time.monotonic() < end
        time.sleep(0.01)


class Person:
    """Touches the phone, each time after "ready"."""

    def __init__(self, adb: AdbServer, handset: Handset, serial: str) -> None:
        self.adb, self.handset, self.serial = adb, handset, serial
        self.ready: queue.SimpleQueue[int] = queue.SimpleQueue()

    def shell(self, line: str) -> None:
        self.adb.run("-s", self.serial, "shell", line)

    def does(self, recorder: TouchRecorder, action: Action) -> None:
        tick_until(recorder, lambda: not self.ready.empty())
        self.ready.get()
        with self.handset.lock:
            height, width = self.handset.phone.size
        (y, x), (lift_y, lift_x) = action.touch_yx, action.lift_yx
        if action.is_tap:
            self.shell(f"input tap {int(x * width)} {int(y * height)}")
        elif action.is_swipe:
            places = (x * width, y * height, lift_x * width, lift_y * height)
            self.shell(f"input swipe {' '.join(str(int(value)) for value in places)} 300")
        else:
            self.shell(f"input keyevent {action.name.upper()}")


@pytest.mark.slow
def test_a_person_on_a_phone_over_adb_becomes_words(adb):
    task = sample_task("google_apps", "test", 3)
    expert, phone = SimulatedPhone(task.seed), SimulatedPhone(task.seed)
    task.set_up(expert)
    task.set_up(phone)
    actions = [step.action for step in task.solve(expert, pixels=False)][:-1]
    with PhoneServer(Handset(phone)) as server:
        person = Person(adb, server.handset, server.serial)
        with TouchRecorder(server.serial, person.ready.put) as recorder:
            for action in [Action.press("back"), *actions]:
                person.does(recorder, action)
            tick_until(recorder, lambda: not person.ready.empty())
            found = lines_of(recorder.stop())
    assert task.reached(phone)
    assert found.lines == (
        "press back",
        "swipe up",
        "swipe left",
        "tap 'settings'",
        "swipe up 2 times",
        "tap 'Screen lock'",
    )
    assert found.unread == 0


def test_a_touch_before_the_screen_is_read_is_a_point_and_the_next_one_has_its_screen(adb):
    phone = SimulatedPhone(7)
    with PhoneServer(Handset(phone)) as server:
        person = Person(adb, server.handset, server.serial)
        with TouchRecorder(server.serial, person.ready.put) as recorder:
            tick_until_listening(server.handset, 1)
            person.shell("input tap 10 200")
            while recorder._events.empty():
                time.sleep(0.01)
            tick_until(recorder, lambda: len(recorder._observed.actions) == 1 and not person.ready.empty())
            person.shell("input keyevent HOME")
            tick_until(recorder, lambda: len(recorder._observed.actions) == 2)
            observed = recorder.stop()
    assert [one.screen is None for one in observed.actions] == [True, False]
    assert lines_of(observed).lines[1] == "press home"


def test_a_touch_after_one_whose_lift_was_lost_is_not_named_by_the_screen_of_the_first(adb):
    taps = [("ABS_MT_TRACKING_ID", 1), ("ABS_MT_POSITION_X", 10), ("ABS_MT_POSITION_Y", 200), ("SYN_REPORT", 0)]
    taps += [("ABS_MT_TRACKING_ID", 2), ("SYN_REPORT", 0), ("ABS_MT_TRACKING_ID", -1), ("SYN_REPORT", 0)]
    with PhoneServer(Handset(SimulatedPhone(7))) as server:
        person = Person(adb, server.handset, server.serial)
        with TouchRecorder(server.serial, person.ready.put) as recorder:
            tick_until(recorder, lambda: not person.ready.empty())
            for code, value in taps:
                kind = "EV_SYN" if code == "SYN_REPORT" else "EV_ABS"
                recorder._events.put(TouchEvent(1.0, next(iter(recorder._fingers)), kind, code, value))
            observed = recorder.stop()
    assert [one.screen for one in observed.actions] == [None]
    assert observed.left_out == {LOST: 1}


@contextmanager
def after_a_tap(adb: AdbServer):
    """A recorder that has taken one tap, and the phone."""
    with PhoneServer(Handset(SimulatedPhone(7))) as server:
        person = Person(adb, server.handset, server.serial)
        with TouchRecorder(server.serial, person.ready.put) as recorder:
            tick_until_listening(server.handset, 1)
            person.does(recorder, Action.tap(0.5, 0.5))
            tick_until(recorder, lambda: len(recorder._observed.actions) == 1)
            yield recorder, server.handset


def end_screenshots_by(error, recorder, monkeypatch):
    """The screen is to be read again, and reading it raises `error`."""
    recorder._screen = None
    monkeypatch.setattr(recorder._phone, "screenshot", Mock(side_effect=error))


def test_a_screen_that_goes_off_ends_no_recording(adb):
    with after_a_tap(adb) as (recorder, handset):
        recorder._screen, handset.is_awake = None, False
        recorder.tick()
        observed = recorder.stop()
    assert len(observed.actions) == 1
    assert observed.last is None


def test_ctrl_c_while_the_last_screen_is_read_keeps_the_recording(adb, monkeypatch):
    with after_a_tap(adb) as (recorder, _):
        end_screenshots_by(KeyboardInterrupt(), recorder, monkeypatch)
        observed = recorder.stop()
    assert len(observed.actions) == 1


def test_a_phone_that_is_unplugged_while_the_last_screen_is_read_keeps_the_recording(adb, monkeypatch):
    with after_a_tap(adb) as (recorder, _):
        end_screenshots_by(DeviceLostError("gone"), recorder, monkeypatch)
        with pytest.raises(DeviceLostError):
            recorder.tick()
        observed = recorder.stop()
    assert len(observed.actions) == 1
    assert observed.last is None


def test_a_window_that_forbids_pictures_ends_no_recording_unless_it_is_the_first(adb, monkeypatch):
    with after_a_tap(adb) as (recorder, _):
        end_screenshots_by(DeviceError("`screencap -p` returned no picture"), recorder, monkeypatch)
        recorder.tick()
        assert len(recorder.stop().actions) == 1
        recorder._read_at = float("-inf")
        with pytest.raises(DeviceError, match="no picture"):
            recorder.tick()


def test_a_phone_that_is_lost_is_an_error_in_one_line(adb):
    with PhoneServer(Handset(SimulatedPhone(7))) as server, TouchRecorder(server.serial) as recorder:
        adb.run("disconnect", server.serial)
        with pytest.raises(DeviceLostError, match=r"getevent -lt.* stopped .*check its connection"):
            tick_until(recorder, lambda: False)


def test_a_phone_without_a_touch_screen_is_refused(adb, monkeypatch):
    monkeypatch.setattr("vlm_agent.simulator.adb_daemon.shell.tools.screen.listing", lambda _: "add device 1: /dev/x")
    with (
        PhoneServer(Handset(SimulatedPhone(7))) as server,
        pytest.raises(DeviceError, match="lists no touch screen"),
        TouchRecorder(server.serial),
    ):
        pass


def test_events_reach_two_clients_and_end_with_them(adb):
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server:
        with TouchRecorder(server.serial) as first, TouchRecorder(server.serial) as second:
            tick_until_listening(handset, 2)
            handset.perform(Action.press("home"))
            for recorder in (first, second):
                tick_until(recorder, lambda recorder=recorder: len(recorder._observed.actions) == 1)
        tick_until_listening(handset, 0)
