"""The cost of training a model, computed from its configuration: FLOPs and activation memory.

The first part is for every model; the second part for Llama-like language models, alone or behind a vision tower.

FLOPs. A multiplication and an addition are two operations; only matrix products and convolutions count. A linear map of
N weights takes 2 N a token forward; backward, 2 N where the input needs a gradient and 2 N where its own weights train:
so 2 N, 4 N or 6 N in all. LoRA's two matrices are maps of their own. A query and a key take 4 x head width x heads
forward and twice that backward. Attention within a packed row has the pairs of its sentences, not of the row. The head
runs at supervised positions only, a frozen vision tower forward only.

Model FLOPs and MFU follow PaLM (Chowdhery et al. 2022, appendix B): what a step needs in any implementation, without
the recomputation of gradient checkpointing. With it, they are hardware FLOPs (HFU). The 6 N rule would credit LoRA with
gradients of frozen weights, which are never computed; here those layers count 4 N. Left out, all small: norms, softmax,
embeddings, the optimiser, dequantisation, DoRA's norms, the loss on elements, and the scores that flash attention
computes twice.

Activation memory follows Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer Models",
section 4.1), who sum what each operation of a GPT layer saves: 34 bytes a token and hidden unit, and the attention's
scores. The sum here is for a Llama-like layer as transformers, PEFT and autocast run it, with flash attention, which
saves no scores. A layer and token, with h hidden, q and k widths of queries and keys, i of the MLP, e bytes a number (2
in bfloat16, else 4):

    two norms     2 s h        their inputs, of s bytes a number (2 where frozen weights are bfloat16, else 4), and
                               4 bytes a token; e (q + k) more with Qwen3's
    inputs        e (2h + i)   of the linear maps, for their own or their adapter's weight gradients: maps of one input
                               share it, and attention keeps the input of its output map. e (5h + i) where the
                               layer trains in full in mixed precision: each map has a cast copy. Nothing where the
                               layer is frozen
    dropout       e q + 2h + q + i  where LoRA has dropout: the copy of attention's output, and bytes of masks
    attention     e (2q + 2k)  queries, keys, values, output; and 4 bytes a head
    MLP           2 e i        gate and up (`models.fused` computes the activation again)

With gradient checkpointing a layer keeps its input alone. The lowest layers are checkpointed first: the backward pass
reaches them when the layers above have freed theirs, so one of them at a time keeps the rest in that place, beside the
gradients of its gate, up and product less the input of its last map, which is freed by then (2 e i).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from transformers import PretrainedConfig

from vlm_agent.errors import UserError
from vlm_agent.recipe.model import Lora, TrainedParts, Training


class UnknownCostError(UserError):
    """A model whose cost this package cannot compute."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations. `recomputed`: the forward pass repeated by gradient checkpointing."""

    forward: float = 0
    backward: float = 0
    recomputed: float = 0

    @property
    def model(self) -> float:
        return self.forward + self.backward

    @property
    def hardware(self) -> float:
        return self.model + self.recomputed

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.forward + other.forward, self.backward + other.backward, self.recomputed + other.recomputed)

    def __mul__(self, times: float) -> "Flops":
        return Flops(self.forward * times, self.backward * times, self.recomputed * times)


@dataclass(frozen=True)
class Workload:
    """The input of one or many forward passes.

    `tokens`: visual ones and those of sources included; `pairs`: of a query and a key under causal attention;
    `supervised`: tokens with a loss; `screens`: the number of screens of each size, (height, width) in pixels as the
    model takes them.

    What the encoder of an encoder-decoder reads: `source_tokens`; `source_pairs` of a query and a key under
    bidirectional attention; `cross_pairs` of a target's token and a source's; `vectors`: screen features;
    `vector_pairs` of a source's token and a feature.
    """

    tokens: int
    pairs: int
    supervised: int
    screens: Mapping[tuple[int, int], float]
    source_tokens: int = 0
    source_pairs: int = 0
    cross_pairs: int = 0
    vectors: int = 0
    vector_pairs: int = 0

    def __add__(self, other: "Workload") -> "Workload":
        screens = Counter(self.screens)
        screens.update(other.screens)
        return self._with(screens, lambda name: getattr(self, name) + getattr(other, name))

    def __mul__(self, times: float) -> "Workload":
        """Counts are rounded, except those of screens."""
        screens = Counter({size: count * times for size, count in self.screens.items()})
        return self._with(screens, lambda name: round(getattr(self, name) * times))

    def _with(self, screens: Counter, count: Callable[[str], int]) -> "Workload":
        counts = {one.name: count(one.name) for one in fields(self) if one.name != "screens"}
        return Workload(screens=screens, **counts)


NO_WORK = Workload(tokens=0, pairs=0, supervised=0, screens={})


@dataclass(frozen=True)
class Precision:
    """`bf16`: mixed precision. `frozen_bf16`: frozen weights are bfloat16, and so are the states between layers."""

    bf16: bool
    frozen_bf16: bool

    @property
    def bytes(self) -> int:
        return 2 if self.bf16 else 4

    @property
    def state_bytes(self) -> int:
        return 2 if self.frozen_bf16 else 4


class CostModel(Protocol):
    """The cost of one model, by its configuration. Every family brings one."""

    def workload(self, batch: Mapping[str, Any]) -> Workload:
        """The workload of a batch as the family's processor collates it.

        Called at every step with tensors on the model's device: it reads their shapes and plain numbers, never their
        values, which would wait for a GPU.
        """

    @property
    def layers(self) -> int:
        """The layers of the language model; gradient checkpointing takes the lowest `checkpointed` of them, and with
        any of them every layer of a vision tower that trains."""

    def flops(self, load: Workload, train: TrainedParts, rank: int, checkpointed: int) -> Flops:
        """The FLOPs of a training step's forward and backward passes. `rank` is LoRA's."""

    def activation_bytes(
        self, load: Workload, train: TrainedParts, lora: Lora, precision: Precision, checkpointed: int
    ) -> int:
        """The most that one batch keeps for its backward pass: an estimate."""


@dataclass(frozen=True)
class TrainingFlops:
    """The FLOPs of one model trained one way. `rank` is LoRA's. `checkpointed`: as in `CostModel.layers`."""

    cost: CostModel
    train: TrainedParts
    rank: int
    checkpointed: int

    def of(self, load: Workload) -> Flops:
        return self.cost.flops(load, self.train, self.rank, self.checkpointed)


def causal_pairs(lengths: ArrayLike) -> int:
    """Pairs of a token and one that it attends to, itself included, in sentences of these lengths."""
    tokens = np.asarray(lengths, np.int64)
    return int((tokens * (tokens + 1) // 2).sum())


def linear_flops(maps: Iterable[tuple[int, int]], rows: int, training: Training, rank: int, reached: bool) -> Flops:
    """The FLOPs of linear maps (inputs, outputs), each on `rows` vectors. `reached`: the input needs a gradient."""
    forward = backward = 0
    for inputs, outputs in maps:
        plain = 2 * inputs * outputs * rows
        forward += plain
        backward += plain * (reached + (training == "full"))
        if training == "lora":
            down, up = 2 * inputs * rank * rows, 2 * rank * outputs * rows
            forward += down + up
            backward += down * (1 + reached) + 2 * up
    return Flops(forward, backward)


def attention_flops(width: int, pairs: int, backward: bool) -> Flops:
    """The FLOPs of heads `width` wide together, over `pairs` of query and key; with a backward pass or without."""
    forward = 4 * width * pairs
    return Flops(forward, 2 * forward if backward else 0)


# Llama-like language models, and families that put screens in front of one.

LLAMA_LIKE = {"llama", "mistral", "qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}
"""Language models with grouped-query attention and a gated MLP of three matrices."""


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a Llama-like language model. `qk_norm`: queries and keys are normalised (Qwen3)."""

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
    def first_maps(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the linear maps of a layer's input: queries, keys, values."""
        return (self.hidden, self.query_width), (self.hidden, self.kv_width), (self.hidden, self.kv_width)

    @property
    def later_maps(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of a layer's other linear maps: attention's output, gate, up, down."""
        hidden, wide = self.hidden, self.intermediate
        return (self.query_width, hidden), (hidden, wide), (hidden, wide), (wide, hidden)


def decoder_shape(config: PretrainedConfig) -> DecoderShape:
    """UnknownCostError for a language model of another build, such as a mixture of experts."""
    if config.model_type not in LLAMA_LIKE:
        known = ", ".join(sorted(LLAMA_LIKE))
        raise UnknownCostError(f"the cost of a {config.model_type!r} language model is not known; known: {known}")
    head_dim = getattr(config, "head_dim", None)
    return DecoderShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads if head_dim is None else head_dim,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        qk_norm=config.model_type in ("qwen3", "qwen3_vl_text"),
    )


class DecoderOnlyCost(CostModel):
    """A vision tower in front of a Llama-like language model; a family adds the cost of one screen.

    Behind a frozen tower, the tower's own activations are freed before the language model begins.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        """`config`: of the language model. Raises what `decoder_shape` raises."""
        self.decoder = decoder_shape(config)

    @property
    def layers(self) -> int:
        return self.decoder.layers

    def trained_parts(self, train: TrainedParts) -> TrainedParts:
        """`train` without parts that the model does not have."""
        return train

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        """The FLOPs of one screen of this size, from pixels or patches to projected tokens."""
        return Flops()

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        """Activations of one screen. A frozen tower holds a few of its widest results at a time, a trained one keeps
        all."""
        return 0

    def workload(self, batch: Mapping[str, Any]) -> Workload:
        """The workload of a row of `sentences.packing.pack`."""
        return Workload(
            tokens=sum(batch["lengths"]),
            pairs=causal_pairs(batch["lengths"]),
            supervised=batch["supervised"],
            screens=Counter(map(tuple, batch["screen_sizes"])),  # pinning memory turns tuples into lists
        )

    def flops(self, load: Workload, train: TrainedParts, rank: int, checkpointed: int) -> Flops:
        train, again = self.trained_parts(train), checkpointed > 0
        reached = {train.vision, train.projector, train.embeddings} != {"frozen"}
        language = decoder_flops(self.decoder, train, rank, load, reached, checkpointed)
        screens = (self.screen_flops(size, train, rank, again) * count for size, count in load.screens.items())
        return sum(screens, language)

    def activation_bytes(
        self, load: Workload, train: TrainedParts, lora: Lora, precision: Precision, checkpointed: int
    ) -> int:
        train, screens, again = self.trained_parts(train), load.screens.items(), checkpointed > 0
        vision = sum(self.screen_bytes(size, train, precision, again) * count for size, count in screens)
        language = decoder_bytes(self.decoder, train, lora, precision, load.tokens, checkpointed)
        language += logit_bytes(self.decoder.vocabulary, precision, load.supervised)
        return round(language + vision if train.vision != "frozen" else max(language, vision))


def decoder_flops(
    decoder: DecoderShape, train: TrainedParts, rank: int, load: Workload, reached: bool, checkpointed: int
) -> Flops:
    """The FLOPs of the language model, head included. `reached`: its input needs a gradient."""
    kind, rows = train.language_model, load.tokens
    trained = kind != "frozen"
    inner = reached or trained
    # A full layer trains the norm below its first maps, so those pass a gradient on even in the lowest layer.
    lowest = linear_flops(decoder.first_maps, rows, kind, rank, reached or kind == "full")
    others = linear_flops(decoder.first_maps, rows, kind, rank, inner) * (decoder.layers - 1)
    later = linear_flops(decoder.later_maps, rows, kind, rank, inner) * decoder.layers
    attention = attention_flops(decoder.query_width, load.pairs, inner) * decoder.layers
    layers = lowest + others + later + attention
    above = inner or train.norm != "frozen"
    head = linear_flops([(decoder.hidden, decoder.vocabulary)], load.supervised, train.head, rank, above)
    again = Flops(recomputed=layers.forward * checkpointed / decoder.layers if inner else 0)
    # LoRA on the table of embeddings: its first matrix is looked up, its second multiplies.
    product = 2 * rank * decoder.hidden * rows if train.embeddings == "lora" else 0
    return layers + head + again + Flops(product, 2 * product)


def decoder_bytes(
    decoder: DecoderShape, train: TrainedParts, lora: Lora, precision: Precision, tokens: int, checkpointed: int
) -> int:
    """Activations of the language model's layers."""
    one = tokens * layer_bytes(decoder, train, lora, precision)
    if {train.vision, train.projector, train.embeddings, train.language_model} == {"frozen"}:
        return one  # nothing below the head needs a gradient, so no layer keeps anything
    if not checkpointed:
        return decoder.layers * one
    inputs = checkpointed * tokens * decoder.hidden * precision.state_bytes
    gradients = 2 * tokens * precision.bytes * decoder.intermediate
    return inputs + max(decoder.layers - checkpointed, 1) * one + gradients


def layer_bytes(decoder: DecoderShape, train: TrainedParts, lora: Lora, precision: Precision) -> int:
    """Activations of one layer and token, by the formula in the module's docstring."""
    hidden, query, key, wide = decoder.hidden, decoder.query_width, decoder.kv_width, decoder.intermediate
    width, kind = precision.bytes, train.language_model
    norms = 2 * (precision.state_bytes * hidden + 4)
    norms += width * (query + key) + 4 * (decoder.heads + decoder.kv_heads) if decoder.qk_norm else 0
    if kind == "frozen":
        inputs = 0
    elif kind == "lora" and lora.dropout:
        inputs = (2 * hidden + query + wide) * (width + 1)
    elif kind == "full" and precision.bf16:
        inputs = width * (5 * hidden + wide)
    else:
        inputs = width * (2 * hidden + wide)
    adapters = 7 * lora.rank * width if kind == "lora" else 0
    attention = width * (2 * query + 2 * key) + 4 * decoder.heads
    return norms + inputs + adapters + attention + 2 * width * wide


def logit_bytes(vocabulary: int, precision: Precision, supervised: int) -> int:
    """Logits at supervised positions: as computed, in float32, their log-softmax, the gradients of the first two."""
    return supervised * vocabulary * (2 + 4 + 4 + 4 + 2 if precision.bf16 else 4 + 4 + 4)
