"""The cost of a run, without reading weights: parameters, tokens, FLOPs, memory and time.

The model is built on the meta device from its configuration: its parameters have shapes and no data.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig

from vlm_agent.models.cost import Flops, Precision, Workload
from vlm_agent.models.family import family_of
from vlm_agent.models.weights.adapters import choose_trained_weights, count_parameters
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.data_module import Note, Unwritable
from vlm_agent.training.data.sentence_kinds import PassCounts
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import Gpu
from vlm_agent.training.dry_run.memory import SHARDINGS, Memory, spread, weigh
from vlm_agent.training.loop.optimizers import optimizer_of


@dataclass(frozen=True)
class Target:
    """The hardware of the run. `mfu`: the assumed fraction of the GPUs' peak while it computes, recomputation included:
    the model FLOPs utilisation of a run without gradient checkpointing. None: `Gpu.mfu`."""

    gpu: Gpu
    gpus: int
    mfu: float | None = None

    @property
    def utilisation(self) -> float:
        return self.gpu.mfu if self.mfu is None else self.mfu


@dataclass(frozen=True)
class StepCounts:
    """Means per optimiser step, summed over all GPUs."""

    rows: int
    tokens: float
    supervised: float
    actions: float
    work: Flops


@dataclass(frozen=True)
class DryRun:
    """`parameters`: trained and frozen, by part. `memory`: by DeepSpeed configuration, without activations.
    `activations`: bytes, without and with gradient checkpointing. `hours`: at the target's MFU, with recomputation."""

    recipe: Recipe
    target: Target
    parameters: dict[str, dict[str, int]]
    reads: PassCounts
    unwritable: Unwritable
    notes: list[Note]
    rows_a_pass: int
    steps: int
    step: StepCounts
    memory: dict[str, Memory]
    activations: dict[bool, int]
    hours: float

    @property
    def mfu(self) -> float:
        """The utilisation by model FLOPs, without recomputation."""
        return self.target.utilisation * self.step.work.model / self.step.work.hardware

    def total_bytes(self, sharding: str, checkpointing: bool) -> int:
        """An estimate of the memory that a GPU needs."""
        return self.memory[sharding].total + self.activations[checkpointing]


def dry_run(data: ShardDataModule, target: Target) -> DryRun:
    """Raises the errors of `ShardDataModule`, UnknownCostError for a model whose cost cannot be computed, HardwareError
    for a GPU without the recipe's dtype."""
    recipe = data.recipe
    bf16 = target.gpu.bf16 is not None if recipe.training.bf16 == "auto" else recipe.training.bf16
    peak = target.gpu.peak(bf16)
    model = empty_model(data.config, recipe.model)
    reads = data.kind.count_pass(data.order.items)
    rows = data.order.rows_in(1)
    steps, step = data.steps_of(recipe.training.accumulation * target.gpus), count_step(data, reads, rows, target.gpus)
    return DryRun(
        recipe=recipe,
        target=target,
        parameters=count_parameters(model),
        reads=reads,
        unwritable=data.unwritable_actions,
        notes=data.notes,
        rows_a_pass=rows,
        steps=steps,
        step=step,
        memory=memory_by_sharding(model, data.config, recipe, target.gpus, bf16),
        activations=activations_by_checkpointing(data, reads.largest_row(data.row_size), bf16),
        hours=steps * step.work.hardware / (target.gpus * peak * target.utilisation) / 3600,
    )


def empty_model(config: PretrainedConfig, recipe: ModelRecipe) -> nn.Module:
    """The model on the meta device, with the recipe's parts frozen, adapted and trained."""
    with torch.device("meta"):
        model = family_of(config).model(config).to(getattr(torch, recipe.dtype))
        return choose_trained_weights(model, recipe.train, recipe.lora)


def count_step(data: ShardDataModule, reads: PassCounts, rows_a_pass: int, gpus: int) -> StepCounts:
    rows = data.recipe.training.accumulation * gpus
    share = rows / rows_a_pass
    return StepCounts(
        rows=rows,
        tokens=reads.load.tokens * share,
        supervised=reads.load.supervised * share,
        actions=reads.actions * share,
        work=data.flops.of(reads.load) * share,
    )


def memory_by_sharding(
    model: nn.Module, config: PretrainedConfig, recipe: Recipe, gpus: int, bf16: bool
) -> dict[str, Memory]:
    """The memory of each of `gpus` GPUs under DDP and each DeepSpeed configuration, without activations."""
    optimizer = optimizer_of(model, recipe.training.optimizer)
    weights = weigh(model, family_of(config).parts, optimizer, recipe.model.quantisation, bf16)
    return {sharding.name: spread(weights, sharding, gpus, bf16) for sharding in SHARDINGS}


def activations_by_checkpointing(data: ShardDataModule, row: Workload, bf16: bool) -> dict[bool, int]:
    """An estimate of the bytes saved for the backward pass of a row, without and with gradient checkpointing."""
    model, cost = data.recipe.model, family_of(data.config).cost(data.config)
    precision = Precision(bf16, model.dtype == "bfloat16")
    return {
        checkpointing: cost.activation_bytes(row, model.train, model.lora, precision, checkpointing)
        for checkpointing in (False, True)
    }
