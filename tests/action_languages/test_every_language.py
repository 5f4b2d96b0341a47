"""Properties of every registered action language with its default settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages import LANGUAGES, ActionLanguage
from vlm_agent.episodes import Action

COORDINATE = st.floats(0, 1, width=32)
POINTS = st.tuples(COORDINATE, COORDINATE)
ACTIONS = st.one_of(
    st.builds(lambda point: Action.tap(*point), POINTS),
    st.builds(Action.swipe, POINTS, POINTS),
    st.builds(Action.type_text, st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]))),
    st.sampled_from([*map(Action.press, ("back", "home", "enter")), Action.complete(), Action.impossible()]),
)

every_language = pytest.mark.parametrize(
    "language", [kind().build() for kind in LANGUAGES.values()], ids=list(LANGUAGES)
)


@every_language
@given(action=ACTIONS)
def test_an_encoded_action_is_decoded_to_one_with_the_same_text(language: ActionLanguage, action):
    text = language.encode(action)
    decoded = language.decode(text)
    assert decoded is not None
    assert language.encode(decoded) == text


@every_language
@given(text=st.text())
def test_decoding_never_raises(language: ActionLanguage, text):
    language.decode(text)


@every_language
@given(action=ACTIONS, end=st.integers(0, 40))
def test_every_prefix_of_an_action_has_an_ending(language: ActionLanguage, action, end):
    if language.has_ending:
        prefix = language.encode(action)[:end]
        ending = language.ending(prefix)
        assert ending is not None
        assert language.decode(prefix + ending) is not None


@every_language
def test_the_vocabulary_has_each_coordinate_once_per_axis(language: ActionLanguage):
    for axis in (0, 1):
        pieces = [coordinate.piece for coordinate in language.vocabulary().axis(axis)]
        assert len(pieces) == len(set(pieces))
