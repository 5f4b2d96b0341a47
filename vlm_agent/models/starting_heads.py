"""Attention heads with a purpose, as a start for language models with rotary positions and no pretrained weights."""

import torch

_LOOK_BACK, _FASTEST = 1.5, 6

_SLOW = 1 / 300
"""Radians per token: a dimension that rotates faster cannot match content across a screen."""


def slow_dimensions(count: int, frequencies: torch.Tensor) -> list[int]:
    """Those of the first `count` dimensions of a head that can match content at any distance.

    `frequencies`: radians per token of the first half of its dimensions; the second half has the same.
    """
    return [place for place in range(count) if frequencies[place % len(frequencies)] < _SLOW]


def look_back(query: torch.Tensor, key: torch.Tensor, back: int, frequencies: torch.Tensor) -> None:
    """Makes a head attend to the token `back` positions earlier, whatever its content, in place.

    `query`, `key` (width, hidden): its weights, which read a constant in dimension 0 of the hidden states. Rotary
    positions rotate query and key by their positions; a query rotated by `back` more matches the key at that distance
    only, as far as the fastest frequencies separate positions.
    """
    fast = frequencies[:_FASTEST]
    here, half = torch.arange(len(fast)), query.shape[0] // 2
    key[here, 0] = _LOOK_BACK
    query[here, 0] = _LOOK_BACK * torch.cos(back * fast)
    query[here + half, 0] = -_LOOK_BACK * torch.sin(back * fast)


def fill(rows: torch.Tensor, basis: torch.Tensor) -> None:
    """Copies the basis into the first rows; further rows stay unchanged."""
    shared = min(len(rows), len(basis))
    rows[:shared] = basis[:shared]
