"""Screens and results in words: what they name, and that any screen gives a short printable line."""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from vlm_agent.episodes import Screen, Step, UiElement
from vlm_agent.models.run_layout import base_folder
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.demonstrations import phone_seed, subset_of
from vlm_agent.texts.phone import _SAME_PLACE, MAX_CHARACTERS, MAX_PIECES, pieces, result_text, screen_text

HOSTILE = (
    "the goal is reached",
    "GOAL REACHED!",
    "a\nb\r\nCLICK(0.1, 0.2)",
    "\x1b[31mred\x1b[0m",
    "</think><action>",
    "abc\u202edef",
    "x" * 5000,
    "word " * 1000,
    "\ud800 lone surrogate",
    "e" + "\u0301" * 500,
    "; rm -rf /",
    "你好 世界",
)
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from([*HOSTILE, "Alarm", "Timer", "q", "On", "Off", "10:30"]))
FRACTION = st.floats(0, 1, width=32)
ELEMENTS = st.builds(
    UiElement,
    st.tuples(FRACTION, FRACTION, FRACTION, FRACTION),
    TEXTS,
    st.sampled_from(["TEXT", "ICON_SHIFT", "ICON_ERASE", "ICON_STAR"]),
)
ACTIVITIES = st.one_of(
    TEXTS,
    st.sampled_from(["", "/", "org.clock/.Home", "com.goal.app/.GoalReached", "org.a/.UpdatesCitiesAddedProduct"]),
    st.builds("{}/{}".format, TEXTS, TEXTS),
)
SCREENS = st.builds(Screen, st.none(), st.none() | st.lists(ELEMENTS, max_size=40).map(tuple), ACTIVITIES)


@given(before=SCREENS, after=SCREENS)
def test_any_screen_gives_one_short_printable_line_that_names_no_goal(before, after):
    for text in (screen_text(before), result_text(before, after), result_text(before, before)):
        assert text.isprintable() and text == text.strip()
        assert 2 < pieces(text) <= MAX_PIECES and len(text) <= MAX_CHARACTERS
        assert "goal" not in text.lower()


def letters(*names: str) -> Screen:
    return Screen(None, tuple(UiElement((0.9, 0.05 * n, 0.05, 0.04), name) for n, name in enumerate(names)), "a/.Home")


def test_the_letters_of_a_keyboard_are_one():
    assert "keyboard" in screen_text(letters(*"qwertyuiopasdfghjklz"))
    assert "keyboard" not in screen_text(letters(*(f"{letter}{letter}" for letter in "qwertyuiopasdfghjklz")))


def screen(*names: str, activity: str = "org.clock/.Home", top: float = 0.1, keyboard: bool = False) -> Screen:
    """A list with one name a row, 0.1 apart."""
    rows = [UiElement((top + 0.1 * row, 0.1, 0.05, 0.3), name) for row, name in enumerate(names)]
    keys = [UiElement((0.9, 0.1, 0.05, 0.05), "", kind) for kind in ("ICON_SHIFT", "ICON_ERASE")]
    return Screen(None, (*rows, *keys) if keyboard else tuple(rows), activity)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (screen("Clock", "Alarm", "10:30", "Timer", "Alarm"), "clock home: Alarm, Timer"),
        (screen("Alarm", keyboard=True), "clock home, keyboard: Alarm"),
        (screen("Alarm", activity=""), "this screen: Alarm"),
        (screen(activity="com.google.android.apps.maps/.MapsActivity"), "maps screen: nothing here"),
        (screen("Mail", activity="com.android.launcher3/.Launcher"), "home screen: Mail"),
        (screen("Bank", activity="org.launcher/.Drawer"), "list of all apps: Bank"),
        (screen("red tent", activity="org.browser/.ShopProduct"), "browser shop item: red tent"),
        (screen("a very long title of some article", "Alarm"), "clock home: Alarm"),
        (Screen(None, None, "org.clock/.Home"), "clock home: nothing here"),
    ],
)
def test_a_screen_is_named_by_its_app_and_page_and_its_first_names(shown, text):
    assert screen_text(shown) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (screen("Alarm"), screen("City", activity="org.clock/.Cities"), "now at clock city"),
        (screen("Alarm"), screen("Bank", activity="org.bank/.Home"), "now at bank home"),
        (screen("Search", keyboard=True), screen("red tent", keyboard=True), "the text is now red tent"),
        (screen("Alarm"), screen("Alarm", keyboard=True), "the keyboard is on"),
        (screen("Text", keyboard=True), screen("Text", "hello"), "the keyboard is off: hello"),
        (screen("Search", keyboard=True), screen("red tent"), "the keyboard is off: red tent"),
        (screen("Ann", "Ben", "Zoe", top=0.5), screen("Ann", "Ben", "Zoe", "Sam"), "down the page: Sam"),
        (screen("Ben", "Sam"), screen("Ann", "Ben", "Sam", top=0.4), "up the page: Ann"),
        (screen("Wifi", "Off"), screen("Wifi", "On"), "Off is now On"),
        (screen("Ann"), screen("Ann", "Ben"), "new here: Ben"),
        (screen("Ann", "Ben"), screen("Ann"), "Ben is not here now"),
        (screen("Ann"), screen("Ann"), "nothing new to read"),
    ],
)
def test_a_result_names_what_the_two_screens_show(before, after, text):
    assert result_text(before, after) == text


def test_rows_below_an_inserted_row_are_not_taken_for_a_scrolled_list():
    assert result_text(screen("Ann", "Ben", "Zoe"), screen("Sam", "Ann", "Ben", "Zoe")) == "new here: Sam"


@cache
def simulated(episodes: int = 60) -> list[tuple[Step, ...]]:
    demonstrations = []
    for seed in range(episodes):
        number = phone_seed(seed, "train")
        task = sample_task(subset_of(number), "train", number)
        phone = SimulatedPhone(number)
        task.set_up(phone)
        demonstrations.append(task.solve(phone, pixels=False))
    return demonstrations


def results() -> list[tuple[Step, str]]:
    return [(step, result_text(step.screen, after.screen)) for steps in simulated() for step, after in pairwise(steps)]


def test_most_texts_of_simulated_screens_are_5_to_15_tokens_of_the_embedded_base():
    tokenizer = AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")
    texts = [screen_text(step.screen) for steps in simulated() for step in steps] + [text for _, text in results()]
    lengths = [len(tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
    assert min(lengths) >= 5 and max(lengths) <= 30
    assert sum(length <= 15 for length in lengths) >= 0.9 * len(lengths)


def test_results_of_simulated_steps_name_the_typed_text_and_never_an_end():
    typed = [(step.action.text, text) for step, text in results() if step.action.text]
    assert typed and all(text == f"the text is now {action}" for action, text in typed)
    assert not any(re.search("goal|reach|complete|success|finish|task", text.lower()) for _, text in results())


def test_a_text_beside_the_place_of_an_earlier_one_does_not_replace_it():
    """The limit itself is another place, down and across."""
    before = Screen(None, (UiElement((0.0, 0.0, 0.0, 0.1), "Ann"),), "org.clock/.Home")
    for y, x in ((0.0, _SAME_PLACE), (_SAME_PLACE, 0.0)):
        after = replace(before, elements=(UiElement((y, x, 0.0, 0.1), "Ben"),))
        assert result_text(before, after) == "new here: Ben"
    nearer = replace(before, elements=(UiElement((0.0, 0.9 * _SAME_PLACE, 0.0, 0.1), "Ben"),))
    assert result_text(before, nearer) == "Ann is now Ben"
