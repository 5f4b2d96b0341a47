"""The cost of training a model, computed from its configuration: FLOPs and activation memory.

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
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

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
class SourceLoad:
    """What the encoder of an encoder-decoder reads.

    `pairs`: of a query and a key under bidirectional attention; `cross_pairs`: of a target's token and a source's.
    `vectors`: screen features; `vector_pairs`: of a source's token and a feature.
    """

    tokens: int = 0
    pairs: int = 0
    cross_pairs: int = 0
    vectors: int = 0
    vector_pairs: int = 0

    def __add__(self, other: "SourceLoad") -> "SourceLoad":
        return SourceLoad(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> "SourceLoad":
        return SourceLoad(*(round(one * times) for one in astuple(self)))


@dataclass(frozen=True)
class Workload:
    """The input of one or many forward passes.

    `tokens`: visual ones and those of sources included; `pairs`: of a query and a key under causal attention;
    `supervised`: tokens with a loss; `screens`: the number of screens of each size, (height, width) in pixels as the
    model takes them. `source`: for encoder-decoders.
    """

    tokens: int
    pairs: int
    supervised: int
    screens: Mapping[tuple[int, int], float]
    source: SourceLoad = SourceLoad()

    def __add__(self, other: "Workload") -> "Workload":
        screens = Counter(self.screens)
        screens.update(other.screens)
        tokens, pairs = self.tokens + other.tokens, self.pairs + other.pairs
        return Workload(tokens, pairs, self.supervised + other.supervised, screens, self.source + other.source)

    def __mul__(self, times: float) -> "Workload":
        """Counts are rounded, except those of screens."""
        tokens, pairs, supervised = (round(one * times) for one in (self.tokens, self.pairs, self.supervised))
        screens = Counter({size: count * times for size, count in self.screens.items()})
        return Workload(tokens, pairs, supervised, screens, self.source * times)


NO_WORK = Workload(tokens=0, pairs=0, supervised=0, screens={})


@dataclass(frozen=True)
class Precision:
    """`bf16`: mixed precision. `frozen_bf16`: frozen weights are bfloat16, and so are the states between layers."""

    bf16: bool
    frozen_bf16: bool

    @property
    def bytes(self) -> int:
        return 2 if self.bf16 else 4


class CostModel(Protocol):
    """The cost of one model, by its configuration. Every family brings one."""

    def workload(self, batch: Mapping[str, Any]) -> Workload:
        """The work of a batch as the family's processor collates it.

        Called at every step with tensors on the model's device: it reads their shapes and plain numbers, never their
        values, which would wait for a GPU.
        """

    def flops(self, load: Workload, train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        """FLOPs of a training step's forward and backward passes. `rank` is LoRA's."""

    def activation_bytes(
        self, load: Workload, train: TrainedParts, lora: Lora, precision: Precision, checkpointing: bool
    ) -> int:
        """The most that one batch keeps for its backward pass: an estimate."""


@dataclass(frozen=True)
class TrainingFlops:
    """The FLOPs of one model trained one way. `rank` is LoRA's."""

    cost: CostModel
    train: TrainedParts
    rank: int
    checkpointing: bool

    def of(self, load: Workload) -> Flops:
        return self.cost.flops(load, self.train, self.rank, self.checkpointing)


def causal_pairs(lengths: ArrayLike) -> int:
    """Pairs of a token and one that it attends to, itself included, in sentences of these lengths."""
    tokens = np.asarray(lengths, np.int64)
    return int((tokens * (tokens + 1) // 2).sum())


def linear_flops(maps: Iterable[tuple[int, int]], rows: int, training: Training, rank: int, reached: bool) -> Flops:
    """FLOPs of linear maps (inputs, outputs), each on `rows` vectors. `reached`: the input needs a gradient."""
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
    """FLOPs of heads `width` wide together, over `pairs` of query and key; with a backward pass or without."""
    forward = 4 * width * pairs
    return Flops(forward, 2 * forward if backward else 0)
