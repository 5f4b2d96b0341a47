"""The resampler of Qwen-VL (2023): learned queries read the tower's patches through one layer of cross attention."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vlm_agent.errors import RecipeError
from vlm_agent.models.qwen_vl_2023.tower import fit_grid

HEAD_WIDTH = 128
"""A fixed head width, so that the number of heads follows from the language model's width (one where that is less)."""

_STD = 0.02
_EPS = 1e-6
_LONGEST = 10_000


class Resampler(nn.Module):
    """From patches to visual tokens, in place of `llama_vit.Projector`; as many queries as `visual_grid` has places.

    Queries and keys carry the same 2-D sinusoids, those of the keys interpolated from the queries' grid to the
    patches'. The published `ln_post` and `proj` that follow the attention are in here.

    The positions are a buffer and not computed anew: the published ones are rounded to bfloat16, and none is
    trained. The attention is not torch's MultiheadAttention, because that reads its output projection without calling
    it, which ZeRO-3, LoRA and quantised layers need.
    """

    positions: torch.Tensor

    def __init__(self, features: int, hidden: int, config: Any) -> None:
        """`config.visual_grid` (rows, columns); `features` and `hidden` are the tower's and the language model's width.

        Raises RecipeError for a `hidden` that does not divide into heads.
        """
        super().__init__()
        rows, columns = config.visual_grid
        self.grid = (rows, columns)
        self.heads = max(1, hidden // HEAD_WIDTH)
        if hidden % self.heads:
            raise RecipeError(f"the resampler's width {hidden} is no multiple of a head's, {HEAD_WIDTH}")
        self.query = nn.Parameter(torch.empty(math.prod(self.grid), hidden))
        self.register_buffer("positions", grid_sinusoids(rows, columns, hidden))
        self.kv_proj = nn.Linear(features, hidden, bias=False)
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(hidden, eps=_EPS) for _ in range(3))
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(hidden, hidden) for _ in range(4))
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self._initialise(hidden)

    def _initialise(self, hidden: int) -> None:
        nn.init.trunc_normal_(self.query, std=_STD)
        for linear in (self.kv_proj, self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.trunc_normal_(linear.weight, std=_STD)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        nn.init.normal_(self.proj.weight, std=hidden**-0.5)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, patches, features) of a square screen to tokens (N, tokens, hidden), twice: it has no positions to add.

        Raises RecipeError when the patches do not make a square.
        """
        keys, values = self._keys_and_values(features.to(self.query.dtype))
        queries = self.q_proj(self.ln_q(self.query) + self.positions).expand(len(features), -1, -1)
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (queries, keys, values))
        read = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        tokens = self.proj(self.ln_post(self.out_proj(read)))
        return tokens, tokens

    def _keys_and_values(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        side = math.isqrt(features.shape[1])
        if side * side != features.shape[1]:
            raise RecipeError(f"the resampler reads square screens; {features.shape[1]} patches are no square")
        content = self.ln_kv(self.kv_proj(features))
        return self.k_proj(content + fit_grid(self.positions, self.grid, (side, side))), self.v_proj(content)


def grid_sinusoids(rows: int, columns: int, width: int) -> torch.Tensor:
    """float32 (rows * columns, width): half of each vector is sin and cos of the column, half of the row, in patches.

    The column comes first. Raises ValueError for a width that does not divide by 4.
    """
    if width % 4:
        raise ValueError(f"a sine and a cosine of row and column need a width that divides by 4, not {width}")
    frequencies = _LONGEST ** -(torch.arange(width // 4) / (width // 4))
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    angles = [place.flatten()[:, None] * frequencies for place in (column, row)]
    return torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=-1)
