"""The expert's texts: they agree with its actions, name only what the screen shows, and change nothing else."""

from dataclasses import replace
from itertools import pairwise

import pytest
from transformers import AutoTokenizer

from studies.simulated_phone.texts import contradictions, demonstrations
from vlm_agent.annotation.check import check_step
from vlm_agent.episodes import Action, Step, UiElement
from vlm_agent.models.run_layout import base_folder
from vlm_agent.simulator.demonstrations import simulate_episode
from vlm_agent.simulator.thoughts import Reason, name_of, think_text
from vlm_agent.texts.phone import result_text, screen_text


@pytest.fixture(scope="module")
def episodes() -> list[tuple[Step, ...]]:
    return [steps for _, steps in demonstrations(120)]


def test_every_thought_and_description_agrees_with_its_action_and_screen(episodes):
    steps = [step for steps in episodes for step in steps]
    assert len(steps) > 600
    assert not [(found, step.notes) for step in steps if (found := contradictions(step))]
    assert not [(found, step.notes) for step in steps if (found := check_step(step))]


def test_the_check_finds_the_texts_of_another_step(episodes):
    steps = [step for steps in episodes for step in steps]
    shifted = [replace(step, notes=other.notes) for step, other in pairwise(steps)]
    assert sum(bool(contradictions(step)) for step in shifted) > 0.9 * len(shifted)


def test_screen_and_result_are_those_that_an_agent_on_the_phone_computes(episodes):
    for steps in episodes:
        for step, after in zip(steps, [*steps[1:], steps[-1]], strict=True):
            assert step.notes["screen"] == screen_text(step.screen)
            assert step.notes["result"] == result_text(step.screen, after.screen)


def test_thoughts_and_descriptions_are_5_to_15_tokens_of_the_embedded_base(episodes):
    tokenizer = AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")
    texts = {text for steps in episodes for step in steps for text in (step.notes["think"], step.notes["action"])}
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
