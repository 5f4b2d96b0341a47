"""The published checkpoint and its equivalent here: the keys of config.json that weights depend on and the
`LlamaViTConfig` for them; names, shapes and layout of the weights, there and here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError, model_validator
from transformers import Qwen2Config
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from vlm_agent.models.conversion import CheckpointFormatError
from vlm_agent.models.llama_vit.model import LlamaViTConfig
from vlm_agent.models.qwen_vl_2023.resampler import HEAD_WIDTH
from vlm_agent.models.qwen_vl_2023.tower import QwenVLTowerConfig

ARCHITECTURE = "QWenLMHeadModel"
"""Qwen-7B is called so too; only Qwen-VL has a `visual` section beside it."""

GRID = (16, 16)
"""(rows, columns) of the resampler's queries and of the tower's position table; no published key says it."""


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
        image_mean=OPENAI_CLIP_MEAN,
        image_std=OPENAI_CLIP_STD,
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


Shape = tuple[int, ...]
_QUERIES = GRID[0] * GRID[1]


@dataclass(frozen=True)
class Weight:
    """A published weight: its shape, its names here, and its conversion to one tensor per name."""

    name: str
    shape: Shape
    targets: tuple[str, ...]
    convert: Callable[[torch.Tensor], tuple[torch.Tensor, ...]] = lambda tensor: (tensor,)


def _thirds(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(third.clone() for third in tensor.chunk(3))  # safetensors refuses tensors that share memory


def _transposed(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (tensor.t().contiguous(),)


def published_weights(published: Published) -> dict[str, Weight]:
    """All of them, by name."""
    listed = [*_language_model(published), *_tower(published), *_resampler(published)]
    return {weight.name: weight for weight in listed}


def _language_model(published: Published) -> Iterator[Weight]:
    hidden = published.hidden_size
    table = (published.vocab_size, hidden)
    yield Weight("transformer.wte.weight", table, ("language_model.model.embed_tokens.weight",))
    yield Weight("transformer.ln_f.weight", (hidden,), ("language_model.model.norm.weight",))
    yield Weight("lm_head.weight", table, ("language_model.lm_head.weight",))
    for layer in range(published.num_hidden_layers):
        yield from _decoder_layer(
            f"transformer.h.{layer}.",
            f"language_model.model.layers.{layer}.",
            hidden,
            published.intermediate_size // 2,
        )


def _decoder_layer(there: str, here: str, hidden: int, ffn: int) -> Iterator[Weight]:
    yield Weight(f"{there}ln_1.weight", (hidden,), (f"{here}input_layernorm.weight",))
    yield Weight(f"{there}ln_2.weight", (hidden,), (f"{here}post_attention_layernorm.weight",))
    for kind, shape in (("weight", (3 * hidden, hidden)), ("bias", (3 * hidden,))):
        targets = tuple(f"{here}self_attn.{part}_proj.{kind}" for part in "qkv")
        yield Weight(f"{there}attn.c_attn.{kind}", shape, targets, _thirds)
    yield Weight(f"{there}attn.c_proj.weight", (hidden, hidden), (f"{here}self_attn.o_proj.weight",))
    # The activation is on w2, so w2 is the gate: w1(x) * silu(w2(x)).
    yield Weight(f"{there}mlp.w1.weight", (ffn, hidden), (f"{here}mlp.up_proj.weight",))
    yield Weight(f"{there}mlp.w2.weight", (ffn, hidden), (f"{here}mlp.gate_proj.weight",))
    yield Weight(f"{there}mlp.c_proj.weight", (hidden, ffn), (f"{here}mlp.down_proj.weight",))


def _tower(published: Published) -> Iterator[Weight]:
    visual = published.visual
    there, here, width, patch = "transformer.visual.", "vision.", visual.width, visual.patch_size
    yield Weight(f"{there}conv1.weight", (width, 3, patch, patch), (f"{here}conv1.weight",))
    yield Weight(f"{there}positional_embedding", (_QUERIES, width), (f"{here}positional_embedding",))
    for kind in ("weight", "bias"):
        yield Weight(f"{there}ln_pre.{kind}", (width,), (f"{here}ln_pre.{kind}",))
    for layer in range(visual.layers):
        for name, shape in _tower_block(width, tower_ffn(visual)).items():
            target = f"{here}blocks.{layer}.{name.removeprefix('mlp.')}"
            yield Weight(f"{there}transformer.resblocks.{layer}.{name}", shape, (target,))


def _tower_block(width: int, ffn: int) -> dict[str, Shape]:
    linear = {
        "attn.in_proj": (3 * width, width),
        "attn.out_proj": (width, width),
        "mlp.c_fc": (ffn, width),
        "mlp.c_proj": (width, ffn),
    }
    shapes: dict[str, Shape] = {f"{norm}.{kind}": (width,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def _resampler(published: Published) -> Iterator[Weight]:
    hidden = published.hidden_size
    there, here = "transformer.visual.attn_pool.", "projector."
    yield Weight(f"{there}query", (_QUERIES, hidden), (f"{here}query",))
    yield Weight(f"{there}pos_embed", (_QUERIES, hidden), (f"{here}positions",))
    yield Weight(f"{there}kv_proj.weight", (hidden, published.visual.width), (f"{here}kv_proj.weight",))
    for kind, shape in (("weight", (hidden, hidden)), ("bias", (hidden,))):
        targets = tuple(f"{here}{part}_proj.{kind}" for part in "qkv")
        yield Weight(f"{there}attn.in_proj_{kind}", (3 * hidden, *shape[1:]), targets, _thirds)
        yield Weight(f"{there}attn.out_proj.{kind}", shape, (f"{here}out_proj.{kind}",))
        for norm in ("ln_q", "ln_kv"):
            yield Weight(f"{there}{norm}.{kind}", (hidden,), (f"{here}{norm}.{kind}",))
        yield Weight(f"transformer.visual.ln_post.{kind}", (hidden,), (f"{here}ln_post.{kind}",))
    # Published as a matrix multiplied from the right; a linear layer multiplies by the transpose.
    yield Weight("transformer.visual.proj", (hidden, hidden), (f"{here}proj.weight",), _transposed)
