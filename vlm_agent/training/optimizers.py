"""Optimisers: AdamW for fine-tuning; Muon on weight matrices, AdamW on the rest, for models from scratch."""

import torch
from torch import nn

from vlm_agent.training.muon import Muon
from vlm_agent.training.recipe import OptimizerRecipe


def optimizer_of(model: nn.Module, recipe: OptimizerRecipe, bf16: bool = False) -> torch.optim.Optimizer:
    """For the weights that train, as the recipe says. `bf16`: whether the run is in mixed precision."""
    if recipe.name == "muon":
        dtype = torch.bfloat16 if bf16 else torch.float32
        return muon(model, recipe.learning_rate, recipe.muon_learning_rate, recipe.weight_decay, dtype)
    return adamw(model, recipe.learning_rate, recipe.weight_decay)


def adamw(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(parameters, lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay)


def muon(
    model: nn.Module,
    learning_rate: float,
    muon_learning_rate: float,
    weight_decay: float,
    dtype: torch.dtype = torch.float32,
):
    """Muon for 2-D weights; embeddings, the head, positions, convolutions and vectors go to AdamW."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    matrices = [parameter for name, parameter in named if parameter.dim() == 2 and not _is_table(name)]
    chosen = {id(parameter) for parameter in matrices}
    others = [parameter for _, parameter in named if id(parameter) not in chosen]
    parts = []  # an optimiser refuses to have nothing to do
    if matrices:
        parts.append(Muon(matrices, muon_learning_rate, weight_decay, dtype))
    if others:
        parts.append(torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay))
    return MuonAndAdamW(*parts)


def _is_table(name: str) -> bool:
    """Whether rows of a 2-D weight stand for tokens or places, wherever an adapter has wrapped it."""
    return not {"embed_tokens", "lm_head", "positions"}.isdisjoint(name.split("."))


class MuonAndAdamW(torch.optim.Optimizer):
    """Two optimisers that step, schedule, save and load as one."""

    def __init__(self, *parts: torch.optim.Optimizer):
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._share_groups()

    def _share_groups(self) -> None:
        # The very same dictionaries, so that a scheduler which sets a rate here sets it in the part.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()
