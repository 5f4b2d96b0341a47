"""The named language names the touched element, decodes the tap, and otherwise equals the binned language."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.action_languages.named import NamedLanguage
from vlm_agent.action_languages.names import MAX_NAME_CHARACTERS
from vlm_agent.episodes import Action, Screen, UiElement

LANGUAGE, PLAIN, WITH_TARGETS = NamedLanguage(), BinnedLanguage(), NamedLanguage(name_swipe_targets=True)
SCREEN = (
    UiElement((0.0, 0.0, 1.0, 1.0), "", "ICON_IMAGE"),
    UiElement((0.2, 0.0, 0.2, 1.0), "Wi-Fi  settings"),
    UiElement((0.25, 0.8, 0.1, 0.1), "", "ICON_GEAR"),
    UiElement((0.5, 0.0, 0.1, 1.0), "n" * (MAX_NAME_CHARACTERS + 1)),
    UiElement((0.7, 0.0, 0.1, 1.0), "a\x00b"),
    UiElement((0.82, 0.0, 0.02, 1.0), "1 + 1 = 2"),
    UiElement((0.85, 0.0, 0.02, 1.0), 'Input text "x"'),
    UiElement((0.88, 0.0, 0.02, 1.0), "Cafe\u0301"),
)

fractions = st.floats(0, 1)
taps = st.builds(Action.tap, fractions, fractions)
long_presses = st.builds(Action.long_press, fractions, fractions)
swipes = st.builds(Action.swipe, st.tuples(st.just(0.1), fractions), st.tuples(st.just(0.9), fractions))
others = st.one_of(
    swipes,
    st.text(st.characters(exclude_categories=["Cs"])).map(Action.type_text),
    st.text(st.characters(exclude_categories=["Cs"])).map(Action.open_app),
    st.text(st.characters(exclude_categories=["Cs"])).map(Action.answer),
    st.sampled_from([Action.press("back"), Action.complete(), Action.impossible(), Action.wait(), Action.recents()]),
)
names = st.one_of(
    st.text(),
    st.text(st.sampled_from('=tap at 05"\\I'), max_size=40),
    st.sampled_from(
        [
            "complete",
            "press back",
            "wait",
            'answer "x"',
            'open app "a=tap at 3',
            "tap at 5 5",
            "a=tap at 3",
            'Input text "x"',
            "=",
            "",
            "  ",
            "swipe",
        ]
    ),
)


def on(name: str) -> Screen:
    return Screen(None, (UiElement((0.0, 0.0, 1.0, 1.0), name),))


@pytest.mark.parametrize(
    ("y", "x", "action_text"),
    [
        (0.305, 0.125, "Wi-Fi settings=tap at 30 12"),
        (0.305, 0.855, "ICON_GEAR=tap at 30 85"),
        (0.905, 0.005, "ICON_IMAGE=tap at 90 0"),
        (0.555, 0.505, "tap at 55 50"),  # the name is too long
        (0.755, 0.505, "tap at 75 50"),  # the name contains a control character
        (0.825, 0.505, "tap at 82 50"),  # the name contains the separator
        (0.855, 0.505, "tap at 85 50"),  # the name begins like another action
        (0.885, 0.505, "Caf\u00e9=tap at 88 50"),  # the name is normalised to NFC
    ],
)
def test_a_tap_names_the_smallest_element_under_it(y, x, action_text):
    action = Action.tap(y, x)
    assert LANGUAGE.encode(action, Screen(None, SCREEN)) == action_text
    assert LANGUAGE.decode(action_text).is_tap


@given(names, st.one_of(taps, long_presses, others))
@example("Wi-Fi=tap at 1 2", Action.tap(0.5, 0.5))
def test_an_action_is_decoded_whatever_the_name_of_the_element(name, action):
    action_text = LANGUAGE.encode(action, on(name))
    assert LANGUAGE.decode(action_text) == PLAIN.decode(PLAIN.encode(action))


@given(others)
def test_actions_that_touch_no_element_have_no_name(action):
    assert LANGUAGE.encode(action, on("Wi-Fi")) == PLAIN.encode(action)


@given(swipes)
def test_a_swipe_names_its_target_if_enabled(swipe):
    action_text = WITH_TARGETS.encode(swipe, on("Wi-Fi"), "Maps")
    assert action_text == "Maps=" + PLAIN.encode(swipe)
    assert WITH_TARGETS.decode(action_text) == PLAIN.decode(PLAIN.encode(swipe))
    assert WITH_TARGETS.encode(swipe, on("Wi-Fi")) == PLAIN.encode(swipe)
    assert LANGUAGE.encode(swipe, on("Wi-Fi"), "Maps") == PLAIN.encode(swipe)
    assert LANGUAGE.decode(action_text) is None


@given(names, st.one_of(taps, others))
def test_only_swipes_name_a_target(name, action):
    screen = on(name)
    if not action.is_swipe:
        assert WITH_TARGETS.encode(action, screen, "Maps") == LANGUAGE.encode(action, screen)


@given(taps)
def test_without_a_screen_or_elements_a_tap_has_no_name(tap):
    assert LANGUAGE.encode(tap) == LANGUAGE.encode(tap, Screen(None)) == PLAIN.encode(tap)


@pytest.mark.parametrize("language", [LANGUAGE, WITH_TARGETS])
@given(names, st.one_of(taps, long_presses, others))
@example('open app "a', Action.tap(0.5, 0.5))
@example('answer "a', Action.long_press(0.5, 0.5))
def test_every_prefix_of_an_action_has_an_ending_and_a_whole_action_an_empty_one(language, name, action):
    action_text = language.encode(action, on(name), "Maps")
    assert all(language.ending(action_text[:end]) is not None for end in range(len(action_text) + 1))
    assert language.ending(action_text) == ""


@pytest.mark.parametrize("language", [LANGUAGE, WITH_TARGETS])
@given(st.one_of(names, st.text(max_size=4), st.text(st.sampled_from('=tap at 0"I\x08é'), max_size=40)))
@example('Input text "\\q')
@example('Input text "=tap at 0 0')
@example("Wifi=tap at 3foo")
@example("Wifi=swi")
@example("Wifi=swipe from 3")
@example("Wifi=swipe at")
@example("Wifi=long press at 3")
@example('answer "=tap at 0 0')
@example('open app "x=tap at 0 0')
@example("n" * (MAX_NAME_CHARACTERS + 1))
def test_an_ending_completes_an_action_and_each_of_its_characters_shortens_the_rest(language, text):
    ending = language.ending(text)
    assert ending is None or language.decode(text + ending) is not None
    assert language.decode(text) is None or ending == ""
    while ending:
        text += ending[0]
        rest = language.ending(text)
        assert len(rest) < len(ending)
        ending = rest


@pytest.mark.parametrize(
    "text",
    [
        "=tap at 1 2",
        "Wi-Fi= tap at 1 2",
        "Wi-Fi=tap at 100 2",
        "Wi-Fi=complete",
        "Wi-Fi=",
        "Wi-Fi",
        "a\nb=tap at 1 2",
        "a=b=tap at 1 2",
        'Input text "x=tap at 1 2',
        "n" * (MAX_NAME_CHARACTERS + 1) + "=tap at 1 2",
        "Wi-Fi=swipe from 1 2 to 50 2",
    ],
)
def test_texts_that_nearly_are_actions_are_rejected(text):
    assert LANGUAGE.decode(text) is None


@pytest.mark.parametrize("language", [LANGUAGE, WITH_TARGETS])
@given(st.text())
@example("=" * 100_000)
@example("a=tap at " + "9" * 5_000 + " 1")
@example("a=swipe from 1 2 to 50 2")
def test_a_text_is_an_action_exactly_if_its_ending_is_empty(language, text):
    assert (language.decode(text) is not None) == (language.ending(text) == "")


def test_a_long_press_names_the_touched_element():
    action = Action.long_press(0.305, 0.125)
    assert LANGUAGE.encode(action, Screen(None, SCREEN)) == "Wi-Fi settings=long press at 30 12"
    assert LANGUAGE.decode("Wi-Fi settings=long press at 30 12") == action


def test_the_instructions_explain_names():
    assert "Settings=long press" not in LANGUAGE.instructions
    assert "Settings=long press at Y X" in NamedLanguage(all_action_kinds=True).instructions
    assert "Settings=tap at Y X" in LANGUAGE.instructions
    assert "Settings=swipe" not in LANGUAGE.instructions
    assert "Settings=swipe from Y X to Y X" in WITH_TARGETS.instructions
