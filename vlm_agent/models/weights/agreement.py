"""Measures of how far two models' logits are apart."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Agreement:
    """The difference of two models' logits at `positions` supervised tokens.

    `max_absolute`: the largest difference of a logit. `max_relative`: the largest, over positions, of the difference
    divided by the largest logit. `same_choice`: the number of positions with the same most likely token.
    """

    positions: int
    max_absolute: float
    max_relative: float
    same_choice: int


def compare(before: torch.Tensor, after: torch.Tensor) -> Agreement:
    """Compares logits (positions, vocabulary) of two models; at least one position."""
    apart = (before - after).abs().amax(dim=-1)
    return Agreement(
        positions=len(before),
        max_absolute=apart.max().item(),
        max_relative=(apart / before.abs().amax(dim=-1)).max().item(),
        same_choice=int((before.argmax(-1) == after.argmax(-1)).sum()),
    )


def divergence(reference: torch.Tensor, other: torch.Tensor) -> float:
    """The Kullback–Leibler divergence of `other` from `reference` in nats, averaged over positions.

    Both are logits (positions, vocabulary). A mean over positions and over the distribution: unlike a maximum, it does
    not grow with the number of positions.
    """
    expected = reference.log_softmax(-1)
    apart = other.log_softmax(-1) - expected
    # Equal to -apart in the sum, as both distributions sum to 1; never negative, and exact for small differences.
    return (expected.exp() * (apart.expm1() - apart)).sum(-1).mean().item()
