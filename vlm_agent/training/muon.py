"""Muon (Jordan et al. 2024): steps along the nearest orthogonal matrix of the momentum, for weight matrices only.

As `torch.optim.Muon`, but that always orthogonalises in bfloat16, which a CPU without it computes so slowly that a step
of a small model takes seconds. Float32 takes the same step on every machine, and costs a GPU nothing that counts at the
sizes that are trained from scratch.
"""

import math

import torch

_MOMENTUM = 0.95
_STEPS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)
"""The polynomial a·x + b·x³ + c·x⁵, applied to the singular values: the author's, steep at zero."""


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, decoupled weight decay, and rates scaled by √max(1, rows / columns), as the author has it.

    Raises ValueError for a parameter that is no matrix.
    """

    def __init__(self, parameters, lr: float, weight_decay: float):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        for group in self.param_groups:
            if any(parameter.dim() != 2 for parameter in group["params"]):
                raise ValueError("Muon steps along orthogonal matrices; a parameter that is no matrix has none")

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], group["weight_decay"])

    def _move(self, parameter: torch.Tensor, rate: float, weight_decay: float) -> None:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - _MOMENTUM)
        direction = orthogonal(parameter.grad.lerp(momentum, _MOMENTUM))
        rows, columns = parameter.shape
        parameter.mul_(1 - rate * weight_decay)
        parameter.add_(direction.to(parameter.dtype), alpha=-rate * math.sqrt(max(1, rows / columns)))


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """About the orthogonal matrix nearest to a matrix: its singular values brought to about 1 by Newton–Schulz steps.

    Float32, of the same shape.
    """
    a, b, c = _QUINTIC
    wide = matrix.float().T if matrix.shape[0] > matrix.shape[1] else matrix.float()
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide
