"""A tokenizer with caches: the ids of a text, their number, and whether they decode to the same text."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import cast

from transformers import PreTrainedTokenizerBase

from vlm_agent.episodes import is_same_text

_CACHED_TEXTS = 65_536


@dataclass(frozen=True)
class Tokens:
    """Tokenises the texts of sentences, each by itself. Pickles without its caches."""

    tokenizer: PreTrainedTokenizerBase

    def ids(self, text: str) -> list[int]:
        """The tokens of a text as plain text, cached because texts repeat often."""
        return list(self._cached_ids(text, False))

    def marks(self, text: str) -> list[int]:
        """The tokens of a text of the chat template, which may contain special tokens."""
        return list(self._cached_ids(text, True))

    def tokenised(self, text: str, special: bool) -> list[int]:
        """The tokens of a text, not cached. `special`: whether it may contain special tokens."""
        # Special tokens are split: an end mark in typed text must not become the end of an action.
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=not special).input_ids

    def count(self, text: str, special: bool = False) -> int:
        """The number of tokens of a text."""
        return self._cached_count(text, special)

    def text(self, ids: list[int]) -> str:
        """`ids` decoded, without special tokens."""
        return cast(str, self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def writes(self, text: str, before: str = "") -> bool:
        """Whether the tokens of a text decode to the same text, up to NFC.

        `before`: the text before it, which is decoded with it: some tokenizers drop a space at the start of what they
        decode.
        """
        return self._cached_writes(text, before)

    @cached_property
    def _cached_ids(self) -> Callable[[str, bool], tuple[int, ...]]:
        return lru_cache(_CACHED_TEXTS)(lambda text, special: tuple(self.tokenised(text, special)))

    @cached_property
    def _cached_count(self) -> Callable[[str, bool], int]:
        return lru_cache(4 * _CACHED_TEXTS)(lambda text, special: len(self.tokenised(text, special)))

    @cached_property
    def _cached_writes(self) -> Callable[[str, str], bool]:
        def writes(text: str, before: str) -> bool:
            first = self.ids(before) if before else []
            return is_same_text(self.text(first + self.ids(text)), before + text)

        return lru_cache(_CACHED_TEXTS)(writes)

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_cached_")}
