"""The language of CoAT: the ending that completes a prefix to an action."""

import pytest
from helpers.agents.coat_answers import LANGUAGE, actions
from hypothesis import given
from hypothesis import strategies as st


@given(actions, st.integers(0, 60))
def test_every_prefix_of_an_action_has_an_ending_whose_every_character_shortens_the_rest(action, end):
    text = LANGUAGE.encode(action)[:end]
    ending = LANGUAGE.ending(text)
    assert LANGUAGE.decode(text + ending) is not None
    while ending:
        text += ending[0]
        rest = LANGUAGE.ending(text)
        assert len(rest) < len(ending)
        ending = rest


@given(actions)
def test_a_whole_action_needs_no_ending(action):
    assert LANGUAGE.ending(LANGUAGE.encode(action)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "tap",
        " ",
        "CLICK(2",
        "CLICK(1.5",
        "CLICK(0.5,",
        "CLICK(0.500,0",
        "CLICK(0.5000",
        "CLICK(0.500, 0.500) ",
        "SCROLL(to",
        "TYPE(a\nb",
        "TYPE(\ud800",
        '{"ACTION',
    ],
)
def test_a_text_that_no_action_starts_with_has_no_ending(text):
    assert LANGUAGE.ending(text) is None
