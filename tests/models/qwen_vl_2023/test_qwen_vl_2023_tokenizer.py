"""Qwen's tokens, as ranks and a pattern define them; special tokens in typed text are plain text."""

import base64
import unicodedata
from itertools import pairwise

import pytest
import regex
from helpers.published import published_qwen_vl as published
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from vlm_agent.models.conversion import CheckpointFormatError
from vlm_agent.models.qwen_vl_2023.tokenizer import SPECIAL_TOKENS, build_tokenizer

PIECE = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = 256
RANKS = {bytes([(33 + number) % 256]): number for number in range(BYTES)}
RANKS |= {token: rank for rank, token in enumerate(published.MERGED, BYTES)}
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from(list("thewolingaa11 \n\r\t'東京é\u0301.<|img>"))),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Saved and loaded, as a converted folder has it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(published.write_vocabulary(folder / "qwen.tiktoken"), 8192).save_pretrained(folder / "saved")
    return AutoTokenizer.from_pretrained(folder / "saved")


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids


def plainly_encoded(text: str) -> list[int]:
    """A piece with a rank is a token; of any other, the neighbours of the lowest common rank merge, again and again."""
    ids = []
    for piece in PIECE.findall(unicodedata.normalize("NFC", text)):
        whole = piece.encode()
        parts = [whole] if whole in RANKS else [bytes([byte]) for byte in whole]
        while ranked := [(RANKS[a + b], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in RANKS]:
            at = min(ranked)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids += [RANKS[part] for part in parts]
    return ids


@given(text=TEXTS)
def test_tokens_are_those_of_the_ranks(text, tokenizer):
    assert encode(tokenizer, text) == plainly_encoded(text)


@given(text=TEXTS)
def test_any_text_survives_in_normal_form(text, tokenizer):
    decoded = tokenizer.decode(encode(tokenizer, text), skip_special_tokens=True)
    assert decoded == unicodedata.normalize("NFC", text)


def test_a_token_that_no_merge_makes_is_found_as_a_whole_piece_only(tokenizer):
    assert encode(tokenizer, "whole") == [RANKS[b"whole"]]
    assert len(encode(tokenizer, "wholes")) == 6


def test_ids_of_special_tokens_follow_the_ranks_in_the_published_order(tokenizer):
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(RANKS), len(RANKS) + 217))
    ids = {token: 151_643 + number for number, token in enumerate(SPECIAL_TOKENS)}  # after the published 151,643 ranks
    assert (ids["<|endoftext|>"], ids["<|im_start|>"], ids["<|im_end|>"]) == (151_643, 151_644, 151_645)
    assert (ids["<|extra_0|>"], ids["<|extra_204|>"]) == (151_646, 151_850)
    assert (ids["<ref>"], ids["</box>"], ids["<quad>"]) == (151_851, 151_854, 151_855)
    assert (ids["<img>"], ids["</img>"], ids["<imgpad>"]) == (151_857, 151_858, 151_859)


@pytest.mark.parametrize("token", ["<|endoftext|>", "<img>", "</img>", "<|extra_7|>", "<box>"])
def test_special_tokens_that_a_user_types_are_text(token, tokenizer):
    typed = encode(tokenizer, f"open {token} now")
    assert not set(typed) & set(tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)))
    assert tokenizer.decode(typed, skip_special_tokens=True) == f"open {token} now"
    assert tokenizer(token).input_ids == [tokenizer.convert_tokens_to_ids(token)]


def test_a_text_begins_with_nothing_and_ends_and_pads_with_one_token(tokenizer):
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_id == tokenizer.pad_token_id == len(RANKS)
    assert tokenizer("a").input_ids == encode(tokenizer, "a")
    assert len(tokenizer) == len(RANKS) + 217
    assert tokenizer.model_max_length == 8192


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("QQ== 0\nno base64! 1\n", "line 2"),
        ("QQ== zero\n", "line 1"),
        ("QQ==\n", "line 1"),
        ("", "0 tokens"),
        ("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in RANKS.items() if rank != 7), "255"),
        ("".join(f"{base64.b64encode(token).decode()} {rank + 1}\n" for token, rank in RANKS.items()), "from 0 up"),
    ],
)
def test_a_damaged_vocabulary_is_named(content, message, tmp_path):
    file = tmp_path / "qwen.tiktoken"
    file.write_text(content)
    with pytest.raises(CheckpointFormatError, match=rf"(?s)qwen.tiktoken.*{message}"):
        build_tokenizer(file, 8192)
