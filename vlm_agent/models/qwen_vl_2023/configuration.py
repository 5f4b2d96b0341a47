"""The keys of the published config.json that weights depend on, and the `LlamaViTConfig` for them."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError, model_validator
from transformers import Qwen2Config

from vlm_agent.models.conversion.source_files import CheckpointFormatError
from vlm_agent.models.llama_vit.model import LlamaViTConfig
from vlm_agent.models.qwen_vl_2023.resampler import HEAD_WIDTH
from vlm_agent.models.qwen_vl_2023.tower import QwenVLTowerConfig

ARCHITECTURE = "QWenLMHeadModel"
"""Qwen-7B is called so too; only Qwen-VL has a `visual` section beside it."""

GRID = (16, 16)
"""(rows, columns) of the resampler's queries and of the tower's position table; no published key says it."""

_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)  # keys beside these say nothing about weights


class Visual(_Section):
    """The vision tower, and the width of what it gives to the language model."""

    heads: PositiveInt
    image_size: PositiveInt
    layers: PositiveInt
    mlp_ratio: PositiveFloat
    output_dim: PositiveInt
    patch_size: PositiveInt
    width: PositiveInt


class Published(_Section):
    """The whole. `intermediate_size` is that of both branches of the feed-forward layer together."""

    architectures: list[str]
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    kv_channels: PositiveInt
    layer_norm_epsilon: PositiveFloat
    max_position_embeddings: PositiveInt
    no_bias: Literal[True]
    num_attention_heads: PositiveInt
    num_hidden_layers: PositiveInt
    rotary_emb_base: PositiveFloat
    rotary_pct: float
    tie_word_embeddings: Literal[False]
    visual: Visual
    vocab_size: PositiveInt

    @model_validator(mode="after")
    def _as_published(self) -> Self:
        if ARCHITECTURE not in self.architectures:
            raise ValueError(f"architectures is {self.architectures}, and Qwen-VL's is {ARCHITECTURE}")
        if self.rotary_pct != 1:
            raise ValueError("rotary_pct is 1 in what was published: every dimension of a head is rotated")
        if self.kv_channels * self.num_attention_heads != self.hidden_size:
            raise ValueError("hidden_size is num_attention_heads x kv_channels in what was published")
        if self.visual.output_dim != self.hidden_size or self.hidden_size % HEAD_WIDTH:
            raise ValueError(f"visual.output_dim is hidden_size, and a multiple of {HEAD_WIDTH}, in what was published")
        return self


def read_configuration(path: Path) -> Published:
    """From config.json. CheckpointFormatError for another model, or for a variant that was not published."""
    try:
        return Published.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise CheckpointFormatError(
            f"{path} is not Qwen-VL's (2023): {key}{': ' if key else ''}{first['msg']}\n"
            "This command converts that checkpoint alone; what transformers knows needs no conversion"
        ) from None


def our_configuration(published: Published, end: int, dtype: str) -> LlamaViTConfig:
    """`end`: the id of the token that ends a text; `dtype`: of the weights, as torch calls it."""
    visual = published.visual
    return LlamaViTConfig(
        vision_config=QwenVLTowerConfig(
            hidden_size=visual.width,
            intermediate_size=tower_ffn(visual),
            num_hidden_layers=visual.layers,
            num_attention_heads=visual.heads,
            patch_size=visual.patch_size,
            image_size=visual.image_size,
            position_grid=GRID,
        ),
        text_config=_text_configuration(published, end),
        screen_size=(visual.image_size, visual.image_size),
        visual_grid=GRID,
        image_mean=_CLIP_MEAN,
        image_std=_CLIP_STD,
        projector="resampler",
        architectures=["LlamaViT"],
        dtype=dtype,
    )


def _text_configuration(published: Published, end: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=published.vocab_size,
        hidden_size=published.hidden_size,
        intermediate_size=published.intermediate_size // 2,
        num_hidden_layers=published.num_hidden_layers,
        num_attention_heads=published.num_attention_heads,
        num_key_value_heads=published.num_attention_heads,
        max_position_embeddings=published.max_position_embeddings,
        rms_norm_eps=published.layer_norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": published.rotary_emb_base},
        tie_word_embeddings=False,
        eos_token_id=end,
        pad_token_id=end,
    )


def tower_ffn(visual: Visual) -> int:
    """The width between the tower's two feed-forward layers: 8,192 in what was published."""
    return int(visual.width * visual.mlp_ratio)
