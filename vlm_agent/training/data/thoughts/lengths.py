"""The tokens of the texts of CoAT in the sentences of a run."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets.shards.columns import Columns
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.sentences.steps import StepSentences
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.count_cache import CountCache
from vlm_agent.training.data.text_lengths import TextLengths, text_lengths


@dataclass(frozen=True)
class TextTokens:
    """`read`, `learned`: int64 (S,), tokens of the texts that each step reads and learns."""

    read: np.ndarray
    learned: np.ndarray


def count_texts(
    columns: Columns,
    sentences: TrajectorySentences | StepSentences,
    segment: Callable[[str, str], str],
    cache: CountCache | None,
) -> TextTokens:
    """`columns`: with the texts of `columns_for` if a part is on. `segment(part, text)`: a text as it is tokenised."""
    parts: CoatRecipe = sentences.thoughts.parts
    read, learned = (np.zeros(int(columns.lengths.sum()), np.int64) for _ in range(2))
    if not parts.is_on:
        return TextTokens(read, learned)
    if columns.coat is None:
        raise ValueError("sentences with texts of CoAT need the columns of `columns_for`")
    for part, texts in columns.coat.items():
        tokens = read if part in parts.read else learned
        tokens += _lengths(texts, part, sentences, segment, cache)
    return TextTokens(read, learned)


def _lengths(
    texts: np.ndarray,
    part: str,
    sentences: TrajectorySentences | StepSentences,
    segment: Callable[[str, str], str],
    cache: CountCache | None,
) -> np.ndarray:
    """int64 (S,)"""
    return count_segments(texts, lambda text: segment(part, text), sentences, cache)


def count_segments(
    texts: np.ndarray,
    segment: Callable[[str], str],
    sentences: TrajectorySentences | StepSentences,
    cache: CountCache | None,
) -> np.ndarray:
    """int64 (S,): tokens of each text, str objects (S,). `segment(text)`: as it is tokenised."""
    different, which = np.unique(texts.astype(object), return_inverse=True)
    segments = [segment(text) for text in different.tolist()]

    def measure(numbers: Sequence[int]) -> TextLengths:
        return text_lengths(sentences, [segments[number] for number in numbers])

    if cache is None:
        return measure(range(len(segments))).tokens.astype(np.int64)[which]
    content = hashlib.sha256(b"coat" + json.dumps(segments).encode()).digest()
    return cache.lengths(sentences, content, len(segments), measure).tokens.astype(np.int64)[which]
