"""A text counts as typed only by a keyboard that the phone says it uses."""

import pytest

from vlm_agent.devices.adb.keyboard import Keyboard
from vlm_agent.devices.adb.link import AdbLink
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.devices.errors import DeviceLostError, NoDeviceError, RefusedError, UntypableTextError
from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon.handset import USUAL_KEYBOARD
from vlm_agent.simulator.adb_daemon.shell.session import Result, failure, output

QUICK = {"settle_interval": 0.0, "patience": 5.0}


def refuse(served, first_words, result):
    """The commands `ime WORD …` fail for these words."""
    usual = served._shell._commands["ime"]
    served._shell._commands["ime"] = lambda call: result if call.words[0] in first_words else usual(call)


@pytest.mark.parametrize("words", [("enable",), ("set",), ("enable", "set")])
@pytest.mark.parametrize(
    "result", [Result(err=b"Unknown input method cannot be enabled for user #0\n"), failure("denied", 255), Result()]
)
def test_a_phone_that_does_not_select_adbkeyboard_types_ascii_and_says_so_once(one_adb, served, caplog, words, result):
    refuse(served, words, result)
    with AdbPhone(served.serial, **QUICK) as phone:
        phone.perform(Action.type_text("hello"))
        assert list(served.handset.actions) == [Action.type_text("hello")]
        with pytest.raises(UntypableTextError, match=r"'ñ' cannot be typed .* enable ADBKeyBoard"):
            phone.perform(Action.type_text("señor"))
        phone.perform(Action.type_text("more"))
    assert served.handset.keyboard == USUAL_KEYBOARD
    assert [text for text in caplog.messages if f"{served.serial} has ADBKeyBoard and does not select it" in text] == (
        caplog.messages
    )
    assert len(caplog.messages) == 1


def test_a_phone_that_does_not_list_its_keyboards_types_ascii(one_adb, served):
    refuse(served, ("list",), failure("java.lang.SecurityException: denied", 255))
    with AdbPhone(served.serial, **QUICK) as phone:
        phone.perform(Action.type_text("hello"))
    assert list(served.handset.actions) == [Action.type_text("hello")]


def test_a_keyboard_that_was_changed_meanwhile_is_selected_again(one_adb, served, caplog):
    with AdbPhone(served.serial, **QUICK) as phone:
        served.handset.keyboard = USUAL_KEYBOARD
        phone.perform(Action.type_text("señor"))
    assert list(served.handset.actions) == [Action.type_text("señor")]
    assert not caplog.messages


def test_a_text_is_not_typed_by_a_keyboard_that_is_gone(one_adb, served, caplog):
    with AdbPhone(served.serial, **QUICK) as phone:
        served.handset.keyboard = USUAL_KEYBOARD
        refuse(served, ("enable", "set"), failure("denied", 255))
        phone.perform(Action.type_text("hello"))
        with pytest.raises(UntypableTextError, match="enable ADBKeyBoard"):
            phone.perform(Action.type_text("señor"))
    assert list(served.handset.actions) == [Action.type_text("hello")]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("reply", ["", "Broadcasting: Intent { act=ADB_INPUT_B64 }", "Error: Permission denied"])
def test_a_broadcast_that_the_phone_does_not_complete_is_refused(one_adb, served, reply):
    with AdbPhone(served.serial, **QUICK) as phone:
        served._shell._commands["am"] = lambda _: output(reply)
        with pytest.raises(RefusedError, match="am broadcast"):
            phone.perform(Action.type_text("hello"))


@pytest.mark.parametrize("before", ["null", "", "org.gone/.Keyboard"])
def test_without_an_earlier_keyboard_the_phones_own_is_reset(one_adb, served, caplog, before):
    served.handset.keyboard = before
    with AdbPhone(served.serial, **QUICK):
        assert served.handset.keyboard == UNICODE_KEYBOARD
    assert served.handset.keyboard == USUAL_KEYBOARD
    assert not caplog.messages


@pytest.mark.parametrize("before", ["null", USUAL_KEYBOARD])
@pytest.mark.parametrize("result", [failure("Unknown command: reset", 255), Result(err=b"Error: no\n"), Result()])
def test_a_keyboard_that_stays_is_named_at_the_end(one_adb, served, caplog, before, result):
    served.handset.keyboard = before
    with AdbPhone(served.serial, **QUICK):
        refuse(served, ("set", "reset"), result)
    (reply,) = caplog.messages
    assert f"ADBKeyBoard may still be the keyboard of {served.serial}" in reply
    assert "shell ime reset" in reply


@pytest.mark.parametrize("error", [DeviceLostError("it went away"), KeyboardInterrupt()])
def test_a_keyboard_is_restored_or_named_although_the_phone_was_never_opened(
    one_adb, served, caplog, monkeypatch, error
):
    usual, errors = Keyboard._is_selected, [error]

    def fail_once(keyboard):
        if errors:
            keyboard._link.is_lost = isinstance(errors[0], DeviceLostError)
            raise errors.pop()
        return usual(keyboard)

    monkeypatch.setattr(Keyboard, "_is_selected", fail_once)
    with pytest.raises(type(error)):
        AdbPhone(served.serial, **QUICK)
    is_lost = isinstance(error, DeviceLostError)
    assert served.handset.keyboard == (UNICODE_KEYBOARD if is_lost else USUAL_KEYBOARD)
    assert ("ADBKeyBoard may still be the keyboard" in caplog.text) is is_lost


@pytest.mark.parametrize("error", [DeviceLostError("it went away"), NoDeviceError("not allowed"), KeyboardInterrupt()])
def test_a_keyboard_that_stays_on_a_lost_phone_is_named_at_once(one_adb, served, caplog, monkeypatch, error):
    waits = []

    def wait(*_):
        waits.append(1)
        raise error

    monkeypatch.setattr(AdbLink, "_reconnect", wait)
    with pytest.raises(type(error)), AdbPhone(served.serial, **QUICK) as phone:
        one_adb.run("disconnect", served.serial)
        phone.screenshot()
    assert waits == [1]
    assert "ADBKeyBoard may still be the keyboard" in caplog.text
