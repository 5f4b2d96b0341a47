"""`vlm-agent convert-checkpoint`: converts a published checkpoint to a folder that this package trains and runs."""

import argparse
from functools import partial
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.files.console import make_console, print_plain


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "convert-checkpoint",
        run,
        "convert a published checkpoint to one that needs no remote code",
        "For Qwen-VL (2023), whose published folder contains code for an old version of transformers (it is not\n"
        "executed; see docs/training.md), and for Auto-UI. The folder's content decides which.\n"
        "Checkpoints that transformers supports need no conversion.",
    )
    parser.add_argument("--input", type=Path, required=True, metavar="FOLDER", help="the published folder")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="a new folder for the result")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.models.conversion import converter_of

    report, converter = partial(print_plain, make_console()), converter_of(options.input)
    converter.convert(options.input, options.output, report)
    use = f"use it in a recipe as {converter.recipe_key}"
    report(f"Converted {options.input} ({converter.name}) to {options.output}; {use}")
    return OK
