"""Constrained decoding writes an action, whatever the logits."""

import json

import pytest
import torch
from helpers import tiny
from helpers.models import tokenizers_of_all_kinds as kinds
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.auto_ui import AutoUiLanguage
from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.action_languages.named import NamedLanguage
from vlm_agent.agents.auto_ui.agent import CONSTRAINED_TOKENS
from vlm_agent.agents.decoding.constrained import Constrained, _bytes_missing, token_bytes
from vlm_agent.agents.decoding.greedy import Limits
from vlm_agent.episodes import Action
from vlm_agent.errors import UserError
from vlm_agent.sentences.steps import StepSentences

TOKENIZERS = {"words": tiny.tokenizer(), "byte-level": kinds.byte_level(), "sentencepiece": kinds.sentencepiece()}
LANGUAGE = BinnedLanguage()
every_kind = pytest.mark.parametrize("kind", TOKENIZERS)


def limits(kind: str, max_tokens: int = 64) -> Limits:
    return Limits(TOKENIZERS[kind].eos_token_id, max_tokens)


def ids_of(kind: str, text: str) -> list[int]:
    return TOKENIZERS[kind](text, add_special_tokens=False, split_special_tokens=True).input_ids


def text_of(kind: str, ids: list[int]) -> str:
    return TOKENIZERS[kind].decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def decode(
    kind: str, written: list[int], seed: int, likely_end: float, max_tokens: int, language: ActionLanguage = LANGUAGE
) -> list[int]:
    """Constrained decoding of random logits; `likely_end` is added to the logit of the end mark."""
    bounds, generator = limits(kind, max_tokens), torch.Generator().manual_seed(seed)
    choose = Constrained(TOKENIZERS[kind], language, bounds)
    while not written or not bounds.reached(written):
        logits = torch.randn(len(TOKENIZERS[kind]), generator=generator)
        logits[bounds.end_mark] += likely_end
        written = [*written, choose(written, int(logits.argmax()), lambda logits=logits: logits)]
    return written


@every_kind
@given(
    st.sampled_from(
        [
            "",
            "swipe from 7 90 to 7 9",
            "long press at 7",
            'open app "',
            'answer "\\',
            'Input text "',
            'Input text "gr',
            'Input text "\\',
        ]
    ),
    st.integers(0, 1 << 20),
    st.sampled_from([-9.0, 0.0, 9.0]),
    st.integers(50, 64),
)
@settings(max_examples=40, deadline=None)
def test_every_answer_is_an_action_within_the_limit(kind, prefix, seed, likely_end, max_tokens):
    written = decode(kind, ids_of(kind, prefix), seed, likely_end, max_tokens)
    assert len(written) <= max_tokens
    assert written[-1] == TOKENIZERS[kind].eos_token_id
    assert LANGUAGE.decode(text_of(kind, written)) is not None


@every_kind
@given(
    st.sampled_from(["", "Wi-Fi", "Wi-Fi=", "Wi-Fi=tap at 3", "grü", "tap at 3", 'Input text "', "n" * 32]),
    st.integers(0, 1 << 20),
    st.sampled_from([-9.0, 0.0, 9.0]),
)
@settings(max_examples=40, deadline=None)
def test_a_tap_with_a_name_is_an_action_within_the_limit(kind, prefix, seed, likely_end):
    written = decode(kind, ids_of(kind, prefix), seed, likely_end, 64, NamedLanguage())
    assert written[-1] == TOKENIZERS[kind].eos_token_id
    assert NamedLanguage().decode(text_of(kind, written)) is not None


@every_kind
@given(
    st.sampled_from(["", "Action Plan: [TYPE,", 'Action Plan: [WAIT] ; Action Decision: "action_type": "TYPE", ']),
    st.integers(0, 1 << 20),
    st.sampled_from([-9.0, 0.0, 9.0]),
)
@settings(max_examples=6, deadline=None)
def test_a_plan_and_its_action_are_within_the_limit(kind, prefix, seed, likely_end):
    tokenizer = TOKENIZERS[kind]
    sentences = StepSentences(tokenizer, AutoUiLanguage(), max_target_tokens=1)
    bounds, generator = limits(kind, CONSTRAINED_TOKENS + 1), torch.Generator().manual_seed(seed)
    choose, written = Constrained(tokenizer, sentences.language, bounds, sentences.ending), ids_of(kind, prefix)
    while not written or not bounds.reached(written):
        logits = torch.randn(len(tokenizer), generator=generator)
        logits[bounds.end_mark] += likely_end
        written = [*written, choose(written, int(logits.argmax()), lambda logits=logits: logits)]
    text = text_of(kind, written)
    assert written[-1] == tokenizer.eos_token_id
    assert sentences.language.decode(text) is not None
    assert 1 <= len(sentences.plan_of(text)) <= sentences.future


@pytest.mark.parametrize(("started", "fits"), [(b"\xc3", True), (b"\xe4", False), (b"\xf0", False)])
def test_a_character_that_a_name_of_an_element_has_no_room_for_is_not_started(started, fits):
    choose = Constrained(TOKENIZERS["byte-level"], ElementIndexLanguage(names=True), limits("byte-level", 200))
    name = b'{"action_type": "click", "idx": "' + b"n" * 78
    assert (choose._tokens_to_end(name + started) is not None) is fits


@pytest.mark.parametrize("letter", ["\x7f", "\x80", "\u07ff", "\u0800", "\u0e01", "\u0905", "\uffff", "\U00010000"])
def test_the_missing_bytes_of_a_started_character_are_counted(letter):
    """First and last letters of each length in UTF-8; Thai and Devanagari begin with 0xE0, the first of three bytes."""
    spelt = letter.encode()
    assert [_bytes_missing(spelt[:count]) for count in range(1, len(spelt))] == [*range(len(spelt) - 1, 0, -1)]


@every_kind
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
@settings(max_examples=60, deadline=None)
def test_every_token_of_a_demonstrated_action_is_allowed(kind, text):
    check_allowed(kind, Action.type_text(text))


@every_kind
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
@settings(max_examples=20, deadline=None)
def test_every_token_of_the_later_action_types_is_allowed(kind, text):
    actions = (Action.open_app(text), Action.answer(text), Action.long_press(0.3, 0.7), Action.wait(), Action.recents())
    for action in actions:
        check_allowed(kind, action)


def allows(choose: Constrained, written: list[int], token: int) -> bool:
    """Whether `token` may follow `written`, the allowed tokens so far."""
    return choose._may_follow(choose._spelt(written), len(written), token)


def check_allowed(kind: str, action: Action) -> None:
    text = LANGUAGE.encode(action)
    ids = [*ids_of(kind, text), TOKENIZERS[kind].eos_token_id]
    choose = Constrained(TOKENIZERS[kind], LANGUAGE, limits(kind, 200))
    assert text_of(kind, ids) == text
    assert all(allows(choose, ids[:at], token) for at, token in enumerate(ids))


@every_kind
def test_the_most_likely_allowed_token_is_chosen(kind):
    choose = Constrained(TOKENIZERS[kind], LANGUAGE, limits(kind))
    wrong, right = ids_of(kind, "x")[-1], ids_of(kind, "complete")[0]
    logits = torch.zeros(len(TOKENIZERS[kind]))
    logits[wrong], logits[right] = 2.0, 1.0
    assert choose([], right, lambda: pytest.fail("logits are not needed")) == right
    assert choose([], wrong, lambda: logits) == right


@every_kind
def test_the_end_mark_is_allowed_only_after_a_complete_action(kind):
    choose, end = Constrained(TOKENIZERS[kind], LANGUAGE, limits(kind)), TOKENIZERS[kind].eos_token_id
    assert allows(choose, ids_of(kind, "tap at 7 90"), end)
    assert not allows(choose, ids_of(kind, "tap at 7"), end)
    assert not allows(choose, [], end)


def test_a_character_may_be_split_over_tokens_but_must_be_completed():
    table, _ = token_bytes(TOKENIZERS["byte-level"])
    written = [*ids_of("byte-level", 'Input text "'), table.index(b"\xf0")]  # the first byte of an emoji
    choose = Constrained(TOKENIZERS["byte-level"], LANGUAGE, limits("byte-level"))
    follows = {table[token] for token in range(len(table)) if allows(choose, written, token)}
    assert b"\x9f" in follows
    assert not {b"\x80", b'"', b"a", b"\xf0"} & follows


def test_the_bytes_of_a_surrogate_are_not_allowed():
    table, _ = token_bytes(TOKENIZERS["byte-level"])
    written = [*ids_of("byte-level", 'Input text "'), table.index(b"\xed")]
    choose = Constrained(TOKENIZERS["byte-level"], LANGUAGE, limits("byte-level"))
    assert allows(choose, written, table.index(b"\x9f"))
    assert not allows(choose, written, table.index(b"\xa0"))


def test_near_the_limit_typed_text_must_be_closed():
    """Two tokens remain: the last one of the action and the end mark."""
    kind = "byte-level"
    written = ids_of(kind, 'Input text "') + ids_of(kind, "x") * 30
    choose = Constrained(TOKENIZERS[kind], LANGUAGE, limits(kind, len(written) + 2))
    table, _ = token_bytes(TOKENIZERS[kind])
    allowed = {table[token] for token in range(len(table)) if allows(choose, written, token)}
    assert b'"' in allowed
    assert all(spelt.endswith(b'"') for spelt in allowed)


@every_kind
def test_the_bytes_of_tokens_equal_the_decoded_text(kind):
    table, drops_space = token_bytes(TOKENIZERS[kind])
    for text in [*kinds.TEXTS, "\x00\x7f \t\n 👩‍👩‍👧"]:
        ids = ids_of(kind, text)
        spelt = b"".join(table[index] for index in ids)
        assert (spelt.removeprefix(b" ") if drops_space else spelt).decode() == text_of(kind, ids) == text


def test_a_tokenizer_that_cannot_write_every_byte_is_refused_by_name():
    wordpiece = Tokenizer(models.WordPiece({"[UNK]": 0, "tap": 1}, unk_token="[UNK]"))  # noqa: S106
    wordpiece.pre_tokenizer = pre_tokenizers.Whitespace()
    like_t5 = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁tap", -1.0)], unk_id=0))
    like_t5.pre_tokenizer, like_t5.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    for tokenizer, name in ((wordpiece, "WordPiece"), (like_t5, "Unigram")):
        with pytest.raises(UserError, match=f"can write every byte; this one, .* is {name} without bytes"):
            token_bytes(PreTrainedTokenizerFast(tokenizer_object=tokenizer))


def test_added_tokens_of_any_letters_and_gaps_between_ids_are_no_obstacle():
    tokenizer = kinds.byte_level()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<\uff5cUser\uff5c>"]})
    tokenizer.add_tokens(["two words"])
    vocabulary = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary["model"]["vocab"]["\uff5c"] = len(tokenizer) + 5
    gaps = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(vocabulary)))
    table, _ = token_bytes(gaps)
    places = gaps.get_vocab()
    assert len(table) == max(places.values()) + 1
    assert table[places["two words"]] == b"two words"
    assert table[places["<\uff5cUser\uff5c>"]] is None
    assert table[places["\uff5c"]] is None
