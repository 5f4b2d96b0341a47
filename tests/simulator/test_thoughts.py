"""The expert's actions, texts and plans: they agree, and name nothing that only a later screen shows."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from transformers import AutoTokenizer

from studies.simulated_phone.texts import SHORT, contradictions, demonstrations, foreign_names, plan_contradictions
from vlm_agent.annotation.check import check_step
from vlm_agent.episodes import Action, Step, UiElement
from vlm_agent.models.run_layout import base_folder
from vlm_agent.simulator.demonstrations import simulate_episode, simulated_tasks
from vlm_agent.simulator.thoughts import MAX_LINES, Reason, name_of, think_text
from vlm_agent.texts.phone import result_text, screen_text


@pytest.fixture(scope="module")
def episodes() -> list[tuple[str, tuple[Step, ...]]]:
    """(goal, steps) of demonstrations."""
    return list(demonstrations(160))


@pytest.fixture(scope="module")
def steps(episodes) -> list[Step]:
    return [step for _, steps in episodes for step in steps]


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")


def test_the_mix_of_actions_is_like_that_of_aitw(steps):
    counts = Counter(step.action.name for step in steps)
    directions = Counter(step.action.direction for step in steps if step.action.is_swipe)
    share = {name: 100 * count / sum(counts.values()) for name, count in counts.items()}
    for name, low, high in (("tap", 48, 58), ("swipe", 10, 19), ("type", 8, 13), ("home", 2, 6), ("complete", 13, 18)):
        assert low <= share[name] <= high, share
    assert sum(share.get(name, 0) for name in ("enter", "back", "impossible")) <= 4
    assert max(directions.values()) <= 0.65 * sum(directions.values())
    assert directions["left"] + directions["right"] >= 0.25 * sum(directions.values())
    assert 0.09 <= sum(task.memory for task in simulated_tasks(400, 0, "test")) / 400 <= 0.18


def test_the_experts_taps_lie_in_annotated_elements(steps):
    for step in steps:
        if step.action.is_tap:
            assert any(element.contains(step.action.touch_yx) for element in step.elements)


def test_every_thought_and_description_agrees_with_its_action_and_screen(steps):
    assert len(steps) > 800
    assert not [(found, step.notes) for step in steps if (found := contradictions(step))]
    assert not [(found, step.notes) for step in steps if (found := check_step(step))]


def test_the_check_finds_the_texts_of_another_step(steps):
    shifted = [replace(step, notes=other.notes) for step, other in pairwise(steps)]
    assert sum(bool(contradictions(step)) for step in shifted) > 0.9 * len(shifted)


def test_screen_and_result_are_those_that_an_agent_on_the_phone_computes(episodes):
    for _, steps in episodes:
        for step, after in zip(steps, [*steps[1:], steps[-1]], strict=True):
            assert step.notes["screen"] == screen_text(step.screen)
            assert step.notes["result"] == result_text(step.screen, after.screen)


def test_thoughts_and_descriptions_are_5_to_15_tokens_of_the_embedded_base(steps, tokenizer):
    texts = {text for step in steps for text in (step.notes["think"], step.notes["action"])}
    lengths = {text: len(tokenizer(text, add_special_tokens=False).input_ids) for text in texts}
    assert not {text: length for text, length in lengths.items() if not 5 <= length <= 15}


def test_texts_change_nothing_else_of_an_episode():
    for seed in (1, 2, 3):
        plain, _ = simulate_episode(seed, "test", (112, 64))
        texts, _ = simulate_episode(seed, "test", (112, 64), thoughts=True)
        assert plain.goal == texts.goal and len(plain) == len(texts)
        for a, b in zip(plain.steps, texts.steps, strict=True):
            assert not a.notes and set(b.notes) == {"screen", "think", "action", "result", "plan", "step"}
            assert (a.action, a.elements, a.activity) == (b.action, b.elements, b.activity)
            assert (a.screenshot == b.screenshot).all()


def step(action: Action, *names: str) -> Step:
    """Rows of text, 0.1 apart from y 0."""
    elements = tuple(UiElement((0.1 * row, 0.0, 0.1, 1.0), name) for row, name in enumerate(names))
    return Step(None, action, elements)


UP = Action.swipe((0.8, 0.5), (0.2, 0.5))


@pytest.mark.parametrize(
    ("done", "reason", "thought"),
    [
        (step(Action.tap(0.05, 0.5), "Clock", "Mail"), Reason("found", "clock"), "Clock is here"),
        (step(Action.tap(0.05, 0.5), "Clock", "Mail"), Reason("found", "MAIL"), "Mail is here, see Clock"),
        (step(Action.tap(0.05, 0.5), "Clock", "Mail"), Reason("found", "a key"), "Clock is here"),
        (step(UP, "Mail"), Reason("hidden", "Clock"), "Clock is not here, look down"),
        (step(UP, "Clock"), Reason("hidden", "Clock"), "look down for more"),
        (step(UP, "Mail"), Reason("hidden"), "look down for more"),
        (step(UP, "Mail"), Reason("hidden", "all the news of this one city"), "look down for more"),
        (step(Action.press("home"), "Mail"), Reason("elsewhere", "Clock"), "Clock is not here, go home"),
        (step(Action.press("home"), "Mail"), Reason("elsewhere"), "next is the home screen"),
        (step(Action.impossible(), "Open"), Reason("impossible", "Uninstall"), "Uninstall is not here, stop"),
    ],
)
def test_a_thought_names_what_the_screen_shows_or_what_it_does_not(done, reason, thought):
    assert think_text(done, reason) == thought


def test_keys_without_a_subject_are_read_as_words():
    assert [name_of(key) for key in ("app:Clock", "alarm:7:30 AM", "view_cart")] == ["Clock", "7:30 AM", "view cart"]


def plans(steps: tuple[Step, ...]) -> list[tuple[str, ...]]:
    return [tuple(step.notes["plan"].split("\n")) for step in steps]


def test_the_first_line_of_every_plan_is_the_step_and_agrees_with_the_action(steps):
    assert not [(found, step.notes) for step in steps if (found := plan_contradictions(step))]


def test_the_check_finds_the_plans_of_another_step(steps):
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


def test_almost_all_lines_are_short_in_tokens_of_the_embedded_base(episodes, tokenizer):
    lines = [line for _, steps in episodes for plan in plans(steps) for line in plan]
    lengths = [len(tokenizer(line, add_special_tokens=False).input_ids) for line in lines]
    assert max(map(len, [plan for _, steps in episodes for plan in plans(steps)])) == MAX_LINES
    assert sum(length <= SHORT for length in lengths) > 0.98 * len(lengths)
