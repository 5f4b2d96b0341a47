"""The expert's steps from any screen that an agent reaches."""

import random

import pytest

from vlm_agent.action_languages.names import touched_name
from vlm_agent.episodes import Action, ActionKind
from vlm_agent.simulator.corrections import Corrector
from vlm_agent.simulator.demonstrations import simulated_tasks

TASKS = simulated_tasks(24, 3, "train")


def opened(task):
    phone, what = task.fresh_phone()
    return phone, what, Corrector(what, task.solution().actions)


def somewhere(phone, rng: random.Random) -> Action:
    """What a lost agent might do."""
    element = rng.choice(phone.elements())
    y, x, height, width = element.box
    return rng.choice([Action.press("back"), Action.press("home"), *[Action.tap(y + height / 2, x + width / 2)] * 4])


def test_on_its_own_path_the_expert_keeps_to_it():
    for task in TASKS:
        phone, _, corrector = opened(task)
        solution = task.solution().actions
        for number, action in enumerate(solution):
            (first, *rest) = corrector.steps(phone)
            assert 1 + len(rest) <= len(solution) - number
            if not task.memory:
                assert (first.action.name, first.action.text) == (action.name, action.text)
                if action.is_tap:
                    assert touched_name(first.action, first.screen) == touched_name(action, first.screen)
            phone.perform(action)


def test_from_a_screen_off_its_path_the_expert_reaches_the_goal_or_has_no_steps():
    rng, found = random.Random(0), 0
    for task in TASKS:
        phone, what, corrector = opened(task)
        for _ in range(3):
            before = phone.digest()
            steps = corrector.steps(phone)
            assert phone.digest() == before
            after = phone.fork()
            for step in steps:
                assert step.activity == after.activity
                after.perform(step.action)
            assert not steps or what.reached(after)
            found += bool(steps)
            phone.perform(somewhere(phone, rng))
    assert found > 0.9 * 3 * len(TASKS)


def test_where_the_goal_is_reached_the_expert_ends():
    for task in TASKS:
        phone, _, corrector = opened(task)
        for action in task.solution().actions[:-1]:
            phone.perform(action)
        assert [step.action for step in corrector.steps(phone)] == [task.solution().actions[-1]]


@pytest.mark.parametrize("number", range(3))
def test_what_must_be_looked_up_is_looked_up_before_it_is_typed(number):
    """The place to search for is in a note, and nothing but the note shows it."""
    task = simulated_tasks(number + 1, 0, "train", templates=("look_up_note",))[number]
    phone, _, corrector = opened(task)
    phone.open_by_name("Browser")
    steps = corrector.steps(phone)
    typed = next(at for at, step in enumerate(steps) if step.action.kind is ActionKind.TYPE)
    assert "org.notes/.Note" in [step.activity for step in steps[:typed]]
