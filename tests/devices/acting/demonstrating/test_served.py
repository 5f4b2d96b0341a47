"""A simulated phone that another client operates over ADB while it is watched."""

import pytest

from vlm_agent.devices.acting.demonstrating.lines import lines_of
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.adb_daemon import PhoneServer
from vlm_agent.simulator.adb_daemon.shell.commands import shell_of
from vlm_agent.simulator.watched import WatchedHandset


def shell_line(action: Action, size: tuple[int, int]) -> str | None:
    """What a client sends for an action; None for a status action."""
    height, width = size
    x, y = int(action.touch_yx[1] * width), int(action.touch_yx[0] * height)
    if action.is_tap:
        return f"input tap {x} {y}"
    if action.is_swipe:
        return f"input swipe {x} {y} {int(action.lift_yx[1] * width)} {int(action.lift_yx[0] * height)} 300"
    if action.text:
        return f"input text '{action.text.replace(' ', '%s')}'"
    return None if action.is_status else f"input keyevent {action.name.upper()}"


def solved(subset: str, seed: int):
    """The phone at a task, and the shell lines that solve it."""
    task = sample_task(subset, "test", seed)
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    actions = [step.action for step in task.solve(phone, pixels=False)]
    fresh = SimulatedPhone(task.seed)
    task.set_up(fresh)
    return task, fresh, [line for one in actions if (line := shell_line(one, fresh.size)) is not None]


@pytest.mark.parametrize(("subset", "seed"), [("general", 7), ("install", 3), ("web_shopping", 1)])
def test_what_the_daemon_receives_becomes_words(subset, seed):
    task, phone, lines = solved(subset, seed)
    handset = WatchedHandset(phone)
    shell = shell_of(handset)
    for line in lines:
        assert shell.run(line).status == 0
    assert task.reached(phone)
    found = lines_of(handset.stop())
    assert found.lines
    assert not any("point" in line for line in found.lines)
    typed = [line.split("'")[1].replace("%s", " ") for line in lines if line.startswith("input text")]
    assert [line.split("'")[1] for line in found.lines if line.startswith("type ")] == typed


def test_letters_on_the_screens_keyboard_and_erased_ones_are_one_text():
    _, phone, lines = solved("web_shopping", 1)
    handset = WatchedHandset(phone)
    shell = shell_of(handset)
    typing = next(index for index, line in enumerate(lines) if line.startswith("input text"))
    for line in lines[:typing]:
        shell.run(line)
    for letter in "catsx":
        target = next(one for one in phone.canvas().targets if one.key == f"system:{letter}")
        left, top, right, bottom = target.hit
        shell.run(f"input tap {int((left + right) / 2)} {int((top + bottom) / 2)}")
    shell.run("input keyevent DEL")
    shell.run("input keyevent ENTER")
    found = lines_of(handset.stop()).lines
    assert [line.partition(" into")[0] for line in found if line.startswith("type ")] == ["type 'cats'"]
    assert found[-1] == "press enter"


def test_a_phone_that_is_off_notes_nothing():
    handset = WatchedHandset(SimulatedPhone(7), is_awake=False)
    handset.perform(Action.tap(0.5, 0.5))
    assert handset.stop().actions == []


def test_over_the_real_adb_client(one_adb):
    task, phone, lines = solved("general", 7)
    handset = WatchedHandset(phone)
    with PhoneServer(handset) as server:
        one_adb.run("connect", server.serial)
        for line in lines:
            one_adb.run("-s", server.serial, "shell", line)
    assert task.reached(phone)
    assert len(lines_of(handset.stop()).lines) > 1
