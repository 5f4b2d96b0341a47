"""From the crops of a screen to guesses: what all networks that read icons share."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from vlm_agent.screens.seen import Meaning

COUNT, BATCH = 5, 64
"""Guesses for a crop, and crops in one forward pass."""


def guesses(
    crops: Sequence[np.ndarray],
    prepare: Callable[[np.ndarray], np.ndarray | None],
    logits: Callable[[torch.Tensor], torch.Tensor],
    names: Sequence[str],
) -> list[tuple[Meaning, ...]]:
    """The best `COUNT` meanings of each crop, best first; none for a crop in which nothing is drawn.

    `prepare`: crop → array of one shape, or None. `logits`: a batch of them → (B, names). The score of a meaning is its
    share of the softmax.
    """
    prepared = [prepare(crop) for crop in crops]
    seen = [number for number, array in enumerate(prepared) if array is not None]
    result: list[tuple[Meaning, ...]] = [() for _ in crops]
    for start in range(0, len(seen), BATCH):
        numbers = seen[start : start + BATCH]
        with torch.inference_mode():
            batch = torch.from_numpy(
                np.stack([array for array in map(prepared.__getitem__, numbers) if array is not None])
            )
            scores, places = logits(batch).float().softmax(1).topk(min(COUNT, len(names)))
        for number, score, place in zip(numbers, scores.tolist(), places.tolist(), strict=True):
            result[number] = tuple(Meaning(names[index], value) for index, value in zip(place, score, strict=True))
    return result
