"""The number of tokens of many texts at once, and which of them a tokenizer can write.

A call of a tokenizer for one text costs more than the tokenisation itself: 100,000 texts in batches take a fraction of
100,000 calls.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerFast

from vlm_agent.episodes import is_same_text
from vlm_agent.sentences.trajectory import TrajectorySentences

_TEXTS_AT_ONCE = 8192
_PARALLELISM = "TOKENIZERS_PARALLELISM"


@dataclass(frozen=True)
class TextLengths:
    """`tokens` int32 (N,), `is_writable` bool (N,): see `TrajectorySentences.is_writable`."""

    tokens: np.ndarray
    is_writable: np.ndarray


def text_lengths(sentences: TrajectorySentences, texts: Sequence[str]) -> TextLengths:
    """`len(sentences.ids(text))` and `sentences.is_writable(text)` of each text."""
    tokens, is_writable = np.zeros(len(texts), np.int32), np.ones(len(texts), bool)
    with _parallel_tokenizers():
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = texts[start : start + _TEXTS_AT_ONCE]
            ids = _ids(sentences, part)
            here = slice(start, start + len(part))
            tokens[here] = [len(of_text) for of_text in ids]
            is_writable[here] = [
                is_same_text(decoded, text) for decoded, text in zip(_decoded(sentences, ids), part, strict=True)
            ]
    return TextLengths(tokens, is_writable)


def _ids(sentences: TrajectorySentences, texts: Sequence[str]) -> list[list[int]]:
    options = {"add_special_tokens": False, "split_special_tokens": True}
    return sentences.tokenizer(
        list(texts), return_attention_mask=False, return_token_type_ids=False, **options
    ).input_ids


def _decoded(sentences: TrajectorySentences, ids: list[list[int]]) -> list[str]:
    tokenizer = sentences.tokenizer
    # A subclass may decode in a way of its own.
    if getattr(type(tokenizer), "_decode", None) is PreTrainedTokenizerFast._decode:
        return tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=True)
    return [sentences.text(of_text) for of_text in ids]


_set_here = False
"""Whether this module, and not the user, set the variable."""


@contextmanager
def _parallel_tokenizers() -> Iterator[None]:
    """Lets tokenizers use all cores, unless the environment says otherwise.

    Afterwards they use one: a process that is forked while they may use more, such as a loader's worker, prints a
    warning.
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
