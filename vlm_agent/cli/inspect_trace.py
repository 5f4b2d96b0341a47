"""`vlm-agent inspect TRACE`: what an agent did on a phone, step by step, and drawn."""

from pathlib import Path

from vlm_agent.cli.parser import OK
from vlm_agent.cli.terminal import make_console


def inspect_trace(options) -> int:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from vlm_agent.datasets.traces import read_trace

    trace, console = read_trace(options.shards), make_console()
    heading = trace.heading
    console.print(f"{heading.goal}\n{heading.agent}, on {heading.device}", markup=False, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("step", "in", "said", "outcome", "seconds"):
        table.add_column(column, justify="right" if column in ("step", "seconds") else "left", overflow="fold")
    for step in trace.steps:
        seconds = f"{sum(step.seconds.values()):.2f}"
        # repr, because what a model says could hold anything that moves a cursor.
        said = Text(repr(step.said))
        table.add_row(
            str(step.number + 1), Text(repr(step.activity)[1:-1]), said, step.outcome.replace("_", " "), seconds
        )
    console.print(table)
    console.print(_end(trace.end), markup=False, highlight=False, soft_wrap=True)
    if options.output is not None:
        _draw(trace, options.output)
        console.print(f"Drew {options.output}", markup=False, highlight=False, soft_wrap=True)
    if options.animate is not None:
        _animate(trace, options.animate)
        console.print(f"Drew {options.animate}", markup=False, highlight=False, soft_wrap=True)
    return OK


def _end(end: dict | None) -> str:
    if end is None:
        return "It has no end: the run was killed."
    message = repr(end.get("message", ""))[1:-1]
    return f"Ended: {end['end']}" + (f", {message}" if message else "")


def _draw(trace, output: Path) -> None:
    """A contact sheet of what was done."""
    from vlm_agent.screens.drawing import contact_sheet

    output.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet(trace.episode(), [step.said for step in trace.steps if step.is_in_episode]).save(output)


def _animate(trace, output: Path) -> None:
    from vlm_agent.screens.animation import animate

    animate(trace, output)
