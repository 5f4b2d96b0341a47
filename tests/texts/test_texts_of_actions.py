"""Actions in words name the touched element, or else the point."""

import pytest

from vlm_agent.episodes import Action, Screen, UiElement
from vlm_agent.texts.actions import action_in_words

SCREEN = Screen(None, (UiElement((0.0, 0.0, 0.5, 1.0), "Clock"), UiElement((0.5, 0.0, 0.5, 1.0), " ")))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Action.tap(0.25, 0.1), "click on Clock"),
        (Action.long_press(0.25, 0.1), "long press Clock"),
        (Action.tap(0.75, 0.1234), "click on the point (123, 750)"),
        (Action.press("home"), "press the home button"),
    ],
    ids=["tap", "long press", "an element without a name", "no touch"],
)
def test_a_touch_names_the_element_under_it_or_its_point(action, words):
    assert action_in_words(action, SCREEN) == words


def test_without_elements_a_touch_names_its_point():
    assert action_in_words(Action.tap(0.25, 0.1), Screen(None, None)) == "click on the point (100, 250)"
