"""The sizes that decide how much a model computes: of its language model, and of what reads its screens."""

from dataclasses import dataclass
from itertools import pairwise

from transformers import PretrainedConfig

from vlm_agent.models.llama_vit import LlamaViTConfig

DECODERS = {"llama", "mistral", "qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}
"""Language models made of grouped-query attention and a gated MLP of three matrices, as `Decoder` describes them."""


class UnknownShapeError(ValueError):
    """A model whose arithmetic nobody has written down here."""


@dataclass(frozen=True)
class Decoder:
    """A language model. `qk_norm`: queries and keys are normalised (Qwen3)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    qk_norm: bool = False

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def read_first(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the linear maps that read a layer's input: queries, keys, values."""
        return (self.hidden, self.query_width), (self.hidden, self.kv_width), (self.hidden, self.kv_width)

    @property
    def read_later(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of a layer's other linear maps: attention's output, gate, up, down."""
        hidden, wide = self.hidden, self.intermediate
        return (self.query_width, hidden), (hidden, wide), (hidden, wide), (wide, hidden)


@dataclass(frozen=True)
class QwenTower:
    """A Qwen-VL vision tower, from patches to visual tokens.

    `mlp` is the MLP's width, of two matrices or, `gated`, of three; `patch` pixels a side, `patch_values` numbers in
    one (two equal frames); `merge` x `merge` patches make a token; `deepstack` mergers stand beside the last one
    (Qwen3-VL). `window` patches a side is what a layer attends within, unless it is one of `full_layers`; None: all.
    """

    layers: int
    width: int
    mlp: int
    gated: bool
    patch: int
    patch_values: int
    merge: int
    outputs: int
    deepstack: int = 0
    window: int | None = None
    full_layers: int = 0

    @property
    def layer_maps(self) -> tuple[tuple[int, int], ...]:
        width, mlp = self.width, self.mlp
        return (width, 3 * width), (width, width), *((width, mlp),) * (1 + self.gated), (mlp, width)

    @property
    def merger_maps(self) -> tuple[tuple[int, int], ...]:
        merged = self.width * self.merge**2
        return (merged, merged), (merged, self.outputs)

    def tokens(self, rows: int, columns: int) -> int:
        """Visual tokens of a screen of `rows` x `columns` patches."""
        return rows * columns // self.merge**2

    def pairs(self, rows: int, columns: int) -> int:
        """(query, key) pairs of a screen of `rows` x `columns` patches, over all layers."""
        everything = (rows * columns) ** 2
        if self.window is None:
            return self.layers * everything
        inside = _squares(rows, self.window) * _squares(columns, self.window)
        return self.full_layers * everything + (self.layers - self.full_layers) * inside


def _squares(length: int, window: int) -> int:
    """The sum of squared lengths of the pieces that `length` is cut into from its start, `window` each but the last."""
    return sum((end - start) ** 2 for start, end in pairwise([*range(0, length, window), length]))


@dataclass(frozen=True)
class ModelShape:
    """`tower`: a `QwenTower`, or the configuration of a model whose vision encoder may be any; that one is counted by
    running it (`flops.screen_work`)."""

    decoder: Decoder
    tower: QwenTower | LlamaViTConfig


def shape_of(config: PretrainedConfig) -> ModelShape:
    """Of a `LlamaViTConfig`, or a Qwen2-VL, Qwen2.5-VL or Qwen3-VL configuration of transformers.

    Raises UnknownShapeError for any other, and for a language model of another build, such as a mixture of experts.
    """
    if isinstance(config, LlamaViTConfig):
        return ModelShape(_decoder(config.text_config), config)
    if config.model_type not in _TOWERS:
        known = ", ".join([LlamaViTConfig.model_type, *_TOWERS])
        raise UnknownShapeError(f"the arithmetic of model_type {config.model_type!r} is not known; known: {known}")
    return ModelShape(_decoder(config.text_config), _TOWERS[config.model_type](config.vision_config))


def _decoder(config: PretrainedConfig) -> Decoder:
    if config.model_type not in DECODERS:
        known = ", ".join(sorted(DECODERS))
        raise UnknownShapeError(
            f"the arithmetic of a {config.model_type!r} language model is not known; known: {known}"
        )
    head_dim = getattr(config, "head_dim", None)
    return Decoder(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads if head_dim is None else head_dim,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        qk_norm=config.model_type in ("qwen3", "qwen3_vl_text"),
    )


def _common(config: PretrainedConfig) -> dict[str, int]:
    return {
        "layers": config.depth,
        "patch": config.patch_size,
        "patch_values": config.in_channels * config.temporal_patch_size * config.patch_size**2,
        "merge": config.spatial_merge_size,
    }


def _qwen2(config: PretrainedConfig) -> QwenTower:
    width = config.embed_dim
    return QwenTower(
        width=width, mlp=int(width * config.mlp_ratio), gated=False, outputs=config.hidden_size, **_common(config)
    )


def _qwen2_5(config: PretrainedConfig) -> QwenTower:
    return QwenTower(
        width=config.hidden_size,
        mlp=config.intermediate_size,
        gated=True,
        outputs=config.out_hidden_size,
        # As the model rounds it: a whole number of tokens a side.
        window=config.window_size // config.spatial_merge_size // config.patch_size * config.spatial_merge_size,
        full_layers=len(set(config.fullatt_block_indexes) & set(range(config.depth))),
        **_common(config),
    )


def _qwen3(config: PretrainedConfig) -> QwenTower:
    return QwenTower(
        width=config.hidden_size,
        mlp=config.intermediate_size,
        gated=False,
        outputs=config.out_hidden_size,
        deepstack=len(config.deepstack_visual_indexes),
        **_common(config),
    )


_TOWERS = {"qwen2_vl": _qwen2, "qwen2_5_vl": _qwen2_5, "qwen3_vl": _qwen3}
