"""The tables of a dry run at the terminal."""

from pathlib import Path

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlm_agent.files.console import new_table
from vlm_agent.files.installation import ROOT
from vlm_agent.training.data.data_module import unwritable_report
from vlm_agent.training.dry_run.memory import Memory
from vlm_agent.training.dry_run.report import DryRun

_AMPLE = 0.8
"""The share of a GPU's memory that an estimate of activations may take before a run of it is recommended."""


def print_dry_run(console: Console, dry: DryRun) -> None:
    """Prints parameters, data, FLOPs, time and memory."""
    console.print(Columns([_parameters(dry), _run(dry)], padding=(0, 4)))
    console.print(_memory(dry))
    if dry.unwritable.count:
        console.print(Text(unwritable_report(dry.unwritable)))
    for note in dry.notes:
        console.print(Text(note.text))
    advice = checkpointing_advice(dry)
    if advice is not None:
        console.print(Text(advice, "bold"))
    console.print(Text(_small_print(dry), "dim"))


def _parameters(dry: DryRun) -> Table:
    table = new_table("Parameters, M", ["", "trained", "frozen"])
    for part, counts in dry.parameters.items():
        table.add_row(_words(part), *(_millions(counts[kind]) for kind in ("trained", "frozen")))
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
        "FLOPs a step": f"{_short(work.model)}" + (f", {_short(work.hardware)} computed" if work.recomputed else ""),
        "steps": f"{dry.steps:,} ({passes:,.2f} passes), {_short(dry.steps * work.model)} FLOPs",
        "time": f"{_time(dry.hours)} on {target.gpus} x {target.gpu.name} at {dry.mfu:.0%} MFU"
        + (f", {target.utilisation:.0%} with what is recomputed" if work.recomputed else ""),
    }


def _memory(dry: DryRun) -> Table:
    limit = dry.target.gpu.memory
    table = new_table(
        f"Memory a GPU, GB ({dry.target.gpu.name}: {limit / 1e9:.0f})",
        ["", "weights", "gradients", "states", "buffers~", "activa-\ntions~", "total~", "check-\npointed~"],
    )
    for name, memory in dry.memory.items():
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.buffers, dry.activations[False])
        totals = (_total(memory, kept, limit) for kept in dry.activations.values())
        table.add_row(name, *map(_gigabytes, parts), *totals)
    return table


def checkpointing_advice(dry: DryRun) -> str | None:
    """One sentence where the recipe recomputes although memory is ample, or does not fit without recomputing."""
    training, limit, work = dry.recipe.training, dry.target.gpu.memory, dry.step.work
    deepspeed = "ddp" if training.deepspeed is None else Path(training.deepspeed).stem
    if deepspeed not in dry.memory:
        return None
    without, with_it = (dry.total_bytes(deepspeed, checkpointing) for checkpointing in (False, True))
    if training.gradient_checkpointing and without <= _AMPLE * limit:
        return (
            f"training.gradient_checkpointing: false fits: {deepspeed} takes {_gigabytes(without)} of "
            f"{limit / 1e9:.0f} GB without it, and a step computes {work.hardware / work.model:.2f}x less."
        )
    if not training.gradient_checkpointing and with_it < limit < without:
        return (
            f"training.gradient_checkpointing: true fits: {deepspeed} takes {_gigabytes(with_it)} GB with it, and "
            f"{_gigabytes(without)} of {limit / 1e9:.0f} GB as the recipe is."
        )
    return None


def _total(memory: Memory, activations: int, limit: int) -> Text:
    total = memory.total + activations
    return Text(_gigabytes(total), "red" if total > limit else "green")


def _small_print(dry: DryRun) -> str:
    chosen = "on" if dry.recipe.training.gradient_checkpointing else "off"
    host = max(memory.host for memory in dry.memory.values())
    return (
        "states: the optimiser's. ~: estimates. checkpointed: total with gradient checkpointing, which this recipe has "
        f"{chosen}. zero3_offload also takes {_gigabytes(host)} GB of main memory a GPU. MFU: assumed, not measured; "
        "of model FLOPs, without what checkpointing recomputes." + _quantised(dry) + _for_volta(dry)
    )


def _quantised(dry: DryRun) -> str:
    kind = dry.recipe.model.quantisation
    return "" if kind is None else f" Time is without the dequantisation of {kind}, estimated at 25 to 40 % more."


def _for_volta(dry: DryRun) -> str:
    if not dry.target.gpu.volta:
        return ""
    return f" {dry.target.gpu.name} needs PyTorch's build for CUDA 12.6: {ROOT / 'requirements.txt'} has its index."


def _words(part: str) -> str:
    return part.replace("_", " ")


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f}" if count else "–"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f}" if size else "–"


def _short(number: float) -> str:
    """Three digits and a power of ten: 1.23e15; small numbers in full."""
    return f"{number:,.0f}" if number < 1e6 else f"{number:.2e}".replace("e+", "e")


def _time(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
