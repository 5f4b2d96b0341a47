"""`vlm-agent convert-checkpoint`: converts a published checkpoint to a folder that this package trains and runs."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.console import make_console, quiet_libraries


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "convert-checkpoint",
        run,
        "convert a published checkpoint to one that needs no remote code",
        "Only for Qwen-VL (2023), whose published folder contains code for an old version of transformers. This code\n"
        "is not executed. See docs/qwen_vl_2023.md. Checkpoints that transformers supports need no conversion.",
    )
    parser.add_argument("--input", type=Path, required=True, metavar="FOLDER", help="the published folder")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="a new folder for the result")


def run(options: argparse.Namespace) -> int:
    quiet_libraries()

    from vlm_agent.models.qwen_vl_2023.convert import convert_checkpoint

    console = make_console()

    def report(file: str) -> None:
        console.print(f"Wrote {file}", highlight=False, markup=False, soft_wrap=True)

    convert_checkpoint(options.input, options.output, report)
    console.print(
        f"Converted {options.input} to {options.output}; use it in a recipe as model.vlm.checkpoint",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return OK
