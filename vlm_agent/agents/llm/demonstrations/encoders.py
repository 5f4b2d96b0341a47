"""Goals as vectors, to find the nearest: a sentence encoder, or by the name `words` the words that goals share.

No setting falls back from one to the other.
"""

import itertools
import re
import zlib
from collections.abc import Sequence

import numpy as np

from vlm_agent.agents.llm.references.nearest import Encoder
from vlm_agent.texts.folding import normalized

WORDS = "words"
"""The name of `SharedWords`. Every other name is a checkpoint (`references/encoder.py`)."""

_DIMENSIONS = 4096
_WORD = re.compile(r"[^\W_]+")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")


class SharedWords:
    """A vector that counts words, in lower case, without a model. Two goals are near if they share many words.

    Chinese and Japanese have no spaces between words: there, single characters and pairs of neighbours count. A word
    has one of 4,096 places by its checksum, so two words may have the same place.
    """

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (N, 4096), rows of length 1; zeros for a text without a word."""
        vectors = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in _words(text):
                row[zlib.crc32(word.encode()) % _DIMENSIONS] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def goal_encoder(name: str) -> Encoder:
    """`SharedWords` for `words`; otherwise the encoder of that folder or installed package.

    Raises EncoderError if it does not exist.
    """
    if name == WORDS:
        return SharedWords()
    from vlm_agent.agents.llm.references.encoder import SentenceEncoder

    return SentenceEncoder.load(name)


def goal_encoder_digest(name: str) -> str:
    """What `goal_encoder(name)` computes, as a digest. Raises EncoderError if it does not exist."""
    if name == WORDS:
        return WORDS
    from vlm_agent.agents.llm.references.encoder import encoder_digest

    return encoder_digest(name)


def _words(text: str) -> list[str]:
    found = []
    for run in _WORD.findall(normalized("NFKC", text).casefold()):
        for characters in _IDEOGRAPHS.findall(run):
            pairs = itertools.pairwise(characters)
            found += [*characters, *(first + second for first, second in pairs)]
        found += [part for part in _IDEOGRAPHS.split(run) if part]
    return found
