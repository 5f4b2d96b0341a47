"""Properties of every registered action language with its default settings."""

import pytest
from helpers.evaluation.strict_rule import strictly_match
from hypothesis import assume, example, given
from hypothesis import strategies as st

from vlm_agent.action_languages import LANGUAGES, ActionLanguage
from vlm_agent.episodes import Action, Screen

PUBLISHED_RULES = ("auto_ui", "coat")
"""Languages that take the direction of a near-diagonal swipe from the code that published them, not from AITW."""

SCREEN = Screen(None, size=(2400, 1080))
"""Without elements and pixels, for languages that count pixels."""

COORDINATE = st.floats(0, 1, width=32)
POINTS = st.tuples(COORDINATE, COORDINATE)


def near_diagonal(touch: tuple[float, float], moved_yx: tuple[float, float], skew: float) -> Action:
    """A gesture from `touch` by (±distance, ±distance), cut at the edges of the screen, and by `skew` in x."""
    y, x = (min(max(start + by, 0.0), 1.0) for start, by in zip(touch, moved_yx, strict=True))
    return Action.swipe(touch, (y, min(max(x + skew, 0.0), 1.0)))


DIAGONALS = st.tuples(st.floats(0, 1), st.sampled_from([-1, 1]), st.sampled_from([-1, 1])).map(
    lambda drawn: (drawn[0] * drawn[1], drawn[0] * drawn[2])
)
ACTIONS = st.one_of(
    st.builds(lambda point: Action.tap(*point), POINTS),
    st.builds(Action.swipe, POINTS, POINTS),
    st.builds(near_diagonal, POINTS, DIAGONALS, st.floats(-0.02, 0.02)),
    st.builds(Action.type_text, st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]))),
    st.sampled_from([*map(Action.press, ("back", "home", "enter")), Action.complete(), Action.impossible()]),
)

RELEASED = [name for name, kind in LANGUAGES.items() if ".released." in kind.__module__]
GROUPS = {name: [name] for name in LANGUAGES if name not in RELEASED} | {"released": RELEASED}
"""Languages of released agents share their code: the examples of a test are spread over all of them."""

every_language = pytest.mark.parametrize("group", GROUPS)
drawn = st.integers(0, len(RELEASED) - 1)


def named(group: str, number: int) -> tuple[str, ActionLanguage]:
    name = GROUPS[group][number % len(GROUPS[group])]
    return name, LANGUAGES[name]().build()


def is_cut(name: str, action: Action) -> bool:
    """CogAgent's box of a point near the edge is cut, which moves its centre."""
    return name == "cogagent" and any(not 0.03 < part < 0.97 for part in action.touch_yx if part >= 0)


@every_language
@given(action=ACTIONS, number=drawn)
def test_an_encoded_action_is_decoded_to_one_with_the_same_text(group, action, number):
    name, language = named(group, number)
    assume(not is_cut(name, action))
    text = language.encode(action, SCREEN)
    decoded = language.decode(text, SCREEN)
    assert decoded is not None
    assert language.encode(decoded, SCREEN) == text


@every_language
@given(action=ACTIONS, number=drawn)
@example(action=Action.swipe((0.4809, 0.2069), (0.3283, 0.0510)), number=0)  # left, by 0.0033
def test_an_encoded_action_is_decoded_to_one_of_the_same_kind_and_direction(group, action, number):
    name, language = named(group, number)
    if action.is_swipe and name in PUBLISHED_RULES:
        dy, dx = (abs(end - start) for start, end in zip(action.touch_yx, action.lift_yx, strict=True))
        assume(not 0.89 * dx < dy < 1.01 * dx)
    decoded = language.decode(language.encode(action, SCREEN), SCREEN)
    assert decoded is not None
    assert (decoded.name, decoded.direction) == (action.name, action.direction)
    assert not action.is_swipe or strictly_match(action, decoded, ())


@every_language
@given(text=st.text(), number=drawn)
def test_decoding_never_raises(group, text, number):
    named(group, number)[1].decode(text, SCREEN)


@every_language
@given(action=ACTIONS, end=st.integers(0, 40))
def test_every_prefix_of_an_action_has_an_ending(group, action, end):
    _, language = named(group, 0)
    if language.has_ending:
        prefix = language.encode(action, SCREEN)[:end]
        ending = language.ending(prefix)
        assert ending is not None
        assert language.decode(prefix + ending, SCREEN) is not None


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_vocabulary_has_each_coordinate_once_per_axis(name):
    language = LANGUAGES[name]().build()
    for axis in (0, 1):
        coordinates = language.vocabulary().axis(axis)
        pieces = [coordinate.piece for coordinate in coordinates]
        assert len(pieces) == len(set(pieces))
        assert {coordinate.axis for coordinate in coordinates} <= {axis}
