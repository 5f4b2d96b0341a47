"""From the published folder of Qwen-VL (2023) to one that `LlamaViT.from_pretrained` and `AutoTokenizer` read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast

import torch
from huggingface_hub import save_torch_state_dict
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator
from transformers import Qwen2Config
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from vlm_agent.models.conversion import (
    CheckpointFormatError,
    Converter,
    Stored,
    architectures,
    refuse,
    stored_weights,
    tensors_of,
)
from vlm_agent.models.llama_vit.model import LlamaViTConfig
from vlm_agent.models.qwen_vl_2023.tokenizer import END, VOCABULARY_FILE, build_tokenizer
from vlm_agent.models.qwen_vl_2023.tower import HEAD_WIDTH, QwenVLTowerConfig

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
    seq_length: int = Field(gt=1)
    tie_word_embeddings: Literal[False]
    use_dynamic_ntk: bool
    use_logn_attn: bool
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
        text_config=Qwen2Config(
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
        ),
        screen_size=(visual.image_size, visual.image_size),
        visual_grid=GRID,
        image_mean=OPENAI_CLIP_MEAN,
        image_std=OPENAI_CLIP_STD,
        projector="resampler",
        ntk_length=published.seq_length if published.use_dynamic_ntk else None,
        log_n_length=published.seq_length if published.use_logn_attn else None,
        architectures=["LlamaViT"],
        dtype=dtype,
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


def published_weights(published: Published) -> dict[str, Weight]:
    """All of them, by name."""
    hidden, ffn, visual = published.hidden_size, published.intermediate_size // 2, published.visual
    table, square = (published.vocab_size, hidden), (hidden, hidden)
    text, tower, pool = "transformer.", "transformer.visual.", "transformer.visual.attn_pool."
    found = [
        Weight(f"{text}wte.weight", table, ("language_model.model.embed_tokens.weight",)),
        Weight(f"{text}ln_f.weight", (hidden,), ("language_model.model.norm.weight",)),
        Weight("lm_head.weight", table, ("language_model.lm_head.weight",)),
        Weight(f"{tower}conv1.weight", (visual.width, 3, *[visual.patch_size] * 2), ("vision.conv1.weight",)),
        Weight(f"{tower}positional_embedding", (_QUERIES, visual.width), ("vision.positional_embedding",)),
        *_with_bias(f"{tower}ln_pre", (visual.width,), "vision.ln_pre"),
        Weight(f"{pool}query", (_QUERIES, hidden), ("projector.query",)),
        Weight(f"{pool}pos_embed", (_QUERIES, hidden), ("projector.positions",)),
        Weight(f"{pool}kv_proj.weight", (hidden, visual.width), ("projector.kv_proj.weight",)),
        *_three_with_bias(f"{pool}attn.in_proj_", hidden, "projector."),
        *_with_bias(f"{pool}attn.out_proj", square, "projector.out_proj"),
        *_with_bias(f"{pool}ln_q", (hidden,), "projector.ln_q"),
        *_with_bias(f"{pool}ln_kv", (hidden,), "projector.ln_kv"),
        *_with_bias(f"{tower}ln_post", (hidden,), "projector.ln_post"),
        # Published as a matrix multiplied from the right; a linear layer multiplies by the transpose.
        Weight(f"{tower}proj", square, ("projector.proj.weight",), lambda tensor: (tensor.t().contiguous(),)),
    ]
    for number in range(published.num_hidden_layers):
        there, here = f"{text}h.{number}.", f"language_model.model.layers.{number}."
        found += [
            Weight(f"{there}ln_1.weight", (hidden,), (f"{here}input_layernorm.weight",)),
            Weight(f"{there}ln_2.weight", (hidden,), (f"{here}post_attention_layernorm.weight",)),
            *_three_with_bias(f"{there}attn.c_attn.", hidden, f"{here}self_attn."),
            Weight(f"{there}attn.c_proj.weight", square, (f"{here}self_attn.o_proj.weight",)),
            # The activation is on w2, so w2 is the gate: w1(x) * silu(w2(x)).
            Weight(f"{there}mlp.w1.weight", (ffn, hidden), (f"{here}mlp.up_proj.weight",)),
            Weight(f"{there}mlp.w2.weight", (ffn, hidden), (f"{here}mlp.gate_proj.weight",)),
            Weight(f"{there}mlp.c_proj.weight", (hidden, ffn), (f"{here}mlp.down_proj.weight",)),
        ]
    width, wide = visual.width, tower_ffn(visual)
    block: dict[str, Shape] = {"ln_1": (width,), "ln_2": (width,)}
    block |= {"attn.in_proj": (3 * width, width), "attn.out_proj": (width, width)}
    block |= {"mlp.c_fc": (wide, width), "mlp.c_proj": (width, wide)}
    for number in range(visual.layers):
        for name, shape in block.items():
            target = f"vision.blocks.{number}.{name.removeprefix('mlp.')}"
            found += _with_bias(f"{tower}transformer.resblocks.{number}.{name}", shape, target)
    return {weight.name: weight for weight in found}


def _with_bias(there: str, shape: Shape, here: str) -> list[Weight]:
    """A layer's weight of this shape, and its bias."""
    shapes = {"weight": shape, "bias": shape[:1]}
    return [Weight(f"{there}.{kind}", size, (f"{here}.{kind}",)) for kind, size in shapes.items()]


def _three_with_bias(there: str, hidden: int, here: str) -> list[Weight]:
    """Queries, keys and values: one matrix and one bias there, three layers here."""

    def thirds(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(third.clone() for third in tensor.chunk(3))  # safetensors refuses tensors that share memory

    return [
        Weight(f"{there}{kind}", shape, tuple(f"{here}{part}_proj.{kind}" for part in "qkv"), thirds)
        for kind, shape in {"weight": (3 * hidden, hidden), "bias": (3 * hidden,)}.items()
    ]


SHARD_BYTES = 2 << 30
"""The most of a file."""

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def read(source: Path) -> Callable[[Path, Callable[[str], None]], None]:
    """See `Converter.read`; weights keep their dtype."""
    published = read_configuration(source / "config.json")
    expected = published_weights(published)
    stored = find_weights(source, expected)
    tokenizer = build_tokenizer(source / VOCABULARY_FILE, published.max_position_embeddings)
    if len(tokenizer) > published.vocab_size:
        raise CheckpointFormatError(
            f"{source / VOCABULARY_FILE} makes {len(tokenizer)} ids with the special tokens, more than config.json's "
            f"{published.vocab_size} embeddings: they are not of one checkpoint"
        )
    config = our_configuration(published, cast("int", tokenizer.convert_tokens_to_ids(END)), _DTYPES[stored[0].dtype])

    def write(folder: Path, say: Callable[[str], None]) -> None:
        save_torch_state_dict(_converted(stored, expected), folder, max_shard_size=SHARD_BYTES)
        for file in sorted(folder.glob("*.safetensors")):
            say(f"Wrote {file.name}")
        tokenizer.save_pretrained(folder)
        config.save_pretrained(folder)

    return write


def find_weights(source: Path, expected: dict[str, Weight]) -> list[Stored]:
    """The weights in the order of their files; only headers are read.

    Raises CheckpointFormatError, which names them, for weights that are missing, unknown, twice there or of another
    shape, and for a folder without weights.
    """
    found: dict[str, Stored] = {}
    wrong: list[str] = []
    for stored in stored_weights(source):
        wrong += _complaints(stored, expected.get(stored.name), found.get(stored.name))
        found[stored.name] = stored
    wrong += [f"{name} is missing" for name in expected if name not in found]
    refuse(source, "Qwen-VL's", wrong)
    return list(found.values())


def _complaints(stored: Stored, weight: Weight | None, other: Stored | None) -> Iterator[str]:
    if weight is None:
        yield f"{stored.name} is unknown"
    elif stored.shape != weight.shape:
        yield f"{stored.name} has shape {stored.shape}, where config.json asks for {weight.shape}"
    elif stored.dtype not in _DTYPES:
        yield f"{stored.name} is {stored.dtype}, not one of {', '.join(_DTYPES)}"
    if other is not None:
        yield f"{stored.name} is both in {other.file.name} and in {stored.file.name}"


def _converted(stored: list[Stored], expected: dict[str, Weight]) -> dict[str, torch.Tensor]:
    """Our weights by name. What is not rearranged is mapped from its file, and takes no memory."""
    tensors: dict[str, torch.Tensor] = {}
    for file in dict.fromkeys(one.file for one in stored):
        for name, tensor in tensors_of(file):
            tensors |= zip(expected[name].targets, expected[name].convert(tensor), strict=True)
    return tensors


QWEN_VL_2023 = Converter(
    "Qwen-VL (2023)", "model.vlm.checkpoint", lambda folder: ARCHITECTURE in architectures(folder), read
)
