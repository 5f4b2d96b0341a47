"""Optimisers and learning rates: AdamW for fine-tuning; Muon on weight matrices, AdamW on the rest, for models from
scratch.

Muon (Jordan et al. 2024): steps along the nearest orthogonal matrix of the momentum, for weight matrices only.

`torch.optim.Muon` always orthogonalises in bfloat16, which takes seconds per step of a small model on a CPU without
bfloat16 arithmetic. Here `dtype` chooses: bfloat16 halves the cost of a step where the hardware supports it.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn

from vlm_agent.recipe.run import OptimizerRecipe, TrainingRecipe
from vlm_agent.training.loop import ranks

DECAY = 0.2


def warmup_steps(training: TrainingRecipe, steps: int) -> int:
    """The steps of warm-up of a run of `steps` steps; a value below 1 is a fraction of them."""
    value = training.warmup_steps
    return int(value) if value >= 1 else math.ceil(value * steps)


def rate(training: TrainingRecipe, done: int, steps: int) -> float:
    """The factor of the recipe's learning rates in the step after `done` of `steps`: linear warm-up from 0 to 1, then
    constant, linear, cosine, or trapezoid, which is constant before it is linear over the last `DECAY` of all steps."""
    warmup = warmup_steps(training, steps)
    if done < warmup:
        return done / warmup
    if training.schedule == "constant":
        return 1.0
    if training.schedule == "trapezoid":
        return min(1.0, (steps - done) / max(1, DECAY * steps))
    left = max(0.0, (steps - done) / max(1, steps - warmup))
    return left if training.schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left))


def optimizer_of(model: nn.Module, recipe: OptimizerRecipe, bf16: bool = False) -> torch.optim.Optimizer:
    """The recipe's optimiser, over the parameters that require gradients. `bf16`: the run uses mixed precision."""
    if recipe.name == "muon":
        return _muon(model, recipe, torch.bfloat16 if bf16 else torch.float32)
    return _adamw([parameter for parameter in model.parameters() if parameter.requires_grad], recipe)


def _adamw(parameters: list[nn.Parameter], recipe: OptimizerRecipe) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay)


def _muon(model: nn.Module, recipe: OptimizerRecipe, dtype: torch.dtype) -> torch.optim.Optimizer:
    """Muon for 2-D weights; embeddings, the head, positions, convolutions and vectors go to AdamW."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_matrix = parameter.dim() == 2 and id(parameter) not in tables and not _is_table(name)
            (matrices if is_matrix else others).append(parameter)
    parts: list[torch.optim.Optimizer] = []  # an optimiser refuses an empty list of parameters
    if matrices:
        parts.append(Muon(matrices, recipe.muon_learning_rate, recipe.weight_decay, dtype))
    if others:
        parts.append(_adamw(others, recipe))
    return MuonAndAdamW(*parts)


def _is_table(name: str) -> bool:
    """Whether rows of a 2-D weight stand for tokens or positions, also inside an adapter's wrapper. Embeddings are
    recognised by their type as well: in T5 they are `shared` and `relative_attention_bias`."""
    return not {"embed_tokens", "lm_head", "positions"}.isdisjoint(name.split("."))


class MuonAndAdamW(torch.optim.Optimizer):
    """Two optimisers that step, schedule, save and load as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._share_groups()

    def _share_groups(self) -> None:
        # The same dictionary objects, so that a scheduler which sets a rate here sets it in the part.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()


_MOMENTUM = 0.95
_STEPS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)
"""The polynomial a·x + b·x³ + c·x⁵, applied to the singular values: the author's, steep at zero."""


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, decoupled weight decay, and rates scaled by √max(1, rows / columns), as in the author's code.

    Raises ValueError for a parameter that is not a matrix.
    """

    def __init__(
        self, parameters: list[torch.nn.Parameter], lr: float, weight_decay: float, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.dtype = dtype
        for group in self.param_groups:
            if any(parameter.dim() != 2 for parameter in group["params"]):
                raise ValueError("Muon needs matrices: every parameter must have 2 dimensions")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter, direction in zip(moved, self._directions(moved), strict=True):
                rate, (rows, columns) = group["lr"], parameter.shape
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.add_(direction.to(parameter.dtype), alpha=-rate * math.sqrt(max(1, rows / columns)))

    def _directions(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """The step of each, before its rate. Ranks have equal gradients, so each computes a part for all."""
        nesterov = [self._nesterov(parameter) for parameter in parameters]
        mine = [owner == ranks.number() for owner in _owners([gradient.shape for gradient in nesterov], ranks.count())]
        directions = [
            orthogonal(gradient, self.dtype) if is_mine else torch.zeros_like(gradient, dtype=torch.float32)
            for gradient, is_mine in zip(nesterov, mine, strict=True)
        ]
        if ranks.count() == 1:
            return directions
        together = ranks.summed(torch.cat([direction.flatten() for direction in directions]))
        parts = together.split([direction.numel() for direction in directions])
        return [part.view_as(direction) for part, direction in zip(parts, directions, strict=True)]

    def _nesterov(self, parameter: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        gradient = cast(torch.Tensor, parameter.grad)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(momentum, _MOMENTUM)


def _owners(shapes: Sequence[Sequence[int]], count: int) -> list[int]:
    """The rank, of `count`, that orthogonalises each matrix: the costliest first, each to the rank with least work."""
    costs = [rows * columns * min(rows, columns) for rows, columns in shapes]
    load, owners = [0] * count, [0] * len(costs)
    for index in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        owners[index] = load.index(min(load))
        load[owners[index]] += costs[index]
    return owners


def orthogonal(matrix: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Approximately the nearest orthogonal matrix: Newton–Schulz steps bring the singular values to about 1.

    Returns float32 of the same shape; the arithmetic is in `dtype`.
    """
    a, b, c = _QUINTIC
    wide = matrix.to(dtype).T if matrix.shape[0] > matrix.shape[1] else matrix.to(dtype)
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.T if matrix.shape[0] > matrix.shape[1] else wide).float()
