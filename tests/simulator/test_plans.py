"""The expert's plans: they agree with its actions, and name nothing that only a later screen shows."""

from dataclasses import replace
from itertools import pairwise

import pytest
from transformers import AutoTokenizer

from studies.simulated_phone.texts import SHORT, demonstrations, foreign_names, plan_contradictions
from vlm_agent.episodes import Step
from vlm_agent.models.run_layout import base_folder
from vlm_agent.simulator.thoughts.remaining import MAX_LINES


@pytest.fixture(scope="module")
def episodes() -> list[tuple[str, tuple[Step, ...]]]:
    return list(demonstrations(160))


def plans(steps: tuple[Step, ...]) -> list[tuple[str, ...]]:
    return [tuple(step.notes["plan"].split("\n")) for step in steps]


def test_the_first_line_of_every_plan_is_the_step_and_agrees_with_the_action(episodes):
    steps = [step for _, steps in episodes for step in steps]
    assert len(steps) > 800
    assert not [(found, step.notes) for step in steps if (found := plan_contradictions(step))]


def test_the_check_finds_the_plans_of_another_step(episodes):
    steps = [step for _, steps in episodes for step in steps]
    pairs = [(step, other) for step, other in pairwise(steps) if step.notes["plan"] != other.notes["plan"]]
    shifted = [replace(step, notes=other.notes) for step, other in pairs]
    # A tap on an icon and one on another icon look the same.
    assert sum(bool(plan_contradictions(step)) for step in shifted) > 0.6 * len(shifted)


def test_no_line_names_what_only_a_later_screen_shows(episodes):
    assert not [problem for goal, steps in episodes for problem in foreign_names(goal, steps)]


def test_the_check_finds_names_of_later_screens(episodes):
    """Where a text is read from a screen, a plan that has it from the start is found."""
    found = 0
    for goal, steps in episodes:
        if goal.startswith(("Read the note", "Search the web for")):
            typed = next(step.action.text for step in steps if step.action.text)
            early = {**steps[0].notes, "plan": f"type {typed}"}
            found += bool(list(foreign_names(goal, [replace(steps[0], notes=early), *steps[1:]])))
    assert found > 0


def test_a_plan_ends_as_the_episode_does_and_impossible_is_in_no_earlier_plan(episodes):
    for _, steps in episodes:
        *before, last = plans(steps)
        assert last == (steps[-1].action.name,)
        assert not [plan for plan in before if "impossible" in plan]
        assert all(plan[-1] == "complete" for plan in before if len(plan) < MAX_LINES)


def test_before_its_last_screen_an_impossible_goal_is_planned_like_a_possible_one(episodes):
    of_goals = [(goal, steps) for goal, steps in episodes if goal.startswith(("Uninstall", "Remove the app"))]
    impossible = [steps for _, steps in of_goals if steps[-1].action.name == "impossible"]
    possible = [steps for _, steps in of_goals if steps[-1].action.name == "complete"]
    assert impossible and possible
    for steps in impossible:
        assert plans(steps)[-2][1:] == ("tap Uninstall", "tap OK", "complete")
    assert any(("tap Uninstall", "tap OK", "complete") in plans(steps) for steps in possible)


def test_a_text_to_read_is_named_by_the_step_that_leaves_the_screen_with_it(episodes):
    """An agent that remembers only its steps' lines needs it there."""
    checked = 0
    for goal, steps in episodes:
        if " note " not in goal or "search" not in goal.lower():
            continue
        (typed,) = (step.action.text for step in steps if step.action.text)
        leaving = next(n for n, step in enumerate(steps) if step.notes["step"] == f"go home for {typed}")
        assert not [plan for plan in plans(steps)[:leaving] for line in plan if typed in line]
        assert f"type {typed}" in plans(steps)[leaving]
        checked += 1
    assert checked


def test_almost_all_lines_are_short_in_tokens_of_the_embedded_base(episodes):
    tokenizer = AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")
    lines = [line for _, steps in episodes for plan in plans(steps) for line in plan]
    lengths = [len(tokenizer(line, add_special_tokens=False).input_ids) for line in lines]
    assert max(map(len, [plan for _, steps in episodes for plan in plans(steps)])) == MAX_LINES
    assert sum(length <= SHORT for length in lengths) > 0.98 * len(lengths)
