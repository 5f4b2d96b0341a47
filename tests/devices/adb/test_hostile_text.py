"""Typed text comes from a model and is untrusted: it is typed literally and has no other effect.

The phone's shell would run what bad quoting lets it run, and keeps a record of all that it runs.
"""

import pytest
from helpers.phones.adb_servers import AdbServer
from helpers.phones.hostile_texts import STRINGS, hostile_strings

from vlm_agent.devices.adb.keyboard import type_by_broadcast, type_by_keys
from vlm_agent.devices.adb.link import command_line
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.devices.errors import RefusedError, UntypableTextError
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.handset import USUAL_KEYBOARD
from vlm_agent.simulator.adb_daemon.shell import commands as shell_commands
from vlm_agent.simulator.adb_daemon.shell.session import output

BY_THE_PROGRAM = 50


def phone_with_a_field(keyboards) -> Handset:
    """The search field of the store has the focus, so that typed text is visible."""
    handset = Handset(SimulatedPhone(7), keyboards=keyboards)
    handset.phone.open("Store")
    handset.phone.app("Store").new_search()
    return handset


def typed_into(handset: Handset) -> str:
    phone = handset.phone
    return phone.app("Store").fields[phone.focus]


def test_a_thousand_strings_are_typed_literally_and_run_nothing(one_adb):
    handset = phone_with_a_field((USUAL_KEYBOARD, UNICODE_KEYBOARD))
    with PhoneServer(handset) as server, AdbPhone(server.serial, settle_interval=0.0) as phone:
        for text in hostile_strings():
            handset.commands.clear()
            handset.actions.clear()
            handset.phone.replacing = True
            phone.perform(Action.type_text(text))
            assert list(handset.actions) == ([Action.type_text(text)] if text else [])
            sent = [words for words in handset.commands if words[0] != "settings"]
            assert sent == [tuple(words) for words in type_by_broadcast(text)]
            assert typed_into(handset) == text[:500] or not text
        assert handset.files == {}


def test_a_refused_broadcast_is_an_error_with_the_words_of_the_phone(one_adb, monkeypatch):
    """`am` exits with 0 where the system withholds a broadcast."""
    refusal = "Broadcasting: Intent { act=ADB_INPUT_B64 }\nSecurityException: background execution is not allowed"
    monkeypatch.setitem(shell_commands.TOOLS, "am", lambda *_: output(refusal))
    handset = phone_with_a_field((USUAL_KEYBOARD, UNICODE_KEYBOARD))
    with (
        PhoneServer(handset) as server,
        AdbPhone(server.serial, settle_interval=0.0) as phone,
        pytest.raises(RefusedError, match=r"failed at `am broadcast` .*SecurityException"),
    ):
        phone.perform(Action.type_text("tea"))
    assert not typed_into(handset)


def test_without_adbkeyboard_ascii_is_typed_literally_and_other_text_sends_nothing(one_adb):
    handset = phone_with_a_field((USUAL_KEYBOARD,))
    refused = 0
    with PhoneServer(handset) as server, AdbPhone(server.serial, settle_interval=0.0) as phone:
        for text in hostile_strings():
            handset.commands.clear()
            handset.actions.clear()
            try:
                phone.perform(Action.type_text(text))
            except UntypableTextError:
                refused += 1
                assert not handset.commands
                continue
            assert "".join(action.text for action in handset.actions) == text
            assert all(words[:2] == ("input", "text") and len(words) == 3 for words in handset.commands)
            assert len(handset.commands) == len(handset.actions)
    assert 100 < refused < STRINGS - 200


@pytest.mark.parametrize(
    "keyboards", [(USUAL_KEYBOARD,), (USUAL_KEYBOARD, UNICODE_KEYBOARD)], ids=["keys", "broadcast"]
)
def test_the_adb_program_transmits_them_unchanged(adb: AdbServer, keyboards):
    handset = phone_with_a_field(keyboards)
    handset.keyboard = keyboards[-1]
    commands_for = type_by_broadcast if UNICODE_KEYBOARD in keyboards else type_by_keys
    tried = 0
    with PhoneServer(handset) as server:
        adb.run("connect", server.serial)
        for text in hostile_strings():
            try:
                commands = commands_for(text)
            except UntypableTextError:
                continue
            if tried == BY_THE_PROGRAM // 2:
                break
            if commands:
                tried += 1
                handset.commands.clear()
                handset.actions.clear()
                adb.run("-s", server.serial, "shell", command_line(*commands))
                assert "".join(action.text for action in handset.actions) == text
                assert list(handset.commands) == [tuple(words) for words in commands]
        adb.run("disconnect", server.serial)
    assert tried == BY_THE_PROGRAM // 2


def test_wrong_quoting_would_be_noticed(one_adb):
    handset = phone_with_a_field((USUAL_KEYBOARD,))
    with PhoneServer(handset) as server, AdbPhone(server.serial, settle_interval=0.0) as phone:
        handset.commands.clear()
        phone._link._finish(phone._link._transport(), "input text " + "a;$(input keyevent 3)")
    assert ("input", "keyevent", "3") in handset.commands
