"""A threshold on the end of a task: `complete` only where the model is certain."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class CompleteThreshold:
    """A `Choice` of tokens: the most likely one, unless the answer becomes `complete` with a probability below `least`.

    `complete`: the tokens of that answer. Where one of them is less likely than `least`, the most likely other token
    follows, so a language whose answers begin alike decides at the token at which they differ.
    """

    complete: list[int]
    least: float

    def __call__(self, tokens: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
        if self.complete[: len(tokens) + 1] != [*tokens, best]:
            return best
        probabilities = logits().float().softmax(-1)
        if probabilities[best] >= self.least:
            return best
        first, second = probabilities.topk(2).indices.tolist()
        return int(second if first == best else first)
