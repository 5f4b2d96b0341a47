"""Segments: the one description of a sentence. A kind of sentences is a function from an episode to segments.

Three functions read them: `encode` (token ids, labels and screens), `length` (the same number of tokens, without
pixels) and `messages` (turns of a chat, `messages.py`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from vlm_agent.episodes import Step, is_same_text
from vlm_agent.sentences import NO_ACTION, Sentence

if TYPE_CHECKING:  # evaluations of agents without a tokenizer, and `status`, need not wait for the import
    from transformers import PreTrainedTokenizerBase

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"

ShownScreen = tuple[np.ndarray, int]
"""A screen as the model takes it, and the number of its visual tokens."""

_CACHED_TEXTS = 65_536
_LONGEST_CACHED = 1000
"""Characters of a text; screens as HTML and prompts are longer, and few are equal."""


@dataclass(frozen=True)
class Tokens:
    """Tokenises the texts of sentences, each by itself. Pickles without its caches."""

    tokenizer: "PreTrainedTokenizerBase"

    def ids(self, text: str, special: bool = False) -> list[int]:
        """The tokens of a text, cached because texts repeat often. `special`: whether it may contain special tokens, as
        a text of the chat template."""
        return list(self._cached_ids(text, special)) if len(text) <= _LONGEST_CACHED else self.tokenised(text, special)

    def tokenised(self, text: str, special: bool) -> list[int]:
        """The tokens of a text, not cached. `special`: whether it may contain special tokens."""
        # Special tokens are split: an end mark in typed text must not become the end of an action.
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=not special).input_ids

    def count(self, text: str, special: bool = False) -> int:
        """The number of tokens of a text."""
        return self._cached_count(text, special) if len(text) <= _LONGEST_CACHED else len(self.tokenised(text, special))

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


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a sentence that is tokenised by itself.

    `text`: None for a screen of visual tokens. `screen`: the step whose screen the segment shows, as visual tokens or
    as `text`; None for a segment that shows no screen. `turn`: the chat turn that has the text, `SYSTEM`, `USER` or
    `ASSISTANT`; empty for marks, which the chat template of a server writes. `special`: whether special tokens in
    `text` are special tokens. `mark`: the id of a single token, in place of `text`.

    `role`: the role of supervised tokens (`ROLES`); None for a segment without a loss. `kind`, `weight`: as in
    `Sentence.learn`. `unlearned`: tokens at its start without a loss. `kept`: the segment is cut to so many tokens;
    None: to all.
    """

    text: str | None = None
    turn: str = ""
    screen: Step | None = None
    special: bool = False
    mark: int | None = None
    role: str | None = None
    kind: int = NO_ACTION
    weight: float = 1.0
    unlearned: int = 0
    kept: int | None = None

    @property
    def is_picture(self) -> bool:
        return self.text is None and self.screen is not None


def encode(segments: Iterable[Segment], tokens: Tokens, show: Callable[[Step], ShownScreen]) -> Sentence:
    """The sentence of segments. `show`: from a step to its screen for the model."""
    sentence = Sentence()
    for segment in segments:
        if segment.is_picture and segment.screen is not None:
            sentence.see(*show(segment.screen))
            continue
        ids = _ids(segment, tokens)
        if segment.role is None:
            sentence.read(ids)
        else:
            sentence.read(ids[: segment.unlearned])
            sentence.learn(ids[segment.unlearned :], segment.kind, segment.role, segment.weight)
    return sentence


def no_screen(step: Step) -> ShownScreen:
    """`show` of sentences without a screen."""
    raise ValueError("these sentences show no screen")


def length(segments: Iterable[Segment], tokens: Tokens, screen_tokens: Callable[[Step], int]) -> int:
    """The number of tokens of `encode(segments, …)`. `screen_tokens`: from a step to the visual tokens of its screen;
    no pixels are needed."""
    return sum(
        screen_tokens(one.screen) if one.is_picture and one.screen is not None else text_length(one, tokens)
        for one in segments
    )


def supervised_length(segments: Iterable[Segment], tokens: Tokens) -> int:
    """The number of tokens with a loss of `encode(segments, …)`."""
    learned = (segment for segment in segments if segment.role is not None)
    return sum(max(0, text_length(segment, tokens) - segment.unlearned) for segment in learned)


def text_length(segment: Segment, tokens: Tokens) -> int:
    """The number of tokens of a segment that is not a picture."""
    if segment.mark is not None:
        return 1
    count = tokens.count(segment.text or "", segment.special)
    return count if segment.kept is None else min(count, segment.kept)


def _ids(segment: Segment, tokens: Tokens) -> list[int]:
    if segment.mark is not None:
        return [segment.mark]
    text = segment.text or ""
    # Screens as text are long, and few are equal.
    find = tokens.ids if segment.screen is None else tokens.tokenised
    ids = find(text, segment.special)
    return ids if segment.kept is None else ids[: segment.kept]


def texts(parts: Iterable[str], turn: str = "") -> list[Segment]:
    """Texts that are read."""
    return [Segment(text, turn) for text in parts]
