"""The binned language decodes exactly the texts that it encodes."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.binned import LATER_PHRASES, PHRASES, BinnedLanguage
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Step
from vlm_agent.evaluation.scoring.dialects import is_officially_right
from vlm_agent.geometry import TAP_DISTANCE, directions, float32_directions

BINS = (2, 10, 100, 1000)
languages = st.sampled_from([BinnedLanguage(bins) for bins in BINS])
fractions = st.floats(0, 1)
points = st.tuples(fractions, fractions)
unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
gestures = st.one_of(
    points.map(lambda point: Action.tap(*point)),
    st.builds(Action.swipe, points, points),
    # Swipes just above the length of a tap, where bins are coarser than the gesture.
    st.builds(
        lambda touch, angle, length: Action.swipe(
            touch,
            tuple(min(max(v + length * f(angle), 0), 1) for v, f in zip(touch, (math.sin, math.cos), strict=True)),
        ),
        points,
        st.floats(0, 2 * math.pi),
        st.floats(0.03, 0.08),
    ),
)
actions = st.one_of(
    gestures,
    points.map(lambda point: Action.long_press(*point)),
    unicode_text.map(Action.type_text),
    unicode_text.map(Action.open_app),
    unicode_text.map(Action.answer),
    st.sampled_from([Action.wait(), Action.recents()]),
    st.sampled_from([*(Action.press(button) for button in BUTTONS), Action.complete(), Action.impossible()]),
)


def test_the_default_is_one_hundred_bins_as_in_the_paper():
    assert language_settings({"name": "binned"}).build() == BinnedLanguage(100)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action.tap(0.075, 0.905), "tap at 7 90"),
        (Action.swipe((0.035, 0.445), (0.405, 0.485)), "swipe from 3 44 to 40 48"),
        (Action.type_text("txt"), 'Input text "txt"'),
        (Action.type_text('say "hi"\n'), 'Input text "say \\"hi\\"\\n"'),
        (Action.type_text("grüße 👋"), 'Input text "grüße 👋"'),
        (Action.press("back"), "press back"),
        (Action.press("home"), "press home"),
        (Action.press("enter"), "press enter"),
        (Action.complete(), "complete"),
        (Action.impossible(), "impossible"),
        (Action.tap(0, 0), "tap at 0 0"),
        (Action.tap(1, 1), "tap at 99 99"),
        (Action.long_press(0.075, 0.905), "long press at 7 90"),
        (Action.open_app("Maps"), 'open app "Maps"'),
        (Action.open_app('"M"\n'), 'open app "\\"M\\"\\n"'),
        (Action.answer("4 o'clock"), 'answer "4 o\'clock"'),
        (Action.wait(), "wait"),
        (Action.recents(), "press recents"),
    ],
)
def test_actions_are_encoded_as_in_the_paper(action, text):
    language = BinnedLanguage()
    assert language.encode(action) == text
    assert language.decode(text).kind is action.kind


@given(languages, actions)
@example(BinnedLanguage(2), Action.swipe((0.1, 0.1), (0.2, 0.1)))
@example(BinnedLanguage(1000), Action.swipe((0.9999, 0.5), (0.9559, 0.5)))
@example(BinnedLanguage(10), Action.swipe((1.0, 1.0), (1.0, 0.95)))
@example(BinnedLanguage(100), Action.swipe((0.4809, 0.2069), (0.3283, 0.0510)))  # left: the main axis can grow
@example(BinnedLanguage(100), Action.swipe((0.0, 0.005), (0.991, 0.999)))  # right, from edge to edge: it cannot
@example(BinnedLanguage(2), Action.swipe((0.4, 0.6), (0.6, 0.3)))
@example(BinnedLanguage(2), Action.swipe((0.9, 0.1), (0.1, 0.9)))
def test_decoding_preserves_type_direction_and_text_of_an_action(language, action):
    back = language.decode(language.encode(action))
    assert back.kind is action.kind
    assert (back.name, back.direction) == (action.name, action.direction)
    assert back.text == action.text


@settings(deadline=None)
@given(languages, st.tuples(fractions, fractions, fractions), st.integers(-2, 2), st.floats(-0.5, 0.5))
def test_a_swipe_near_a_diagonal_matches_itself_by_the_official_rule_which_compares_float32(
    language, drawn, bins, skew
):
    """Equal numbers of bins on both axes are a tie, which rounding decides."""
    y, x, moved = drawn
    lift = (min(y + moved, 1), min(max(x + moved + (bins + skew) / language.bins, 0), 1))
    swipe = Action.swipe((y, x), lift)
    assume(swipe.is_swipe and float32_directions((y, x), lift) == directions((y, x), lift))
    step = Step(np.zeros((1, 1, 3), np.uint8), swipe)
    assert is_officially_right(language.decode(language.encode(swipe)), step)


@given(languages, points)
def test_a_tap_is_decoded_within_half_a_bin(language, point):
    back = language.decode(language.encode(Action.tap(*point)))
    assert back.touch_yx == back.lift_yx
    assert all(abs(a - b) <= 0.5 / language.bins + 1e-9 for a, b in zip(back.touch_yx, point, strict=True))


@given(languages, points)
def test_a_long_press_is_quantized_like_a_tap(language, point):
    back = language.decode(language.encode(Action.long_press(*point)))
    assert back == Action.long_press(*language.decode(language.encode(Action.tap(*point))).touch_yx)


@given(languages, points, points)
@example(BinnedLanguage(), (0.4809, 0.2069), (0.3283, 0.0510))
@example(BinnedLanguage(), (0.0, 0.005), (0.991, 0.999))
def test_a_swipe_longer_than_the_tap_threshold_plus_two_bins_is_decoded_within_half_a_bin(language, touch, lift):
    """And within two bins more if it is so near to a diagonal that half a bin may change its direction."""
    dy, dx = (abs(start - end) for start, end in zip(touch, lift, strict=True))
    assume(max(dy, dx) > TAP_DISTANCE + 2 / language.bins)
    back = language.decode(language.encode(Action.swipe(touch, lift)))
    bins = 0.5 if abs(dy - dx) > 2 / language.bins else 2.5
    ends = zip(back.touch_yx + back.lift_yx, touch + lift, strict=True)
    assert all(abs(a - b) <= bins / language.bins + 1e-9 for a, b in ends)


@given(gestures)
def test_a_short_swipe_is_moved_by_at_most_the_tap_threshold_plus_a_bin(gesture):
    language = BinnedLanguage(100)
    back = language.decode(language.encode(gesture))
    distance = max(
        abs(a - b) for a, b in zip(back.lift_yx + back.touch_yx, gesture.lift_yx + gesture.touch_yx, strict=True)
    )
    assert distance <= (TAP_DISTANCE if gesture.is_swipe else TAP_DISTANCE + 0.01) + 0.01


@given(languages, unicode_text)
@example(BinnedLanguage(), '"\\\n\r\t\x00\x7f\u2028 </s> \\u0041')
def test_typed_text_is_decoded_exactly(language, text):
    for action in (Action.type_text(text), Action.open_app(text), Action.answer(text)):
        assert language.decode(language.encode(action)) == action


@given(languages, actions)
@example(BinnedLanguage(), Action.type_text('\x00\x08\t\x0b\x1f\x7f"\\\u2028 \U0001f44b'))
def test_every_prefix_of_an_action_has_an_ending(language, action):
    text = language.encode(action)
    assert all(language.ending(text[:end]) is not None for end in range(len(text) + 1))
    assert language.ending(text) == ""


prefixes = st.one_of(
    st.tuples(languages, actions, st.integers(0, 40)).map(lambda drawn: drawn[0].encode(drawn[1])[: drawn[2]]),
    st.builds("swipe from {} {} to {} {}".format, *(st.integers(0, 1005) for _ in range(4))),
    st.builds("swipe from {0} {1} to {0} {2}".format, *(st.integers(0, 120) for _ in range(3))),
    st.text(st.sampled_from('0abcdefnrtu1"\\\x08\x1f ü'), max_size=8).map('Input text "{}'.format),
    st.text(st.sampled_from('0abcdefnrtu1"\\\x08\x1f ü'), max_size=8).map('open app "{}'.format),
    st.text(max_size=4),
)


@given(languages, prefixes)
@example(BinnedLanguage(1000), "swipe from 2 10 to 2 2")
@example(BinnedLanguage(), "swipe")
@example(BinnedLanguage(), 'Input text "\\u00')
@example(BinnedLanguage(), 'Input text "\\u000a')
def test_a_text_with_its_ending_is_an_action(language, text):
    ending = language.ending(text)
    assert ending is None or language.decode(text + ending) is not None
    assert language.decode(text) is None or ending == ""


@given(languages, prefixes)
def test_each_character_of_an_ending_shortens_the_rest(language, text):
    """So constrained decoding with enough tokens left for an ending always completes it."""
    ending = language.ending(text)
    while ending:
        text += ending[0]
        rest = language.ending(text)
        assert len(rest) < len(ending)
        ending = rest


@given(
    st.sampled_from((2, 5, 12, 30)),
    *(st.integers(0, 29) for _ in range(2)),
    st.text(st.sampled_from("0123456789 "), max_size=5),
)
@example(30, 1, 1, "1 1")
@example(30, 0, 5, "0 5")
@example(30, 3, 29, "3 2")
@example(12, 0, 0, "0 1")
def test_a_prefix_of_a_swipe_has_an_ending_exactly_if_some_swipe_starts_with_it(bins, y, x, rest):
    """Compared with an enumeration of all swipes."""
    language, start = BinnedLanguage(bins), f"swipe from {y} {x} to "
    ends = (f"{to_y} {to_x}" for to_y in range(bins) for to_x in range(bins))
    some = any(end.startswith(rest) and language.decode(start + end) is not None for end in ends)
    assert (language.ending(start + rest) is not None) == some


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "Tap",
        "tap at 07",
        "tap at 7  ",
        "tap at 100",
        "tap at 7 90 ",
        "tap at ٧",
        "swipe from 7 90 to 7 90",
        "swipe from 7 90 to 9 90",
        "completed",
        "press b ",
        'Input text "\\u000a',
        'Input text "\\u00A',
        'Input text "\\/',
        'Input text "\n',
        'Input text "\ud800',
        'Input text "a" ',
        "Input text  ",
        "long press at 100",
        "press recent ",
        "waiting",
        'answer "a" ',
        "open app M",
    ],
)
def test_a_text_that_no_action_starts_with_has_no_ending(text):
    assert BinnedLanguage().ending(text) is None


def test_the_ending_of_a_very_long_text_is_found():
    assert BinnedLanguage().ending('Input text "' + "a\\n" * 200_000) == '"'


@st.composite
def corrupted_actions(draw):
    """The text of an action with a piece removed, replaced or added."""
    text = draw(languages).encode(draw(actions))
    at = draw(st.integers(0, len(text)))
    removed_count = draw(st.integers(0, 3))
    new = draw(
        st.one_of(
            st.text(max_size=3), st.text('0123456789 "\\un', max_size=4), st.sampled_from(PHRASES + LATER_PHRASES)
        )
    )
    return text[:at] + new + text[at + removed_count :]


@given(languages, st.one_of(st.text(), corrupted_actions(), st.text().map(lambda t: f"Input text {json.dumps(t)}")))
@example(BinnedLanguage(), "Input text " + "[" * 100_000)
@example(BinnedLanguage(), "Input text " + "9" * 5_000)
@example(BinnedLanguage(), "tap at " + "9" * 5_000 + " 1")
def test_decoding_never_raises_and_accepts_only_encoded_texts(language, text):
    action = language.decode(text)
    assert action is None or language.encode(action) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "tap at 07 90",
        "tap at 7 090",
        "tap at 7 90 ",
        " tap at 7 90",
        "tap at 7 90\n",
        "tap at 7  90",
        "tap at 7",
        "tap at 7 90 1",
        "tap at 100 5",
        "tap at 5 100",
        "tap at -1 5",
        "tap at 5.0 5",
        "tap at ٧ 5",
        "Tap at 7 90",
        "swipe from 7 90 to 7 90",
        "swipe from 7 90 to 9 90",
        "swipe from 7 90 to 100 90",
        "swipe from 7 90",
        'Input text "a" ',
        'Input text  "a"',
        'Input text "\\u0041"',
        'Input text "\\/"',
        'Input text "\\u00fc"',
        'Input text "\\ud83d\\udc4b"',
        'Input text "\\ud800"',
        'Input text "a',
        "Input text a",
        "Input text 5",
        "Input text null",
        'Input text ["a"]',
        'Input text "a" "b"',
        'Input text "a\nb"',
        "press  back",
        "press menu",
        "complete.",
        "Complete",
        "impossible\n",
        "long press at 7",
        "long press at 7 90 1",
        "long press at 100 5",
        "long press at 07 5",
        "open app Maps",
        'open app "Maps',
        "answer yes",
        'answer ""x',
        "wait 5",
        "press recents ",
    ],
)
def test_texts_that_nearly_are_actions_are_rejected(text):
    assert BinnedLanguage().decode(text) is None


def test_the_instructions_contain_every_form():
    instructions = BinnedLanguage(50).instructions
    assert all(phrase.strip().rstrip('"') in instructions for phrase in PHRASES)
    assert "from 0 to 49" in instructions


def test_instructions_and_vocabulary_contain_the_later_types_only_if_enabled():
    plain, all_kinds = BinnedLanguage(50), BinnedLanguage(50, all_action_kinds=True)
    forms = [phrase.strip().rstrip('"') for phrase in LATER_PHRASES]
    assert not any(form in plain.instructions for form in forms)
    assert all(form in all_kinds.instructions for form in forms)
    assert plain.vocabulary().phrases == PHRASES
    assert all_kinds.vocabulary().phrases == PHRASES + LATER_PHRASES
    assert plain.vocabulary().coordinates == all_kinds.vocabulary().coordinates


def test_a_text_with_a_lone_surrogate_is_rejected():
    assert BinnedLanguage().decode('Input text "\ud800"') is None


def test_decoding_does_not_need_a_screen():
    assert BinnedLanguage().decode("complete", screen=None).kind is ActionKind.STATUS_TASK_COMPLETE


@pytest.mark.parametrize("bins", [1, 0, -5])
def test_fewer_than_two_bins_are_an_error(bins):
    with pytest.raises(ValueError, match="bins"):
        BinnedLanguage(bins)
