"""`vlm-agent status`: how a training run is doing, from its folder."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from vlm_agent.cli.parser import OK, add_command
from vlm_agent.cli.terminal import make_console


def add(commands) -> None:
    parser = add_command(
        commands,
        "status",
        run,
        "tell how a training run is doing",
        "Progress, time left, restarts and the last error, from the run folder alone: on any machine that sees it.",
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the recipe's output")


def run(options) -> int:
    from vlm_agent.training.status import read_status

    status = read_status(options.run_folder)
    console = make_console()
    console.print(f"{options.run_folder}: {status.state}", highlight=False, markup=False, soft_wrap=True)
    for name, text in _lines(status, datetime.now(UTC)):
        console.print(f"  {name:12}{text}", highlight=False, markup=False, soft_wrap=True)
    return OK


def _lines(status, now: datetime):
    if status.step is not None:
        share = "" if not status.steps else f" of {status.steps} ({status.step / status.steps:.0%})"
        loss = "" if status.loss is None else f", loss {status.loss:.3f}"
        yield "step", f"{status.step}{share}{loss}"
    if status.left is not None:
        yield "left", f"{_short(status.left)} after the newest checkpoint, at the speed since the last start"
    if status.checkpoint is not None:
        yield "checkpoint", f"step {status.checkpoint.step}, {_short(now - status.checkpoint.time)} ago"
    if status.starts:
        first = status.starts[0].time.astimezone()
        restarts = len(status.starts) - 1
        yield "started", f"{first:%Y-%m-%d %H:%M}, and again {restarts} time(s)"
    if status.alive is not None:
        yield "last sign", f"{_short(now - status.alive)} ago"
    if status.error is not None:
        yield "last error", status.error


def _short(span: timedelta) -> str:
    """Two figures of the largest units: `3 d 4 h`, `2 h 5 min`, `40 s`."""
    seconds = max(0, round(span.total_seconds()))
    sizes = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    at = next((number for number, (size, _) in enumerate(sizes) if seconds >= size), 3)
    words = []
    for size, unit in sizes[at : at + 2]:
        words.append(f"{seconds // size} {unit}")
        seconds %= size
    return " ".join(word for word in words if not word.startswith("0 ")) or "0 s"
