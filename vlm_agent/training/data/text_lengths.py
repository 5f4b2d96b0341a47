"""Batched token counts of many texts, and whether a tokenizer can write each of them.

The overhead of one tokenizer call exceeds the cost of tokenising a short text, so batches are much faster than one call
per text.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vlm_agent.episodes import is_same_text

_TEXTS_AT_ONCE = 8192
_PARALLELISM = "TOKENIZERS_PARALLELISM"


class TokenizedTexts(Protocol):
    """What `text_lengths` needs of sentences."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase: ...

    def ids(self, text: str) -> list[int]: ...

    def text(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class TextLengths:
    """`tokens`: int32 (N,), tokens per text. `is_writable`: bool (N,), see `TrajectorySentences.is_writable`."""

    tokens: np.ndarray
    is_writable: np.ndarray


def text_lengths(sentences: TokenizedTexts, texts: Sequence[str], before: str = "", check: bool = True) -> TextLengths:
    """`len(sentences.ids(text))` of each text, and whether its tokens decode to the same text.

    `before`: the segment before each text, which is decoded with it and not counted: some tokenizers drop a space at
    the start of what they decode. `check`: False for texts that are only read; they count as writable.
    """
    first = sentences.ids(before) if before else []
    tokens, is_writable = np.zeros(len(texts), np.int32), np.ones(len(texts), bool)
    with _parallel_tokenizers():
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = texts[start : start + _TEXTS_AT_ONCE]
            ids = _ids(sentences, part)
            here = slice(start, start + len(part))
            tokens[here] = [len(of_text) for of_text in ids]
            if not check:
                continue
            is_writable[here] = [
                is_same_text(decoded, before + text)
                for decoded, text in zip(_decoded(sentences, [first + of_text for of_text in ids]), part, strict=True)
            ]
    return TextLengths(tokens, is_writable)


def _ids(sentences: TokenizedTexts, texts: Sequence[str]) -> list[list[int]]:
    options = {"add_special_tokens": False, "split_special_tokens": True}
    return sentences.tokenizer(
        list(texts), return_attention_mask=False, return_token_type_ids=False, **options
    ).input_ids


def _decoded(sentences: TokenizedTexts, ids: list[list[int]]) -> list[str]:
    tokenizer = sentences.tokenizer
    # The backend is equivalent only if no subclass overrides decoding.
    if getattr(type(tokenizer), "_decode", None) is PreTrainedTokenizerFast._decode:
        return tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=True)
    return [sentences.text(of_text) for of_text in ids]


_set_here = False
"""Whether this module, not the user, set TOKENIZERS_PARALLELISM."""


@contextmanager
def _parallel_tokenizers() -> Iterator[None]:
    """Enables parallel tokenisation, unless the user has set TOKENIZERS_PARALLELISM.

    It is disabled afterwards, because processes forked later, such as loader workers, would print a warning.
    """
    global _set_here
    if _PARALLELISM in os.environ and not _set_here:
        yield
        return
    _set_here = True
    os.environ[_PARALLELISM] = "true"
    try:
        yield
    finally:
        os.environ[_PARALLELISM] = "false"
