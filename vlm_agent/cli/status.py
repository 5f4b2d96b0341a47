"""`vlm-agent status`: the state of a training run, from its folder."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.console import clock_time, make_console

if TYPE_CHECKING:
    from vlm_agent.training.run_folder.status import Status


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "status",
        run,
        "show the progress of a training run",
        "Step, losses, speed, ETA, restarts and the last error, read from the run folder. Works on any machine that\n"
        "can read the folder.",
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the output folder of the recipe")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.training.run_folder.status import read_status

    status = read_status(options.run_folder)
    console = make_console()
    console.print(f"{options.run_folder}: {status.state}", highlight=False, markup=False, soft_wrap=True)
    for name, text in _lines(status, datetime.now(UTC)):
        console.print(f"  {name:12}{text}", highlight=False, markup=False, soft_wrap=True)
    return OK


def _lines(status: "Status", now: datetime) -> Iterator[tuple[str, str]]:
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
