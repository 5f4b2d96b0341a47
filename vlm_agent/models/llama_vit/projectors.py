"""The projectors of Llama+ViT, from vision features to visual tokens, and the settings that depend on them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vlm_agent.errors import CheckpointError
from vlm_agent.sentences.templates import PLAIN, ChatTemplate


@dataclass(frozen=True)
class ProjectorKind:
    """`module`: builds the projector from (features, hidden, LlamaViTConfig). `pools`: its input is pooled to the
    visual grid. `bicubic`: screens are resized by bicubic interpolation, as in Qwen's code. `template`: the text around
    goals, screens and actions."""

    module: Callable[[int, int, Any], nn.Module]
    pools: bool = True
    bicubic: bool = False
    template: ChatTemplate = PLAIN


PROJECTORS = {
    "linear": "vlm_agent.models.llama_vit.projectors:LINEAR",
    "resampler": "vlm_agent.models.qwen_vl_2023:RESAMPLER",
}
"""`LlamaViTConfig.projector` → module:object of its `ProjectorKind`."""


def projector_kind(name: str) -> ProjectorKind:
    """Imports the projector's package, which registers its vision tower with transformers."""
    if name not in PROJECTORS:
        raise CheckpointError(f"projector {name!r} is unknown; there are {', '.join(PROJECTORS)}")
    return resolve_name(PROJECTORS[name])


class Projector(nn.Module):
    """A linear map from vision features to visual tokens, with the options of `LlamaViTConfig` for models from scratch.

    One module, so that an adapter saves all of it (`modules_to_save`).
    """

    def __init__(self, features: int, hidden: int, config: Any) -> None:
        super().__init__()
        self.norm = config.visual_norm
        self.merge = config.visual_merge
        together = features * self.merge[0] * self.merge[1]
        self.linear = nn.Linear(together, hidden)
        nn.init.normal_(self.linear.weight, std=together**-0.5)
        nn.init.zeros_(self.linear.bias)
        rows, columns = config.visual_grid
        self.positions = nn.Parameter(grid_sinusoid(rows, columns, hidden)) if config.visual_positions else None

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, tokens, features) to visual tokens (N, tokens, hidden), before and after positions are added."""
        seen = self.linear(features.to(self.linear.weight.dtype))
        if self.norm is not None:
            seen = functional.rms_norm(seen, seen.shape[-1:]) * self.norm
        return seen, seen if self.positions is None else seen + self.positions


LINEAR = ProjectorKind(Projector)


def merged(features: torch.Tensor, grid: tuple[int, int], merge: tuple[int, int]) -> torch.Tensor:
    """A feature map (N, channels, rows, columns) pooled to `grid` times `merge` places, and (N, channels * merge[0] *
    merge[1], *grid) of it: the features of each token's places, concatenated."""
    fine = (grid[0] * merge[0], grid[1] * merge[1])
    pooled = functional.adaptive_avg_pool2d(features, fine)
    places = pooled.unflatten(3, (grid[1], merge[1])).unflatten(2, (grid[0], merge[0]))
    return places.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def grid_sinusoid(rows: int, columns: int, width: int) -> torch.Tensor:
    """(rows * columns, width): the first half of each vector is a sinusoid of y, the second of x, both in [0, 1]."""
    y, x = torch.meshgrid((torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij")
    return torch.cat([sinusoid(y.flatten(), width // 2), sinusoid(x.flatten(), width // 2)], dim=-1)


def sinusoid(fraction: torch.Tensor, width: int) -> torch.Tensor:
    """(n,) fractions of the screen to (n, width), wavelengths from twice the screen down to a twentieth of it."""
    frequencies = math.pi * torch.exp(math.log(40) * torch.arange(width // 2) / (width // 2))
    angles = fraction[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
