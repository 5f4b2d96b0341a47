"""A word is a token, a coordinate is a token, and any text comes back."""

from dataclasses import replace

import pytest
from helpers import tiny
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages import Coordinate, LanguageVocabulary
from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.episodes import Action
from vlm_agent.models.word_tokenizer import build_word_tokenizer, coordinate_ids, words_by_space

WORDS = ("Settings", "naïve", "ICON_HOME", "don't", "completely", "homepage", "東京", "to", "tap")
PLACES = [(axis, place) for axis in (0, 1) for place in range(10)]
VOCABULARY = BinnedLanguage().vocabulary()
TOKENIZER = build_word_tokenizer(WORDS, VOCABULARY, 4096)
SPACED = build_word_tokenizer([*WORDS, *(f" {word}" for word in WORDS)], VOCABULARY, 4096, leading_spaces=True)


def encode(text: str, tokenizer=TOKENIZER) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids


def decode(ids: list[int], tokenizer=TOKENIZER) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, SPACED], ids=["words", "leading_spaces"])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(tokenizer, text):
    assert decode(encode(text, tokenizer), tokenizer) == text


@pytest.mark.parametrize("tokenizer", [TOKENIZER, SPACED], ids=["words", "leading_spaces"])
@pytest.mark.parametrize("text", ["</s>", "<s> <pad>", "a </s> b", "\n\n\t  x", " .,!? ", "5 , 7 .", "1 2 3 4"])
def test_marks_spaces_and_punctuation_survive(tokenizer, text):
    assert decode(encode(text, tokenizer), tokenizer) == text
    assert not set(encode(text, tokenizer)) & set(tokenizer.all_special_ids)


@pytest.mark.parametrize("word", WORDS)
def test_a_known_word_is_one_token(word):
    assert len(encode(word)) == 1


@pytest.mark.parametrize("word", WORDS)
def test_with_leading_spaces_the_space_is_part_of_the_word(word):
    joined, bare = encode(f"{word} {word}", SPACED)[-1], encode(word, SPACED)
    assert len(encode(f"{word} {word}", SPACED)) == 2
    assert (joined, *bare) in set(zip(*words_by_space(SPACED), strict=True))


def test_with_leading_spaces_only_one_space_is_part_of_the_word():
    assert encode("  tap", SPACED) == encode(" ", SPACED) + encode(" tap", SPACED)
    assert encode("\ntap", SPACED) == encode("\n", SPACED) + encode("tap", SPACED)


def test_without_leading_spaces_no_word_has_two_tokens():
    assert words_by_space(TOKENIZER) == ([], [])


@pytest.mark.parametrize("number", range(100))
def test_every_coordinate_is_one_token_on_each_axis(number):
    rows, columns = (coordinate_ids(TOKENIZER, VOCABULARY.axis(axis)) for axis in (0, 1))
    assert encode(f"tap at {number} {number}")[1:] == [rows[number], columns[number]]
    assert not set(rows) & set(columns)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, SPACED], ids=["words", "leading_spaces"])
def test_an_action_in_a_sentence_has_the_tokens_of_the_action(tokenizer):
    action = encode("tap at 7 90", tokenizer)
    assert encode("tap: tap at 7 90", tokenizer)[-len(action) :] == action
    assert encode("tap press back", tokenizer)[-1:] == encode("press back", tokenizer)


def test_without_phrases_words_have_leading_spaces_too():
    language = replace(VOCABULARY, phrases=(), coordinates=())
    tokenizer = build_word_tokenizer(["tap settings", "settings tap"], language, 4096, leading_spaces=True)
    assert len(encode("tap settings", tokenizer)) == 2


def test_a_swipe_is_six_tokens_and_a_button_is_one():
    assert len(encode("swipe from 3 44 to 40 48")) == 6
    fixed = ("press back", "press home", "press enter", "complete", "impossible")
    assert all(len(encode(text)) == 1 for text in fixed)


def test_phrases_do_not_swallow_the_words_of_a_goal():
    assert len(encode("completely")) == 1
    assert decode(encode("completed tap at to home")) == "completed tap at to home"
    assert encode("go to home")[1:] != encode("go to 3")[1:]


def test_unknown_words_fall_to_bytes():
    assert len(encode("zqx")) == 3


@given(
    st.builds(Action.swipe, st.tuples(st.floats(0, 1), st.floats(0, 1)), st.tuples(st.floats(0, 1), st.floats(0, 1)))
)
def test_every_gesture_is_phrases_and_coordinates(gesture):
    text = BinnedLanguage().encode(gesture)
    assert len(encode(text)) == (3 if gesture.is_tap else 6)
    assert decode(encode(text)) == text


def test_the_same_words_in_any_order_make_the_same_tokenizer():
    texts = ["b a c", "a d", "e"]
    one, other = (build_word_tokenizer(order, VOCABULARY, 4096).get_vocab() for order in (texts, texts[::-1]))
    assert one == other


def test_the_vocabulary_is_bounded_and_keeps_the_commonest_words():
    size = len(build_word_tokenizer([], VOCABULARY, 4096)) + 2  # "aa" and "bb"; the space is there already
    small = build_word_tokenizer(["aa aa aa bb bb cc"], VOCABULARY, size)
    assert len(small) <= size
    assert [len(encode(word, small)) for word in ("aa", "bb", "cc")] == [1, 1, 2]


def test_it_saves_and_loads(tmp_path):
    from transformers import AutoTokenizer

    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("tap at 7 90", "naïve </s> 東京 zqx", tiny.episode().goal):
        assert encode(text, loaded) == encode(text)
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (1, 2, 0)


def test_coordinates_in_brackets_are_one_token_each():
    language = LanguageVocabulary(
        ("touch ",), tuple(Coordinate(f"<{axis}{place}>", axis, 0.5) for axis, place in PLACES)
    )
    tokenizer = build_word_tokenizer(["touch"], language, 4096)
    assert encode("<03><17>", tokenizer) == coordinate_ids(
        tokenizer, [language.coordinates[3], language.coordinates[17]]
    )
