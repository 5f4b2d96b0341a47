"""What a run will cost, before any weight is read: parameters, tokens, arithmetic, memory and time.

The model is built on the meta device from its configuration: its parameters are all there, without their numbers.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig

from vlm_agent.datasets.columns import read_columns
from vlm_agent.models.adapters import choose_trained_weights, count_parameters
from vlm_agent.models.recipe import ModelRecipe
from vlm_agent.models.sources import model_class
from vlm_agent.training.activations import Numbers, activation_bytes
from vlm_agent.training.flops import Load, StepFlops, Work
from vlm_agent.training.hardware import Gpu
from vlm_agent.training.memory import SHARDINGS, Memory, spread, weigh
from vlm_agent.training.optimizers import optimizer_of
from vlm_agent.training.pass_counts import PassCounts, count_pass, seen_sizes
from vlm_agent.training.plan import Plan
from vlm_agent.training.recipe import Recipe, RecipeError
from vlm_agent.training.shapes import shape_of


@dataclass(frozen=True)
class Target:
    """Where the run is to take place. `mfu`: the share of the GPUs' peak that model FLOPs are assumed to reach."""

    gpu: Gpu
    gpus: int
    mfu: float


@dataclass(frozen=True)
class StepCounts:
    """Means of an optimiser step, over all GPUs."""

    rows: int
    tokens: float
    supervised: float
    actions: float
    work: Work


@dataclass(frozen=True)
class DryRun:
    """`parameters`: trained and frozen, by part. `memory`: by DeepSpeed configuration, without activations, which are
    `activations`, by whether gradient checkpointing is on. `hours`: at the target's MFU."""

    recipe: Recipe
    target: Target
    parameters: dict[str, dict[str, int]]
    reads: PassCounts
    rows_a_pass: int
    steps: int
    step: StepCounts
    memory: dict[str, Memory]
    activations: dict[bool, int]
    hours: float


def dry_run(plan: Plan, target: Target) -> DryRun:
    """Raises what `Plan` raises, UnknownShapeError for a model whose arithmetic is not known, HardwareError for a GPU
    without the recipe's numbers, RecipeError for sentences that are drawn during the run."""
    recipe = plan.recipe
    if recipe.data.drawn is not None or recipe.data.sentences != "trajectory":
        raise RecipeError("a dry run needs data.shards and data.sentences: trajectory; others are drawn during the run")
    bf16 = target.gpu.bf16 is not None if recipe.training.bf16 == "auto" else recipe.training.bf16
    peak = target.gpu.peak(bf16)
    model = empty_model(plan.config, recipe.model)
    reads = count_pass(
        plan.order.items, plan.token_counts, seen_sizes(read_columns(plan.shards), plan.reading.screens, plan.config)
    )
    rows = plan.order.rows_in(1)
    steps, step = plan.steps_of(recipe.training.accumulation * target.gpus), count_step(plan, reads, rows, target.gpus)
    return DryRun(
        recipe=recipe,
        target=target,
        parameters=count_parameters(model),
        reads=reads,
        rows_a_pass=rows,
        steps=steps,
        step=step,
        memory=memory_by_sharding(model, plan.config, recipe, target.gpus, bf16),
        activations=activations_by_checkpointing(plan, largest_row(plan, reads), bf16),
        hours=steps * step.work.model / (target.gpus * peak * target.mfu) / 3600,
    )


def empty_model(config: PretrainedConfig, recipe: ModelRecipe) -> nn.Module:
    """The model on the meta device, its parts frozen, adapted and trained as the recipe says."""
    with torch.device("meta"):
        model = model_class(config)(config).to(getattr(torch, recipe.dtype))
        return choose_trained_weights(model, recipe.train, recipe.lora)


def count_step(plan: Plan, reads: PassCounts, rows_a_pass: int, gpus: int) -> StepCounts:
    training, model = plan.recipe.training, plan.recipe.model
    flops = StepFlops(shape_of(plan.config), model.train, model.lora.rank, training.gradient_checkpointing)
    rows = training.accumulation * gpus
    share = rows / rows_a_pass
    return StepCounts(
        rows=rows,
        tokens=reads.load.tokens * share,
        supervised=reads.load.supervised * share,
        actions=reads.actions * share,
        work=flops.of(reads.load) * share,
    )


def memory_by_sharding(
    model: nn.Module, config: PretrainedConfig, recipe: Recipe, gpus: int, bf16: bool
) -> dict[str, Memory]:
    """What each of `gpus` GPUs holds under plain DDP and each DeepSpeed configuration, activations apart."""
    optimizer = optimizer_of(model, recipe.training.optimizer)
    weights = weigh(model, model_class(config).parts, optimizer, recipe.model.quantisation, bf16)
    return {sharding.name: spread(weights, sharding, gpus, bf16) for sharding in SHARDINGS}


def largest_row(plan: Plan, reads: PassCounts) -> Load:
    """A row as large as any can be, as dense in actions and screens as all are on average."""
    size = plan.row_size
    at_most = size.sentences * reads.longest if size.tokens is None else max(size.tokens, reads.longest)
    share = min(at_most, reads.load.tokens) / reads.load.tokens
    whole = reads.load
    screens = Counter({size: count * share for size, count in whole.screens.items()})
    return Load(round(whole.tokens * share), round(whole.pairs * share), round(whole.supervised * share), screens)


def activations_by_checkpointing(plan: Plan, row: Load, bf16: bool) -> dict[bool, int]:
    """Bytes that a row keeps for its backward pass, without and with gradient checkpointing: an estimate."""
    model, shape = plan.recipe.model, shape_of(plan.config)
    numbers = Numbers(bf16, model.dtype == "bfloat16")
    return {
        checkpointing: round(activation_bytes(shape, model.train, model.lora, numbers, row, checkpointing))
        for checkpointing in (False, True)
    }
