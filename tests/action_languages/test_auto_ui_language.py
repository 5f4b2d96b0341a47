"""The language of Auto-UI: published spellings, and answers of any shape."""

import re
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.auto_ui import SWIPES, AutoUiLanguage
from vlm_agent.episodes import BUTTONS, Action, ActionKind
from vlm_agent.models.word_tokenizer import build_word_tokenizer

NORMALISED, PLAIN = AutoUiLanguage(), AutoUiLanguage(normalised=False)
LANGUAGES = [NORMALISED, PLAIN]
languages = st.sampled_from(LANGUAGES)
coordinates = st.floats(0, 1) | st.floats(0, 1, width=32)
points = st.tuples(coordinates, coordinates)
texts = st.text(st.characters(exclude_categories=["Cs"]))
actions = st.one_of(
    points.map(lambda point: Action.tap(*point)),
    st.builds(Action.swipe, points, points),
    points.map(lambda point: Action.long_press(*point)),
    *(texts.map(make) for make in (Action.type_text, Action.open_app, Action.answer)),
    st.sampled_from([Action.wait(), Action.recents(), Action.complete(), Action.impossible()]),
    st.sampled_from([Action.press(button) for button in BUTTONS]),
)
NONE = "[-1.0, -1.0]"


def written(kind: str = "DUAL_POINT", touch: str = NONE, lift: str = NONE, typed: str = "") -> str:
    return f'"action_type": "{kind}", "touch_point": "{touch}", "lift_point": "{lift}", "typed_text": "{typed}"'


def up_to(end: str, *fields: str, **more: str) -> str:
    """The beginning of an action, up to and with `end`."""
    text = written(*fields, **more)
    return text[: text.index(end) + len(end)]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action.swipe((0.49836206436157227, 0.60697728), (0.496697902, 0.60697728)), ("DUAL_POINT", "[0.4984, 0.607]")),
        (Action.tap(0, 1), ("DUAL_POINT", "[0.0, 1.0]")),
        (Action.tap(0.03125, 0.00004), ("DUAL_POINT", "[0.0312, 0.0]")),
        (Action.long_press(0.12345, 0.5), ("LONG_PRESS", "[0.1235, 0.5]", NONE)),
        (Action.swipe((0.541, 0.507), (0.001, 0.579)), ("DUAL_POINT", "[0.8, 0.5]", "[0.2, 0.5]")),
        (Action.swipe((0.1, 0.5), (0.9, 0.4)), ("DUAL_POINT", "[0.2, 0.5]", "[0.8, 0.5]")),
        (Action.swipe((0.1, 0.5), (0.2, 0.3)), ("DUAL_POINT", "[0.5, 0.8]", "[0.5, 0.2]")),
        (Action.swipe((0.1, 0.5), (0.2, 0.7)), ("DUAL_POINT", "[0.5, 0.2]", "[0.5, 0.8]")),
        (Action.type_text('say "hi",\n it\'s  a\\b '), ("TYPE", NONE, NONE, "say hi, its ab ")),
        (Action.type_text("  "), ("TYPE", NONE, NONE, " ")),
        (Action.open_app("Maps"), ("OPEN_APP", NONE, NONE, "Maps")),
        (Action.answer("4"), ("ANSWER", NONE, NONE, "4")),
        (Action.press("back"), ("PRESS_BACK", NONE, NONE)),
        (Action.press("home"), ("PRESS_HOME", NONE, NONE)),
        (Action.press("enter"), ("PRESS_ENTER", NONE, NONE)),
        (Action.complete(), ("STATUS_TASK_COMPLETE", NONE, NONE)),
        (Action.impossible(), ("STATUS_TASK_IMPOSSIBLE", NONE, NONE)),
        (Action.wait(), ("WAIT", NONE, NONE)),
        (Action.recents(), ("RECENTS", NONE, NONE)),
    ],
)
def test_actions_are_written_as_in_the_paper(action, text):
    assert NORMALISED.encode(action) == written(*text if len(text) > 2 else (*text, text[1]))


def test_without_normalisation_every_coordinate_is_kept():
    touch, lift = (float(np.float32(0.54106367)), 0.25), (1.5e-05, 1.0)
    text = PLAIN.encode(Action.swipe(touch, lift))
    assert text == written("DUAL_POINT", "[0.541063666343689, 0.25]", "[1.5e-05, 1.0]")
    assert PLAIN.decode(text) == Action.swipe(touch, lift)
    tap = Action.swipe((0.5, 0.5), (0.51, 0.5))
    assert PLAIN.decode(PLAIN.encode(tap)) == tap


def test_equal_differences_are_vertical_and_differences_are_rounded_to_float32():
    down = NORMALISED.encode(Action.swipe((0.1, 0.5), (0.9, 0.5)))
    assert NORMALISED.encode(Action.swipe((0.25, 0.25), (0.5, 0.5))) == down
    touch, lift = (0.6143732666969299, 0.02836536429822445), (0.9267092943191528, 0.3407014012336731)
    y, x = np.abs(np.subtract(lift, touch))
    assert y < x and np.float32(lift[0]) - np.float32(touch[0]) == np.float32(lift[1]) - np.float32(touch[1])
    assert NORMALISED.encode(Action.swipe(touch, lift)) == down


@given(actions)
def test_decoding_returns_the_action_up_to_the_quantization(action):
    text = NORMALISED.encode(action)
    back = NORMALISED.decode(text)
    assert NORMALISED.encode(back) == text
    assert back.kind is action.kind and back.name == action.name
    if action.is_swipe:
        assert (back.touch_yx, back.lift_yx) in SWIPES.values()
    elif action.kind in (ActionKind.DUAL_POINT, ActionKind.LONG_PRESS):
        assert back.touch_yx == tuple(round(value, 4) for value in action.touch_yx)
        assert back.lift_yx == (back.touch_yx if action.is_tap else (-1.0, -1.0))
    kept = "".join(character for character in action.text if character not in "\\\"'")
    assert f"x{back.text}x" == " ".join(f"x{kept}x".split())


@given(actions)
def test_without_normalisation_only_text_changes(action):
    back = PLAIN.decode(PLAIN.encode(action))
    assert (back.kind, back.touch_yx, back.lift_yx) == (action.kind, action.touch_yx, action.lift_yx)


@given(
    languages, actions, st.sampled_from(["", "Action Decision: ", "Action Plan: [A] ; Action Decision: ", "{", "so: "])
)
@example(NORMALISED, Action.type_text("Action Decision: typed_text: {"), "")
@example(NORMALISED, Action.type_text("Action Decision: x"), "Action Plan: [TYPE] ; Action Decision: ")
def test_the_decision_is_read_with_and_without_a_plan(language, action, before):
    text = language.encode(action)
    after = "}" if before == "{" else ""
    assert language.decode(before + text + after) == language.decode(text)


@given(actions, st.permutations(range(4)), st.sampled_from("\"'"))
def test_fields_are_read_in_any_order_and_with_either_quotation_mark(action, order, quote):
    text = NORMALISED.encode(action)
    found = re.findall(r'"([a-z_]+)": "([^"]*)"', text)
    fields = [f"{quote}{name}{quote}: {quote}{value}{quote}" for name, value in found]
    assert NORMALISED.decode(", ".join(fields[place] for place in order)) == NORMALISED.decode(text)


TAP = NORMALISED.encode(Action.tap(0.25, 0.5))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Action Decision:",
        "Action Plan: [DUAL_POINT]",
        written("DUAL_POINT", "[1.2, 0.5]", "[0.5, 0.5]"),
        written("DUAL_POINT", "[0.5, -0.5]", "[0.5, 0.5]"),
        written("DUAL_POINT", "[-1.0, -1.0]"),
        written("DUAL_POINT", "[nan, 0.5]", "[0.5, 0.5]"),
        written("DUAL_POINT", "[1e999, 0.5]", "[0.5, 0.5]"),
        written("DUAL_POINT", "[0.5]", "[0.5, 0.5]"),
        written("DUAL_POINT", "[0.5, 0.5, 0.5]", "[0.5, 0.5]"),
        written("DUAL_POINT", "0.5, 0.5", "[0.5, 0.5]"),
        written("DUAL_POINT", "[0.5, 1/2]", "[0.5, 0.5]"),
        written("DUAL_POINT", "[0.5, 0.5]", "[0.5, 0.5]", "hello"),
        written("PRESS_HOME", typed="hello"),
        written("PRESS_HOME", "[0.5, 0.5]", "[0.5, 0.5]"),
        written("TYPE", "[0.5, 0.5]", "[0.5, 0.5]", "hello"),
        written("TYPE", typed="\ud800"),
        written("press_home"),
        written("6"),
        written("MENU"),
        TAP.replace('"lift_point": "[0.25, 0.5]", ', ""),
        TAP.replace(', "typed_text": ""', ""),
        TAP.replace("lift_point", "touch_point"),
        TAP.replace("typed_text", "text"),
        TAP.replace(":", ""),
        TAP.replace('", ', '" '),
        TAP + ", " + TAP,
        TAP + " done",
        TAP[:-1],
        "__import__('os').system('true')",
    ],
)
def test_what_is_not_an_action_is_none(text):
    for language in LANGUAGES:
        assert language.decode(text) is None


def test_a_gesture_that_the_language_does_not_write_is_decoded_as_it_is():
    text = written("DUAL_POINT", "[0.1, 0.2]", "[0.3, 0.4]")
    assert NORMALISED.decode(text) == Action.swipe((0.1, 0.2), (0.3, 0.4))


@st.composite
def corrupted(draw):
    """The text of an action with a piece removed, replaced or added."""
    text = draw(languages).encode(draw(actions))
    at, removed = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
    new = draw(st.text(max_size=3) | st.text("0123456789.,[]{}e- \"':\\", max_size=6) | st.just("Action Decision:"))
    return text[:at] + new + text[at + removed :]


@given(languages, st.text() | corrupted())
def test_any_text_is_an_action_or_none(language, text):
    action = language.decode(text)
    assert action is None or language.decode(language.encode(action)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000_000,
        " " * 1_000_000,
        '"' * 1_000_000,
        "{" * 1_000_000,
        "'touch_point' " * 70_000,
        '"action_type": ' * 70_000,
        "Action Decision:" * 60_000,
        '"typed_text": "' + "a" * 1_000_000,
        '"typed_text"' + " " * 1_000_000,
        TAP + " " * 1_000_000 + "x",
        '"action_type": "DUAL_POINT", "touch_point": "[' + "9" * 1_000_000,
        written("DUAL_POINT", "[0." + "5" * 1_000_000 + ", 0.5]"),
        written("DUAL_POINT", "[0.5, " + " " * 1_000_000 + "0.5]"),
    ],
    ids=lambda text: text[:24],
)
def test_a_megabyte_is_refused_within_seconds(text):
    start = time.process_time()
    assert all(language.decode(text) is None for language in LANGUAGES)
    assert NORMALISED.ending(text) is None or len(text) < 1_000_000
    assert time.process_time() - start < 5


def test_a_megabyte_can_be_typed():
    action = Action.type_text("9" * 1_000_000)
    assert NORMALISED.decode(NORMALISED.encode(action)) == action


prefixes = st.tuples(languages, actions, st.integers(0, 200)).map(
    lambda drawn: (drawn[0], drawn[0].encode(drawn[1])[: drawn[2]])
)


@given(prefixes)
@example((NORMALISED, up_to("[0.2", "DUAL_POINT", "[0.8, 0.5]", "[0.2")))
def test_every_prefix_of_an_action_has_an_ending_whose_every_character_shortens_the_rest(prefix):
    language, text = prefix
    ending = language.ending(text)
    assert language.decode(text + ending) is not None
    while ending:
        text += ending[0]
        rest = language.ending(text)
        assert len(rest) < len(ending)
        ending = rest


@given(languages, actions)
def test_a_whole_action_needs_no_ending(language, action):
    assert language.ending(language.encode(action)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "tap",
        "'",
        up_to("MENU", "MENU"),
        up_to("[2", "DUAL_POINT", "[2"),
        up_to("[0.12345", "DUAL_POINT", "[0.12345"),
        up_to("[0.1230", "DUAL_POINT", "[0.1230"),
        up_to("[0.5 ", "DUAL_POINT", "[0.5 "),
        up_to("[0.5,0", "DUAL_POINT", "[0.5,0"),
        up_to("[0.6", "DUAL_POINT", "[0.5, 0.5]", "[0.6"),
        up_to("[0.5", "LONG_PRESS", "[0.6, 0.6]", "[0.5"),
        up_to("a  b", "TYPE", typed="a  b"),
        up_to("a'", "TYPE", typed="a'"),
        up_to("\ud800", "TYPE", typed="\ud800"),
        TAP + " ",
    ],
)
def test_a_text_that_no_action_starts_with_has_no_ending(text):
    assert NORMALISED.ending(text) is None


@pytest.mark.parametrize(
    ("action", "most"),
    [
        (Action.press("back"), 1),
        (Action.complete(), 1),
        (Action.swipe((0.9, 0.5), (0.1, 0.5)), 1),
        (Action.tap(0.4984, 0.607), 16),
        (Action.tap(0.5, 1), 21),
        (Action.long_press(0.1234, 0.9876), 12),
        (Action.type_text("ebay"), 3),
    ],
)
def test_a_word_tokenizer_writes_an_action_in_few_tokens(action, most):
    tokenizer = build_word_tokenizer(["ebay"], NORMALISED.vocabulary(), 2000)
    text = NORMALISED.encode(action)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert len(ids) <= most
    assert tokenizer.decode(ids) == text


def test_settings_choose_the_language():
    assert language_settings({"name": "auto_ui"}).build() == NORMALISED
    assert language_settings({"name": "auto_ui", "normalised": False}).build() == PLAIN


def test_the_instructions_name_every_type_of_aitw():
    assert all(kind.name in NORMALISED.instructions for kind in ActionKind if kind.is_in_aitw)
    assert TAP in NORMALISED.instructions
