"""Vision-language sentences: what a model reads, token by token, and which tokens it is to learn."""

from dataclasses import dataclass, field

import numpy as np

SCREEN_TOKEN = -1
"""Stands in `input_ids` for one visual token; negative, so that no tokenizer's vocabulary can hold it."""

IGNORED = -100
"""The label of a position that carries no loss."""

NO_ACTION = -1
"""The kind of a token that belongs to no learned action."""


@dataclass
class Sentence:
    """Token ids, their labels (`IGNORED` or the id itself, unshifted) and the screens that fill the `SCREEN_TOKEN`s.

    `kinds`: for each token of a learned action, which of `ACTION_NAMES` it is, else `NO_ACTION`. `screens` are uint8
    (3, height, width) in reading order; `element_labels` int64 (tokens per screen,) beside each, where a model wants to
    be told what lies under every visual token. `about`: what it was made of, for messages.
    """

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    screens: list[np.ndarray] = field(default_factory=list)
    element_labels: list[np.ndarray] = field(default_factory=list)
    about: str = ""

    def read(self, ids: list[int]) -> None:
        """Append tokens that are given, not learned."""
        self.input_ids += ids
        self.labels += [IGNORED] * len(ids)
        self.kinds += [NO_ACTION] * len(ids)

    def learn(self, ids: list[int], kind: int = NO_ACTION) -> None:
        """Append tokens that carry loss."""
        self.input_ids += ids
        self.labels += ids
        self.kinds += [kind] * len(ids)

    def see(self, screen: np.ndarray, tokens: int) -> None:
        """Append a screen, which takes the place of `tokens` tokens."""
        self.screens.append(screen)
        self.read([SCREEN_TOKEN] * tokens)

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def supervised(self) -> int:
        return sum(label != IGNORED for label in self.labels)
