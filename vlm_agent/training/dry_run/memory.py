"""The memory of a GPU during training: weights, gradients and optimiser states to the byte, the rest estimated.

Bytes of a trained weight, on each of N GPUs, in mixed precision (Rajbhandari et al. 2020, "ZeRO", section 3; DeepSpeed
0.19; PyTorch's DDP):

                       DDP    ZeRO-2     ZeRO-3      in float32: 4 for every 2
    the weight          4      2          2 / N
    its gradient        4      2 / N      2 / N
    float32 copy        –      4 / N      4 / N
    AdamW's moments     8      8 / N      8 / N      Muon's: 4

Every GPU holds the frozen weights, with ZeRO-3 a part of them; in mixed precision DeepSpeed casts float32 ones to
bfloat16. With offload, all of these are in main memory. Buffers, an estimate: DDP's copy of the gradients, autocast's
bfloat16 copies of trained weights; DeepSpeed's gradient bucket (it would be two with `overlap_comm`); the weights that
ZeRO-3 may gather at a time; and 1 GB for CUDA and its libraries.

`Demand.layers` chooses how many layers `training.gradient_checkpointing: auto` checkpoints.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig

from vlm_agent.models.cost import CostModel, Precision, Workload
from vlm_agent.models.family import family_of
from vlm_agent.models.weights.adapters import choose_trained_weights, without_zero3_partitioning
from vlm_agent.recipe.model import ModelRecipe, Quantisation
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.loop.optimizers import Muon, optimizer_of

CUDA_BYTES = 10**9
USABLE = 0.94
"""The share of a GPU's memory that an estimate may take. Estimates were within 2 % on a GPU; the rest is for the holes
between rows of unlike lengths."""


@dataclass(frozen=True)
class Sharding:
    """A way to spread a model over GPUs. `stage`: DeepSpeed's ZeRO stage, 0: plain DDP. `bucket`: numbers in its
    `reduce_bucket_size`, None: `auto`, which is hidden x hidden; `live`: in its `stage3_max_live_parameters`."""

    name: str
    stage: int
    offload: bool = False
    bucket: int | None = None
    live: int = 0


SHARDINGS = (
    Sharding("ddp", 0),
    Sharding("zero2", 2, bucket=2 * 10**8),
    Sharding("zero3", 3, live=10**9),
    Sharding("zero3_offload", 3, offload=True, live=5 * 10**8),
)
"""DDP, and the GPU configurations in deepspeed_configs/ by file name."""


@dataclass(frozen=True)
class Weights:
    """`frozen`: bytes of frozen weights; `frozen_cast`: after DeepSpeed has cast them. `trained`: the number of trained
    weights. `optimizer`: bytes of its states. `hidden`: the width of the language model."""

    frozen: int
    frozen_cast: int
    trained: int
    optimizer: int
    hidden: int


@dataclass(frozen=True)
class Memory:
    """Bytes per GPU. `host`: bytes of main memory per GPU."""

    weights: int
    gradients: int
    optimizer: int
    buffers: int
    host: int = 0

    @property
    def total(self) -> int:
        """Without activations."""
        return self.weights + self.gradients + self.optimizer + self.buffers


def weigh(
    model: nn.Module, parts: dict[str, str], optimizer: torch.optim.Optimizer, kind: Quantisation | None, bf16: bool
) -> Weights:
    """The weights of a model on any device, even meta, after `choose_trained_weights`.

    `kind`: the quantisation that the run will apply to the language model's linear layers. `bf16`: mixed precision.
    """
    quantised = {  # bytes by id()
        id(module.weight): quantised_bytes(module.weight.shape, kind)
        for module in part_of(model, parts["language_model"]).modules()
        if kind is not None and isinstance(module, nn.Linear) and not module.weight.requires_grad
    }
    cast = 2 if bf16 else 4
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    return Weights(
        frozen=weight_bytes(frozen, quantised),
        frozen_cast=weight_bytes(frozen, quantised, cast),
        trained=sum(parameter.numel() for parameter in trained),
        optimizer=optimizer_bytes(optimizer),
        hidden=next(part_of(model, parts["embeddings"]).parameters()).shape[1],
    )


def weight_bytes(parameters: Iterable[nn.Parameter], quantised: dict[int, int], widest: int = 4) -> int:
    """Bytes, with at most `widest` per element; `quantised` overrides the bytes of parameters by their id()."""
    return sum(
        quantised.get(id(parameter), parameter.numel() * min(parameter.element_size(), widest))
        for parameter in parameters
    )


def part_of(model: nn.Module, path: str) -> nn.Module:
    """The submodule at a path of the base model, in a model with or without an adapter."""
    return next(module for name, module in model.named_modules() if f".{name}".endswith(f".{path}"))


def quantised_bytes(shape: Sequence[int], kind: Quantisation) -> int:
    """Bytes of a weight (outputs, inputs) by bitsandbytes. int8: a scale a row. nf4: 4 bits a weight, an 8-bit scale
    for 64 of them, a float32 for 256 scales and one more, and tables of 16 and 256 values."""
    outputs, inputs = shape
    weights = outputs * inputs
    if kind == "int8":
        return weights + 4 * outputs
    scales = math.ceil(weights / 64)
    return math.ceil(weights / 2) + scales + 4 * math.ceil(scales / 256) + 4 + 4 * 16 + 4 * 256


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """States of AdamW (two moments) and Muon (one), float32."""
    return sum(
        (4 if isinstance(part, Muon) else 8) * parameter.numel()
        for part in getattr(optimizer, "parts", [optimizer])
        for group in part.param_groups
        for parameter in group["params"]
    )


def spread(weights: Weights, sharding: Sharding, gpus: int, bf16: bool) -> Memory:
    """The memory of each of `gpus` GPUs, without activations."""
    if sharding.stage == 0:
        copies = 4 * weights.trained if gpus > 1 else 0
        cast = 2 * weights.trained if bf16 else 0
        gradients = 4 * weights.trained
        held = weights.frozen + 4 * weights.trained
        return Memory(held, gradients, weights.optimizer, CUDA_BYTES + copies + cast)
    number = 2 if bf16 else 4
    held = weights.frozen_cast + number * weights.trained
    bucket = number * (weights.hidden**2 if sharding.bucket is None else sharding.bucket)
    gathered = min(number * sharding.live, held)
    memory = Memory(
        weights=_share(held, gpus) if sharding.stage == 3 else held,
        gradients=number * weights.trained if sharding.stage == 1 else _share(number * weights.trained, gpus),
        optimizer=_share(weights.optimizer + 4 * weights.trained, gpus),
        buffers=CUDA_BYTES + bucket + gathered,
    )
    if not sharding.offload:
        return memory
    return Memory(0, 0, 0, memory.buffers, host=memory.weights + memory.gradients + memory.optimizer)


def _share(everything: int, gpus: int) -> int:
    return math.ceil(everything / gpus)


@dataclass(frozen=True)
class Demand:
    """The memory that a run demands of each GPU. `bf16`: mixed precision. `row`: its largest."""

    weights: Weights
    cost: CostModel
    model: ModelRecipe
    bf16: bool
    row: Workload

    def activations(self, checkpointed: int) -> int:
        """Bytes, with the lowest `checkpointed` layers of the language model checkpointed."""
        precision = Precision(self.bf16, self.model.dtype == "bfloat16")
        return self.cost.activation_bytes(self.row, self.model.train, self.model.lora, precision, checkpointed)

    def total(self, sharding: Sharding, gpus: int, checkpointed: int) -> int:
        """Bytes on each of `gpus` GPUs."""
        return spread(self.weights, sharding, gpus, self.bf16).total + self.activations(checkpointed)

    def layers(self, sharding: Sharding, gpus: int, memory: int) -> int:
        """The fewest layers to checkpoint on GPUs of `memory` bytes; all, where even that is too little."""
        layers = self.cost.layers
        fit = (count for count in range(layers) if self.total(sharding, gpus, count) <= USABLE * memory)
        return next(fit, layers)


def layers_in_words(count: int, layers: int, needed: int, memory: int) -> str:
    """A choice of layers and the estimate of it, in a line. `needed`, `memory`: bytes."""
    line = f"{count} of {layers} layers (estimate {needed / 1e9:.1f} of {memory / 1e9:.1f} GB)"
    return line if needed <= USABLE * memory else f"{line}, too much for this GPU"


def demand_of(model: nn.Module, recipe: Recipe, row: Workload, bf16: bool) -> Demand:
    """`model`: of `empty_model`. Raises UnknownCostError for a model whose cost cannot be computed."""
    config: PretrainedConfig = model.config  # type: ignore[assignment]
    family, optimizer = family_of(config), optimizer_of(model, recipe.training.optimizer)
    weights = weigh(model, family.parts, optimizer, recipe.model.quantisation, bf16)
    return Demand(weights, family.cost(config), recipe.model, bf16, row)


def empty_model(config: PretrainedConfig, recipe: ModelRecipe) -> nn.Module:
    """The model on the meta device, with the recipe's parts frozen, adapted and trained."""
    with torch.device("meta"), without_zero3_partitioning(True):
        model = family_of(config).model(config).to(getattr(torch, recipe.dtype))
        return choose_trained_weights(model, recipe.train, recipe.lora)
