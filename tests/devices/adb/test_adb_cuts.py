"""The connection is cut at random moments: no action runs twice, and no action counted as done is missing."""

import json
import socket
import subprocess
import time
from functools import partial

import adbutils
import numpy as np
import pytest
from helpers.phones.adb_servers import MISSING, PROGRAMS, AdbServer
from helpers.phones.cutting_proxy import CuttingProxy

from vlm_agent.devices.adb import discovery, link, task_set
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.errors import ActionInDoubtError, DeviceLostError, NoDeviceError, RefusedError
from vlm_agent.devices.task_sets import read_task_set
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer

STEPS = {"debian": 500, "adbutils": 100}
PACKETS_TO_A_CUT = 100
"""A step with its screenshots takes about 25 packets in both directions."""


@pytest.mark.parametrize("program", STEPS)
def test_500_steps_over_a_breaking_cable_resume_and_do_nothing_twice(program, use_adb):
    use_adb(program)
    handset = Handset(SimulatedPhone(7, (100, 64)))
    actions = [Action.type_text(f"step {number}") for number in range(STEPS[program])]
    acknowledged, in_doubt = [], []
    with PhoneServer(handset) as server, CuttingProxy(server.port, PACKETS_TO_A_CUT) as cable:
        phone = AdbPhone(cable.serial, settle_interval=0.0)
        for action in actions:
            screen = phone.screenshot()
            np.testing.assert_array_equal(screen, handset.phone.screenshot())
            try:
                phone.perform(action)
                acknowledged.append(action)
            except ActionInDoubtError as error:
                assert "it is unknown" in str(error)
                in_doubt.append(action)
        phone.close()
    done = list(handset.actions)
    assert len(done) == len(set(done)), "an action was done twice"
    assert [action for action in done if action not in in_doubt] == acknowledged
    assert len(acknowledged) + len(in_doubt) == len(actions)
    assert set(done) <= set(actions)
    assert len(in_doubt) <= cable.cuts
    assert cable.cuts > 3, "the cable has held: the test shows nothing"


def test_an_unacknowledged_action_is_in_doubt_and_not_repeated(one_adb):
    """The worst moment: the phone performed the action, and its acknowledgement is lost."""
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server, CuttingProxy(server.port, None) as cable:
        phone = AdbPhone(cable.serial, settle_interval=0.0, patience=0.2)
        phone.screenshot()
        perform = handset.perform
        handset.perform = lambda action: (perform(action), cable.unplug())
        with pytest.raises(ActionInDoubtError, match="input tap"):
            phone.perform(Action.tap(0.5, 0.5))
        assert list(handset.actions) == [Action.tap(*pixel_middle(handset.phone, 0.5, 0.5))]
        with pytest.raises(DeviceLostError, match="No action was in progress"), phone:
            phone.screenshot()
    assert len(handset.actions) == 1


def test_a_reset_of_a_task_is_not_repeated_either(one_adb, tmp_path, monkeypatch):
    monkeypatch.setattr(task_set, "AdbPhone", partial(AdbPhone, settle_interval=0.0, patience=0.2))
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server, CuttingProxy(server.port, None) as cable:
        goal = {"goal": "Go home", "reset": [["input", "text", "abc"]], "judge": ["pm", "path", "org.chess"]}
        path = tmp_path / "goals.yaml"
        path.write_text(json.dumps({"task_set": "adb", "serial": cable.serial, "goals": [goal]}))
        (task,) = read_task_set(str(path)).tasks(1, 0, "test")
        perform = handset.perform
        handset.perform = lambda action: (perform(action), cable.unplug())
        with pytest.raises(DeviceLostError, match="was cut during the reset; run the same command again"), task.open():
            pass
    assert list(handset.actions) == [Action.type_text("abc")]


def test_a_reset_without_output_is_not_called_a_cut_connection(one_adb, tmp_path, monkeypatch):
    """The same command again would end in the same way."""
    monkeypatch.setattr(task_set, "AdbPhone", partial(AdbPhone, settle_interval=0.0, patience=0.2))
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server:
        goal = {"goal": "Go home", "reset": [["input", "text", "abc"]], "judge": ["pm", "path", "org.chess"]}
        path = tmp_path / "goals.yaml"
        path.write_text(json.dumps({"task_set": "adb", "serial": server.serial, "goals": [goal]}))
        (task,) = read_task_set(str(path)).tasks(1, 0, "test")
        monkeypatch.setattr(link, "ANSWER_SECONDS", 0.2)
        monkeypatch.setattr(link, "CHARACTERS_PER_SECOND", 40)
        handset.perform = lambda action: time.sleep(1.2)
        with pytest.raises(RefusedError, match=r"goals/1, reset: `input` gave no output .* let it print"), task.open():
            pass


def test_a_stream_whose_connection_breaks_at_its_start_is_opened_again(one_adb, served, monkeypatch):
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        usual, broken = phone._link._transport, [True]

        def transport() -> adbutils.AdbConnection:
            connection = usual()
            if broken:
                broken.pop()
                connection.conn.shutdown(socket.SHUT_RDWR)
            return connection

        monkeypatch.setattr(phone._link, "_transport", transport)
        with phone.stream("getevent", "-lt") as pieces:
            while not served.handset.listeners:
                time.sleep(0.01)
            served.handset.perform(Action.press("home"))
            assert b"KEY_HOME" in next(pieces)
    assert not broken


def pixel_middle(phone: SimulatedPhone, *point_yx: float) -> tuple[float, ...]:
    return tuple((int(part * side) + 0.5) / side for part, side in zip(point_yx, phone.size, strict=True))


def test_an_action_on_a_disconnected_phone_is_not_sent_and_not_in_doubt(one_adb):
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server:
        phone = AdbPhone(server.serial, settle_interval=0.0, patience=0.2)
        phone.screenshot()
    one_adb.run("disconnect", server.serial)
    with pytest.raises(DeviceLostError, match=server.serial):
        phone.perform(Action.tap(0.5, 0.5))
    assert not handset.actions


def test_a_reconnected_phone_remains_usable(one_adb):
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server:
        phone = AdbPhone(server.serial, settle_interval=0.0)
        before = phone.screenshot()
    with PhoneServer(handset, server.port):
        np.testing.assert_array_equal(phone.screenshot(), before)
        phone.perform(Action.press("home"))
        phone.close()
    assert list(handset.actions) == [Action.press("home")]


@pytest.mark.parametrize(
    "error", [EOFError("Expected 5 bytes, got 0"), subprocess.TimeoutExpired("adb start-server", 20)]
)
def test_adbs_server_that_breaks_off_or_does_not_start_in_time_is_a_broken_connection(
    one_adb, served, monkeypatch, error
):
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        usual, errors = phone._link._client.make_connection, [error]
        monkeypatch.setattr(
            phone._link._client, "make_connection", lambda *_, **__: _raise(errors.pop()) if errors else usual()
        )
        phone.screenshot()
        assert not errors
        phone.perform(Action.press("home"))
        errors.append(error)
        assert phone._link._is_our_connection
        phone._link.close()
        assert not errors
    monkeypatch.setattr(discovery, "states", lambda _: _raise(error))
    with pytest.raises(NoDeviceError, match=f"{served.serial} cannot be connected to; adb says: .*{str(error)[-8:]}"):
        AdbPhone(served.serial)


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.skipif(PROGRAMS["debian"] is None, reason=MISSING)
def test_adbs_server_is_restarted_after_it_died(served, tmp_path, monkeypatch):
    server = AdbServer(PROGRAMS["debian"], tmp_path)
    for name in ("ADBUTILS_ADB_PATH", "ANDROID_ADB_SERVER_PORT", "HOME"):
        monkeypatch.setenv(name, server.environment[name])
    with server:
        phone = AdbPhone(served.serial, settle_interval=0.0)
    try:
        phone.screenshot()
        phone.close()
    finally:
        server.run("kill-server")
