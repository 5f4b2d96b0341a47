"""The vision tower of Qwen-VL (2023): OpenCLIP's ViT-bigG, without class token and pooling."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from vlm_agent.errors import RecipeError


class QwenVLTowerConfig(PretrainedConfig):
    """The defaults are the published tower's; `position_grid` is (rows, columns) of its learned position table."""

    model_type = "qwen_vl_vit"

    def __init__(
        self,
        hidden_size: int = 1664,
        intermediate_size: int = 8192,
        num_hidden_layers: int = 48,
        num_attention_heads: int = 16,
        patch_size: int = 14,
        image_size: int = 448,
        position_grid: Sequence[int] = (16, 16),
        layer_norm_eps: float = 1e-6,
        **kwargs,
    ) -> None:
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.patch_size = patch_size
        self.image_size = image_size
        self.position_grid = tuple(position_grid)
        self.layer_norm_eps = layer_norm_eps
        super().__init__(**kwargs)


class _Attention(nn.Module):
    def __init__(self, config: QwenVLTowerConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.in_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        # As published: rows by head, within a head query, key, value; MultiheadAttention has another order.
        packed = self.in_proj(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(*packed.chunk(3, dim=-1))
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class _Block(GradientCheckpointingLayer):
    def __init__(self, config: QwenVLTowerConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.ln_1 = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.attn = _Attention(config)
        self.ln_2 = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.c_fc = nn.Linear(width, config.intermediate_size)
        self.c_proj = nn.Linear(config.intermediate_size, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attn(self.ln_1(hidden))
        return hidden + self.c_proj(functional.gelu(self.c_fc(self.ln_2(hidden))))


class QwenVLTower(PreTrainedModel):
    """Pixels to one feature vector a patch. Registered with `transformers.AutoModel`."""

    config_class = QwenVLTowerConfig
    main_input_name = "pixel_values"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["_Block"]  # noqa: RUF012 (transformers' own shape)

    def __init__(self, config: QwenVLTowerConfig) -> None:
        super().__init__(config)
        width, (rows, columns) = config.hidden_size, config.position_grid
        self.conv1 = nn.Conv2d(3, width, config.patch_size, stride=config.patch_size, bias=False)
        self.positional_embedding = nn.Parameter(torch.empty(rows * columns, width))
        self.ln_pre = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.num_hidden_layers))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, QwenVLTower):
            init.normal_(module.positional_embedding, std=self.config.hidden_size**-0.5)

    def forward(self, pixel_values: torch.Tensor) -> BaseModelOutput:
        """Normalised pixels (N, 3, height, width) to `last_hidden_state` (N, patches, hidden_size), in reading order.

        Positions are interpolated to the grid of patches. Pixels beyond the last whole patch are ignored.
        """
        patches = self.conv1(pixel_values)
        places = fit_grid(self.positional_embedding, self.config.position_grid, tuple(patches.shape[-2:]))
        hidden = self.ln_pre(patches.flatten(2).transpose(1, 2) + places)
        for block in self.blocks:
            hidden = block(hidden)
        return BaseModelOutput(last_hidden_state=hidden)


def fit_grid(table: torch.Tensor, source: tuple[int, int], target: tuple[int, int]) -> torch.Tensor:
    """A position table (rows * columns, width) on the grid `source`, interpolated to `target`; both (rows, columns).

    Bicubic and in float32, as the published model does it; the result has the table's dtype.
    """
    if source == target:
        return table
    map_ = table.float().unflatten(0, source).permute(2, 0, 1).unsqueeze(0)
    fitted = functional.interpolate(map_, target, mode="bicubic", align_corners=False)
    return fitted[0].permute(1, 2, 0).flatten(0, 1).to(table.dtype)


AutoConfig.register(QwenVLTowerConfig.model_type, QwenVLTowerConfig)
AutoModel.register(QwenVLTowerConfig, QwenVLTower)


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
        side = math.isqrt(features.shape[1])
        if side * side != features.shape[1]:
            raise RecipeError(f"the resampler reads square screens; {features.shape[1]} patches are no square")
        content = self.ln_kv(self.kv_proj(features.to(self.query.dtype)))
        keys = self.k_proj(content + fit_grid(self.positions, self.grid, (side, side)))
        queries = self.q_proj(self.ln_q(self.query) + self.positions).expand(len(features), -1, -1)
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (queries, keys, self.v_proj(content)))
        read = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        tokens = self.proj(self.ln_post(self.out_proj(read)))
        return tokens, tokens


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
