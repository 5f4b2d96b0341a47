"""`vlm-agent inspect TRACE`: prints and draws the steps of an agent on a phone."""

import argparse

from vlm_agent.cli.parser import OK
from vlm_agent.files.console import make_console, new_table


def inspect_trace(options: argparse.Namespace) -> int:
    from rich.text import Text

    from vlm_agent.datasets.sources.traces import read_trace
    from vlm_agent.drawing.animation import animate
    from vlm_agent.drawing.contact_sheet import outcomes_in_words, save_sheet, trace_sheet

    trace, console = read_trace(options.shards), make_console()
    heading = trace.heading
    console.print(f"{heading.goal}\n{heading.agent}, on {heading.device}", markup=False, highlight=False)
    table = new_table("", ("step", "activity", "answer", "outcome", "seconds"), left=("activity", "answer", "outcome"))
    for step in trace.steps:
        seconds = f"{sum(step.seconds.values()):.2f}"
        # repr escapes control characters of the terminal, which an answer may contain.
        answer = Text(repr(step.answer))
        why = f": {step.message}" if step.message else ""
        activity, outcome = Text(repr(step.activity)[1:-1]), Text(step.outcome_words + repr(why)[1:-1])
        table.add_row(str(step.number + 1), activity, answer, outcome, seconds)
    console.print(table)
    console.print(outcomes_in_words(trace), highlight=False)
    console.print(trace.ending, markup=False, highlight=False, soft_wrap=True)
    if options.output is not None:
        save_sheet(trace_sheet(trace), options.output)
        console.print(f"Drew {options.output}", markup=False, highlight=False, soft_wrap=True)
    if options.animate is not None:
        animate(trace, options.animate)
        console.print(f"Drew {options.animate}", markup=False, highlight=False, soft_wrap=True)
    return OK
