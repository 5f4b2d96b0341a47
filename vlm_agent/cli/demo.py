"""`vlm-agent demo`: every stage at a small size."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import Commands, add_command
from vlm_agent.files.console import stopped_by_signals


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "demo",
        run,
        "simulate, convert, train the embedded base with LoRA and evaluate the agent, at a small size",
        "Runs the other commands as a user would. What an earlier demo wrote to the output folder is removed first; a\n"
        "folder of other files is refused.",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/demo"), metavar="DIR", help="the folder to write (default runs/demo)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only tests that all stages run")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.cli.demo_stages import run_demo

    with stopped_by_signals():  # the command under way would otherwise outlive the demo
        return run_demo(options.output, options.quick)
