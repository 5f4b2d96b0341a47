"""Training, evaluation and single operations at the shapes of 7B and 8B models, with random weights, on one GPU.

    python -m benchmarks.gpu kernels --output FILE
    python -m benchmarks.gpu train --shape qwen2_5_vl_7b --batch 2 --checkpointing --output FILE
    python -m benchmarks.gpu train --shape qwen2_5_vl_7b --batch 2 --checkpointing --undo windows --output FILE
    python -m benchmarks.gpu train --shape llama2_7b_vit_l --batch 3 --profile 25 --output FILE
    python -m benchmarks.gpu evaluate --shape qwen2_5_vl_7b --batch 2 --output FILE
    python -m benchmarks.gpu evaluate --shape qwen2_5_vl_7b --batch 2 --undo graphs --output FILE

All of it in one command, with runs of the package's own commands (train, merge, evaluate), while the time lasts:

    python -m benchmarks.gpu lease --minutes 8 --output FOLDER

Shapes: llama2_7b_vit_l, qwen2_5_vl_7b, qwen3_vl_8b. Without a GPU the same code runs at a small size:

    python -m benchmarks.gpu kernels --device cpu --screens 1
    python -m benchmarks.gpu train --device cpu --shape qwen2_5_vl --steps 2

What needs no GPU at all is to count what a layer moves, and what a step holds and calls:

    python -m benchmarks.gpu traffic --device cpu --shape qwen2_5_vl_7b
    python -m benchmarks.gpu memory --device cpu --shape qwen2_5_vl_7b --checkpointing

Prints the result as JSON, and writes it to --output: hardware, versions, commit, date, command and figures.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import torch

from benchmarks.gpu.record import record

BENCHMARKS = ("kernels", "train", "evaluate", "traffic", "memory", "runs", "lease")
MODULES = {"train": "train_step", "evaluate": "evaluation"}
"""Benchmark → its module, where that has another name."""


def main() -> None:
    # One module alone: a lease starts five processes of `runs`, which needs no model.
    options = make_parser([name for name in BENCHMARKS if name in sys.argv[1:2]] or BENCHMARKS).parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA GPU; try the benchmark at a small size with --device cpu")
    if options.benchmark == "lease":
        raise SystemExit(options.main(options, make_parser().parse_args))
    result = json.dumps(record(options, options.measure(options)), indent=1)
    print(result)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(result + "\n", encoding="utf-8")


def make_parser(names: Iterable[str] = BENCHMARKS) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    benchmarks = parser.add_subparsers(required=True)
    for name in names:
        module = import_module(f"benchmarks.gpu.{MODULES.get(name, name)}")
        one = benchmarks.add_parser(
            name, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        run = {"main": module.main} if name == "lease" else {"measure": module.measure}
        one.set_defaults(benchmark=name, **run)
        add_arguments(one)
        module.add_arguments(one)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--output", type=Path, metavar="PATH", help="where to write the result; a folder for lease")
    parser.add_argument("--commit", help="of the code, where it is not a git checkout")


if __name__ == "__main__":
    main()
