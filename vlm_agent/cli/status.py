"""`vlm-agent status`: the state of a training run or of a resumable job, from its folder."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.files.console import clock_time, make_console, print_plain

if TYPE_CHECKING:
    from vlm_agent.cli.job_status import Progress
    from vlm_agent.datasets.convert.folder import ConversionStatus
    from vlm_agent.training.run_folder.status import Status


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "status",
        run,
        "show the progress of a training run, a conversion, an evaluation, a comparison, …",
        "Of a run: step, losses, speed, ETA, restarts and the last error. Of a conversion, also by a job array:\n"
        "files, steps, damage, ETA and what is not converted. Of an evaluation (offline or online), a comparison,\n"
        "features and an annotation: parts done, of how many, ETA, and the command that comes next. Works on any\n"
        "machine that can read the folder.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the output folder of a command")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.cli.job_status import kind_of
    from vlm_agent.datasets.convert.folder import WORK
    from vlm_agent.datasets.convert.folder import read_status as read_conversion
    from vlm_agent.models.run_layout import RECIPE_FILE

    folder, now = options.folder, datetime.now(UTC)
    is_known = (folder / WORK).is_dir() or (folder / RECIPE_FILE).is_file()
    kind = None if is_known else kind_of(folder)  # each kind imports its own package, and some import PyTorch
    if kind is not None:
        progress = kind.progress(folder)
        state, lines = kind.state(folder, progress), _job_lines(progress, now)
    elif (folder / WORK).is_dir():
        conversion = read_conversion(folder)
        state, lines = conversion.state, _conversion_lines(conversion, now)
    else:
        from vlm_agent.training.run_folder.status import read_status

        status = read_status(folder)
        state, lines = status.state, _run_lines(status, now)
    console = make_console()
    print_plain(console, f"{folder}: {state}")
    for name, text in lines:
        print_plain(console, f"  {name:12}{text}")
    return OK


Lines = Iterator[tuple[str, str]]


def _job_lines(progress: "Progress", now: datetime) -> Lines:
    done = len(progress.done)
    total = "" if progress.total is None else f"of {progress.total:,} "
    yield "done", f"{done:,} {total}{progress.unit}"
    if len(progress.groups) > 1:
        yield (
            "of these",
            ", ".join(f"{name} {count:,}{f' of {total:,}' if total else ''}" for name, count, total in progress.groups),
        )
    for line in progress.failed:
        yield "failed", line
    if progress.eta is not None:
        yield "ETA", f"{clock_time(progress.eta.total_seconds())}, at the average speed since the first of them"
    if progress.last is not None:
        yield "last write", f"{_short(now - progress.last)} ago"


def _conversion_lines(status: "ConversionStatus", now: datetime) -> Lines:
    from rich.filesize import decimal

    summary, done = status.summary, len(status.summary.files)
    yield "files", f"{done:,} of {status.files:,}, {decimal(status.converted_size)} of {decimal(status.size)}"
    counts = {name: f"{summary.total(f'steps_{name}'):,}" for name in ("read", "written", "quarantined", "left_out")}
    yield "steps", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    yield "episodes", f"{summary.total('episodes_written'):,}"
    if status.eta is not None:
        yield "ETA", f"{clock_time(status.eta.total_seconds())}, at the average speed since the last pause"
    if status.written is not None:
        yield "last write", f"{_short(now - status.written)} ago"
    if damaged := [file.name for file in summary.files if file.cut_short]:
        yield "damaged", _first(damaged)
    if status.waiting:
        yield "waiting", _first(list(status.waiting.values()))
        yield "tasks", f"{_ranges(list(status.waiting))}, modulo --shard-count"


_SHOWN = 5


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _ranges(numbers: list[int]) -> str:
    """`0-2,5`, as `sbatch --array` reads it. `numbers` in order."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, span)) for span in found)


def _run_lines(status: "Status", now: datetime) -> Lines:
    if status.step is not None:
        share = "" if not status.steps else f" of {status.steps} ({status.step / status.steps:.0%})"
        loss = "" if status.loss is None else f", loss {status.loss:.3f}"
        yield "step", f"{status.step}{share}{loss}"
    if status.eta is not None:
        eta = clock_time(status.eta.total_seconds())
        yield "ETA", f"{eta} from step {status.step}, at the average speed since the last start"
    if figures := status.figures:
        yield (
            "speed",
            f"{figures['tokens_per_second']:,.0f} tokens/s, {figures['actions_per_second']:.1f} actions/s, "
            f"loader wait {figures['data_wait']:.0%}, {figures['memory_gib']:.1f} GiB",
        )
        if {"round", "success", "false_complete", "mixed_groups"} <= figures.keys():
            yield (
                "rollouts",
                f"round {figures['round']:.0f}: success {figures['success']:.1%}, false completes "
                f"{figures['false_complete']:.1%}, {figures['mixed_groups']:.0f} groups with both outcomes",
            )
    if validation := status.validation:
        exact = f"{validation['eval_accuracy']:.1%} of actions exact"
        yield "validation", f"step {validation['step']}: loss {validation['eval_loss']:.3f}, {exact}"
    if status.checkpoint is not None:
        yield "checkpoint", f"step {status.checkpoint.step}, {_short(now - status.checkpoint.time)} ago"
    if status.starts:
        first = status.starts[0].time.astimezone()
        restarts = len(status.starts) - 1
        yield "started", f"{first:%Y-%m-%d %H:%M}, {restarts} restart(s)"
    if status.last_write is not None:
        yield "last write", f"{_short(now - status.last_write)} ago"
    if status.error is not None:
        yield "last error", status.error


def _short(span: timedelta) -> str:
    """The two largest units: `3 d 4 h`, `2 h 5 min`, `40 s`."""
    seconds = max(0, round(span.total_seconds()))
    sizes = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    at = next((number for number, (size, _) in enumerate(sizes) if seconds >= size), 3)
    words = []
    for size, unit in sizes[at : at + 2]:
        words.append(f"{seconds // size} {unit}")
        seconds %= size
    return " ".join(word for word in words if not word.startswith("0 ")) or "0 s"
