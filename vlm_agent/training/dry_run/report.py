"""The cost of a run, without reading weights: parameters, tokens, FLOPs, memory and time, and its tables.

The model is built on the meta device from its configuration: its parameters have shapes and no data.
"""

from dataclasses import dataclass

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlm_agent.files.console import new_table
from vlm_agent.models.cost import Flops
from vlm_agent.models.weights.adapters import count_parameters
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.data_module import Note
from vlm_agent.training.data.sentence_kinds import PassCounts
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import Gpu
from vlm_agent.training.dry_run.memory import (
    SHARDINGS,
    Demand,
    Memory,
    Sharding,
    demand_of,
    empty_model,
    layers_in_words,
    spread,
)
from vlm_agent.training.zero import sharding_of


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
    """`parameters`: trained and frozen, by part. By DeepSpeed configuration: `memory` without activations, and how many
    layers the recipe has `checkpointed`. `activations`: bytes, by the number of checkpointed layers, 0 to all.
    `sharding`: the configuration of the recipe. `hours`: at the target's MFU, with recomputation."""

    recipe: Recipe
    target: Target
    parameters: dict[str, dict[str, int]]
    reads: PassCounts
    notes: list[Note]
    rows_a_pass: int
    steps: int
    step: StepCounts
    memory: dict[str, Memory]
    activations: list[int]
    checkpointed: dict[str, int]
    sharding: str
    hours: float

    @property
    def mfu(self) -> float:
        """The utilisation by model FLOPs, without recomputation."""
        return self.target.utilisation * self.step.work.model / self.step.work.hardware

    def total_bytes(self, sharding: str, checkpointed: int) -> int:
        """An estimate of the memory that a GPU needs."""
        return self.memory[sharding].total + self.activations[checkpointed]


def dry_run(data: ShardDataModule, target: Target) -> DryRun:
    """Raises the errors of `ShardDataModule`, UnknownCostError for a model whose cost cannot be computed, HardwareError
    for a GPU without the recipe's dtype."""
    recipe, config = data.recipe, data.config
    bf16 = target.gpu.bf16 is not None if recipe.training.bf16 == "auto" else recipe.training.bf16
    peak = target.gpu.peak(bf16)
    model = empty_model(config, recipe.model)
    reads, rows = data.kind.count_pass(data.order.items), data.order.rows_in(1)
    demand, own = demand_of(model, recipe, reads.largest_row(data.row_size), bf16), sharding_of(recipe)
    shardings = {sharding.name: sharding for sharding in (*SHARDINGS, own)}
    checkpointed = {name: layers_of(demand, recipe, sharding, target) for name, sharding in shardings.items()}
    rows_a_step, load = recipe.training.accumulation * target.gpus, reads.load
    steps, share = data.steps_of(rows_a_step), rows_a_step / rows
    work = data.flops(checkpointed[own.name]).of(load) * share
    step = StepCounts(rows_a_step, load.tokens * share, load.supervised * share, reads.actions * share, work)
    return DryRun(
        recipe=recipe,
        target=target,
        parameters=count_parameters(model),
        reads=reads,
        notes=data.notes,
        rows_a_pass=rows,
        steps=steps,
        step=step,
        memory={name: spread(demand.weights, sharding, target.gpus, bf16) for name, sharding in shardings.items()},
        activations=[demand.activations(count) for count in range(demand.cost.layers + 1)],
        checkpointed=checkpointed,
        sharding=own.name,
        hours=steps * step.work.hardware / (target.gpus * peak * target.utilisation) / 3600,
    )


def layers_of(demand: Demand, recipe: Recipe, sharding: Sharding, target: Target) -> int:
    """How many layers the recipe has checkpointed, or would have under another sharding."""
    wanted = recipe.training.gradient_checkpointing
    if wanted == "auto":
        return demand.layers(sharding, target.gpus, target.gpu.memory)
    return demand.cost.layers if wanted else 0


# Its tables.


def print_dry_run(console: Console, dry: DryRun) -> None:
    """Prints parameters, data, FLOPs, time and memory."""
    console.print(Columns([_parameters(dry), _run(dry)], padding=(0, 4)))
    console.print(_memory(dry))
    for note in dry.notes:
        console.print(Text(note.text))
    console.print(Text(_small_print(dry), "dim"))


def _parameters(dry: DryRun) -> Table:
    table = new_table("Parameters, M", ["", "trained", "frozen"])
    for part, counts in dry.parameters.items():
        table.add_row(part.replace("_", " "), *(_millions(counts[kind]) for kind in ("trained", "frozen")))
    table.add_section()
    table.add_row("all", *(_millions(sum(part[kind] for part in dry.parameters.values())) for kind in counts))
    return table


def _run(dry: DryRun) -> Table:
    table = new_table("Run", ["", ""], left=("",))
    for name, value in run_rows(dry).items():
        table.add_row(name, value)
    return table


def run_rows(dry: DryRun) -> dict[str, str]:
    """The rows of the table "Run"."""
    reads, step, target = dry.reads, dry.step, dry.target
    passes = dry.steps * step.rows / dry.rows_a_pass
    work = step.work
    return {
        "episodes": f"{reads.episodes:,}, {reads.actions:,} actions to learn",
        **reads.rows(),
        "tokens a pass": f"{_short(reads.load.tokens)} in {dry.rows_a_pass:,} rows",
        "a step": f"{step.rows:,} rows: {step.tokens:,.0f} tokens, {step.supervised:,.0f} supervised, "
        f"{step.actions:,.0f} actions",
        "checkpointing": _checkpointing(dry),
        "FLOPs a step": f"{_short(work.model)}"
        + (f", {_short(work.hardware)} computed" if work.recomputed else "")
        + f": {dry.hours / dry.steps * 3600:.3g} s",
        "steps": f"{dry.steps:,} ({passes:,.2f} passes), {_short(dry.steps * work.model)} FLOPs",
        "time": f"{_time(dry.hours)} on {target.gpus} x {target.gpu.name} at {dry.mfu:.0%} MFU"
        + (f", {target.utilisation:.0%} with what is recomputed" if work.recomputed else ""),
    }


def _checkpointing(dry: DryRun) -> str:
    count, layers, work = dry.checkpointed[dry.sharding], len(dry.activations) - 1, dry.step.work
    line = layers_in_words(count, layers, dry.total_bytes(dry.sharding, count), dry.target.gpu.memory)
    return line + (f": {work.recomputed / work.hardware:.0%} of the FLOPs" if work.recomputed else "")


def _memory(dry: DryRun) -> Table:
    limit = dry.target.gpu.memory
    table = new_table(
        f"Memory a GPU, GB ({dry.target.gpu.name}: {limit / 1e9:.0f})",
        ["", "weights", "gradients", "states", "buffers~", "activa-\ntions~", "total~", "check-\npointed~", "layers"],
    )
    for name, memory in dry.memory.items():
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.buffers, dry.activations[0])
        totals = [dry.total_bytes(name, checkpointed) for checkpointed in (0, len(dry.activations) - 1)]
        colours = ["red" if total > limit else "green" for total in totals]
        coloured = map(Text, map(_gigabytes, totals), colours)
        table.add_row(name, *map(_gigabytes, parts), *coloured, str(dry.checkpointed[name]))
    return table


def _small_print(dry: DryRun) -> str:
    host = max(memory.host for memory in dry.memory.values())
    kind = dry.recipe.model.quantisation
    return (
        "states: the optimiser's. ~: estimates. checkpointed: total with gradient checkpointing of all layers. layers: "
        f"those that this recipe checkpoints. zero3_offload also takes {_gigabytes(host)} GB of main memory a GPU. "
        "MFU: assumed (docs/training.md); of model FLOPs, without what checkpointing recomputes."
        + ("" if kind is None else f" Time is without the dequantisation of {kind}, estimated at 25 to 40 % more.")
    )


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f}" if count else "–"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f}" if size else "–"


def _short(number: float) -> str:
    """Three digits and a power of ten: 1.23e15; small numbers in full."""
    return f"{number:,.0f}" if number < 1e6 else f"{number:.2e}".replace("e+", "e")


def _time(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
