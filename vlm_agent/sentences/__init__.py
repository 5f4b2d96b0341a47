"""Vision-language sentences: what a model reads, token by token, and which tokens it is to learn."""

from dataclasses import dataclass, field

import numpy as np

SCREEN_TOKEN = -1
"""Stands in `input_ids` for one visual token; negative, so that no tokenizer's vocabulary can hold it."""

IGNORED = -100
"""The label of a position that carries no loss."""


@dataclass
class Sentence:
    """Token ids, their labels (`IGNORED` or the id itself, unshifted) and the screens that fill the `SCREEN_TOKEN`s.

    `screens` are uint8 (3, height, width) in reading order; `element_labels` int64 (tokens per screen,) beside each,
    where a model wants to be told what lies under every visual token.
    """

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    screens: list[np.ndarray] = field(default_factory=list)
    element_labels: list[np.ndarray] = field(default_factory=list)

    def read(self, ids: list[int]) -> None:
        """Append tokens that are given, not learned."""
        self.input_ids += ids
        self.labels += [IGNORED] * len(ids)

    def learn(self, ids: list[int]) -> None:
        """Append tokens that carry loss."""
        self.input_ids += ids
        self.labels += ids

    def see(self, screen: np.ndarray, tokens: int) -> None:
        """Append a screen, which takes the place of `tokens` tokens."""
        self.screens.append(screen)
        self.read([SCREEN_TOKEN] * tokens)

    @property
    def supervised(self) -> int:
        return sum(label != IGNORED for label in self.labels)
