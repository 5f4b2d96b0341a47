"""The loss of a batch: focal loss on centres (CenterNet), distances of boxes, and states."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from shipped_weights.widgets.targets import Targets


@dataclass(frozen=True)
class Losses:
    """Scalars: `centres` per widget, `boxes` the mean distance (cells and log sides), `states` the cross entropy."""

    centres: torch.Tensor
    boxes: torch.Tensor
    states: torch.Tensor


def losses(logits: torch.Tensor, details: Callable[[torch.Tensor], torch.Tensor], wanted: Sequence[Targets]) -> Losses:
    """`logits`: float32 (B, kinds, rows, columns) of centres; `wanted`: B targets on the same map.

    `details`: int64 (N, 3) cells (sample, row, column) → float32 (N, kinds · 4 + 1), as `Network.details`.
    """
    heat = torch.from_numpy(np.stack([targets.heat for targets in wanted]))
    kinds = heat.shape[1]
    cells = _with_samples([targets.cells[:, 1:] for targets in wanted])
    kind = torch.from_numpy(np.concatenate([targets.cells[:, 0] for targets in wanted]))
    boxes = torch.from_numpy(np.concatenate([targets.boxes for targets in wanted]))
    is_on = torch.from_numpy(np.concatenate([targets.is_on for targets in wanted]))
    found = details(torch.cat([cells, _with_samples([targets.states for targets in wanted])]))
    numbers = torch.arange(len(cells))
    found_boxes = torch.stack([found[numbers, kinds * part + kind] for part in range(4)], 1)
    return Losses(
        _focal(logits, heat) / max(1, int((heat == 1).sum())),
        functional.smooth_l1_loss(found_boxes, boxes, beta=0.05, reduction="sum") / max(1, len(boxes)),
        functional.binary_cross_entropy_with_logits(found[len(cells) :, -1], is_on, reduction="sum")
        / max(1, len(is_on)),
    )


def _focal(logits: torch.Tensor, heat: torch.Tensor) -> torch.Tensor:
    """The sum over all cells. Cells near a centre count less as background, by (1 - heat)^4."""
    background = (1 - heat).pow_(4) * torch.sigmoid(logits).square() * functional.softplus(logits)
    of_centres = logits[torch.nonzero(heat == 1, as_tuple=True)]
    return background.sum() + (torch.sigmoid(-of_centres).square() * functional.softplus(-of_centres)).sum()


def _with_samples(parts: Sequence[np.ndarray]) -> torch.Tensor:
    """(N, 3): the number of each cell's sample in the batch, its row and its column."""
    samples = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return torch.from_numpy(np.column_stack([samples, np.concatenate(parts)]))
