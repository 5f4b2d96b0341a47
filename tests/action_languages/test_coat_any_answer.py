"""The language of CoAT: answers of any shape and length."""

import random
import time

import pytest
from helpers import tiny
from helpers.agents.coat_answers import CALLS, LANGUAGE, SCREEN, call, predicted_type
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages.coat import predicted_box
from vlm_agent.action_languages.language import DECISION
from vlm_agent.episodes import Action


def test_mutated_answers_are_actions_or_none():
    rng, decoded = random.Random(0), 0
    answers = [text for text, _ in CALLS]
    answers += [LANGUAGE.encode(action) for action in (Action.tap(0.5, 0.5), Action.type_text("a (b)"), *tiny.ACTIONS)]
    pieces = [
        *'{}[]",:()\\`\n0123456789.-',
        "null",
        "true",
        "1e999",
        "NaN",
        '"ACTION":',
        '"ARGS": {',
        "\ud800",
        DECISION,
    ]
    for _ in range(20_000):
        text = rng.choice(answers)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(pieces) * rng.choice((0, 1, 1, 5)) + text[at + rng.choice((0, 0, 1, 8)) :]
        action = LANGUAGE.decode(text, SCREEN)
        box = predicted_box(text, SCREEN)
        assert box is None or predicted_type(text) == "click"
        decoded += action is not None
    assert 2_000 < decoded < 18_000


@given(st.text())
def test_any_text_is_an_action_or_none(text):
    for answer in (text, f'"ACTION": "input", "ARGS": {{"text": {text}', f"CLICK({text})", f"TYPE({text}"):
        action = LANGUAGE.decode(answer, SCREEN)
        assert action is None or LANGUAGE.decode(LANGUAGE.encode(action)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000_000,
        " " * 1_000_000,
        "{" * 1_000_000,
        "[" * 1_000_000,
        '"' * 1_000_000,
        "\n" * 1_000_000,
        "CLICK(" * 160_000,
        "CLICK(\n" * 140_000,
        "TYPE(\n" * 160_000,
        f"{DECISION} TYPE(" * 50_000,
        "CLICK(0." + "9" * 1_000_000 + ", 0.5)",
        "CLICK(" + " " * 1_000_000 + "x)",
        "SCROLL(" + "a" * 1_000_000 + ")",
        '{"ACTION": ' * 90_000,
        '"ACTION": "input", "ARGS": {' * 35_000,
        '"ACTION"' + " " * 1_000_000,
        '"ACTION": "' + "a" * 1_000_000,
        '"ACTION": "input", "ARGS": {' + '"text" ' * 140_000,
        '"ACTION": "input", "ARGS": {"text": "' + "\\" * 1_000_001,
        '"ACTION": "click_element", "ARGS": {"bbox": [' + "9" * 1_000_000,
        '"ACTION": "click_element", "ARGS": {"bbox": [' + "1, " * 300_000,
        '"ACTION": "click_element", "ARGS": {"bbox": [' + " " * 1_000_000,
        '"ACTION": "click_element", "ARGS": {"idx": ' + "9" * 1_000_000,
        '"ACTION": "click_element", "ARGS": ' + '{"a": ' * 160_000,
    ],
    ids=lambda text: text[:24],
)
def test_a_megabyte_is_refused_within_seconds(text):
    start = time.process_time()
    assert LANGUAGE.decode(text, SCREEN) is None
    assert predicted_box(text, SCREEN) is None
    predicted_type(text)
    LANGUAGE.ending(text)
    assert time.process_time() - start < 5


def test_a_megabyte_can_be_typed():
    action = Action.type_text("{9\\" * 300_000)
    assert LANGUAGE.decode(LANGUAGE.encode(action)) == action
    assert LANGUAGE.decode(call("input", text=action.text)) == action
