"""Muon (Jordan et al. 2024): steps along the nearest orthogonal matrix of the momentum, for weight matrices only.

As `torch.optim.Muon`, but that always orthogonalises in bfloat16, which a CPU without it computes so slowly that a step
of a small model takes seconds. Here `dtype` says in what: bfloat16 halves the cost of a step where it is in hardware.
"""

import math
from collections.abc import Sequence

import torch

from vlm_agent.training import ranks

_MOMENTUM = 0.95
_STEPS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)
"""The polynomial a·x + b·x³ + c·x⁵, applied to the singular values: the author's, steep at zero."""


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, decoupled weight decay, and rates scaled by √max(1, rows / columns), as the author has it.

    Raises ValueError for a parameter that is no matrix.
    """

    def __init__(self, parameters, lr: float, weight_decay: float, dtype: torch.dtype = torch.float32):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.dtype = dtype
        for group in self.param_groups:
            if any(parameter.dim() != 2 for parameter in group["params"]):
                raise ValueError("Muon steps along orthogonal matrices; a parameter that is no matrix has none")

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter, direction in zip(moved, self._directions(moved), strict=True):
                rate, (rows, columns) = group["lr"], parameter.shape
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.add_(direction.to(parameter.dtype), alpha=-rate * math.sqrt(max(1, rows / columns)))

    def _directions(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """The step of each, before its rate. Ranks have the same gradients, so each finds a share of them for all."""
        sought = [self._nesterov(parameter) for parameter in parameters]
        mine = [owner == ranks.number() for owner in _owners([gradient.shape for gradient in sought], ranks.count())]
        found = [
            orthogonal(gradient, self.dtype) if is_mine else torch.zeros_like(gradient, dtype=torch.float32)
            for gradient, is_mine in zip(sought, mine, strict=True)
        ]
        if ranks.count() == 1:
            return found
        together = ranks.summed(torch.cat([direction.flatten() for direction in found]))
        parts = together.split([direction.numel() for direction in found])
        return [part.view_as(direction) for part, direction in zip(parts, found, strict=True)]

    def _nesterov(self, parameter: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - _MOMENTUM)
        return parameter.grad.lerp(momentum, _MOMENTUM)


def _owners(shapes: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Which of `count` ranks orthogonalises which matrix: the costliest first, each to whom has least to do."""
    costs = [rows * columns * min(rows, columns) for rows, columns in shapes]
    load, owners = [0] * count, [0] * len(costs)
    for index in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        owners[index] = load.index(min(load))
        load[owners[index]] += costs[index]
    return owners


def orthogonal(matrix: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """About the orthogonal matrix nearest to a matrix: its singular values brought to about 1 by Newton–Schulz steps.

    Float32, of the same shape, computed in `dtype`.
    """
    a, b, c = _QUINTIC
    wide = matrix.to(dtype).T if matrix.shape[0] > matrix.shape[1] else matrix.to(dtype)
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.T if matrix.shape[0] > matrix.shape[1] else wide).float()
