"""`vlm-agent simulate`: demonstrations on a simulated phone, in AITW's format."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command, count, size
from vlm_agent.files.console import make_console


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "simulate",
        run,
        "write demonstrations on a simulated phone, in AITW's format",
        "Writes gzip TFRecords, splits.json (train, validation, test) for `convert --splits`, and groups.json (goals\n"
        "that require memory) for `evaluate --groups`. The same arguments produce the same bytes.",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--episodes", type=count, required=True, metavar="N", help="number of demonstrations")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed (default 0)")
    parser.add_argument(
        "--size", type=size, nargs="+", metavar="HxW", help="screen sizes in pixels to choose from (default 448x208)"
    )
    parser.add_argument(
        "--scale",
        type=count,
        default=1,
        metavar="N",
        help="render screens at N times their size, with the same actions and annotations (default 1); 2 for OCR",
    )
    parser.add_argument(
        "--thoughts",
        action="store_true",
        help="write with each step the expert's notes, such as thought and plan (docs/data.md)",
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one per core)")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.simulator.demonstrations import SIZE, simulate

    simulate(
        options.output,
        options.episodes,
        options.seed,
        sizes=(SIZE,) if options.size is None else options.size,
        workers=options.workers,
        console=make_console(),
        thoughts=options.thoughts,
        scale=options.scale,
    )
    return OK
