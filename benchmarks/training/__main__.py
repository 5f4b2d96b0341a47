"""Training speed and memory: packed trajectories against common practice and against TRL.

    python -m benchmarks.training [--with-peer] [--in-proportion] [--quick]

All methods ("roads") use the same random weights, LoRA, optimiser, and episodes of 8 steps of the simulated phone. They
run alternately, each run in a new process, for several rounds; the best round of each counts:

    a  step_samples  one sample per step, with the goal and all earlier screens and actions as its prompt; padded
                     batches, logits at all positions. Common practice in the field
    b  padded        whole trajectories padded to the longest of the batch, logits at all positions: the forward pass of
                     transformers
    c  packed        ours: whole trajectories packed in one row, logits only at supervised positions
    p  trl           the same Qwen2.5-VL with TRL's SFTTrainer, multi-turn, loss on assistant tokens. TRL computes
                     logits at all positions on a CPU (in tiles) and only at labels on a GPU; trl_labels_only does the
                     latter on a CPU

An optimiser step has 2 episodes: 8 forward passes of 2 samples for (a), one pass for the others. Losses and gradients
of the first step must agree within 1e-4; otherwise no figures are printed. Times run from episodes in memory to updated
weights. If the ratio by processor time differs from the ratio by wall time, other processes were running.
`--in-proportion` repeats each family with a smaller vocabulary, so that its head has the same share of the computation
as in a 7B model; with a full vocabulary, a small model gains more from omitting logits than a large one.

TRL needs its own environment: `--peer-python` names its Python, `--with-peer` installs one in build/; without either it
is skipped. `--quick` (short episodes, a small vocabulary, one round, methods in parallel) only checks that everything
runs and agrees. gpu.py measures (c) alone at the shapes of 7B models on a GPU. Linux only. The last line of output is
JSON, with the figures of each method's best round.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks.training.episodes import STEPS, write_episodes
from benchmarks.training.figures import figures_of, show
from benchmarks.training.rounds import ROADS, Bench
from benchmarks.training.shapes import IN_PROPORTION, SHAPES, Shape
from benchmarks.training.words import write_tokenizer

ROOT = Path(__file__).resolve().parents[2]
EPISODES = 6
QUICK_STEPS = 2
QUICK_VOCABULARY = 4096
PEER = {"trl": "1.16.0"}
SHARED = ("torch", "torchvision", "transformers", "peft", "accelerate", "datasets", "pillow", "numpy", "tokenizers")
"""Packages whose releases must be equal in the peer's environment and in ours."""


def main() -> None:
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    python = peer_python(options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = measure(Bench(Path(folder), python, options.roads, options.threads, options.quick), options)
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [road.name for road in ROADS]
    shapes = [shape.name for shape in (*SHAPES, *IN_PROPORTION)]
    parser.add_argument("--quick", action="store_true", help="one short round, under a minute")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="rounds per method (default 2)")
    parser.add_argument("--roads", nargs="+", choices=names, default=names, metavar="NAME", help="only these")
    parser.add_argument(
        "--shapes", nargs="+", choices=shapes, metavar="NAME", help=f"only these of {', '.join(shapes)}"
    )
    parser.add_argument(
        "--in-proportion", action="store_true", help="also with the head in the proportion of a 7B model"
    )
    parser.add_argument("--with-peer", action="store_true", help="install TRL into build/trl-venv")
    parser.add_argument("--peer-python", type=Path, metavar="PATH", help="the Python that has TRL")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="(default: all)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="folder for temporary files")
    return parser.parse_args()


def measure(bench: Bench, options: argparse.Namespace) -> dict:
    console = Console()
    left_out = {road.name: why for road in ROADS if (why := bench.left_out(road)) is not None}
    figures = {"quick": options.quick, "threads": options.threads, "left_out": left_out, "shapes": {}}
    for shape in chosen_shapes(options):
        steps = QUICK_STEPS if options.quick else STEPS
        write_tokenizer(bench.folder / "tokenizer", write_episodes(bench.folder, EPISODES, shape.screen, steps))
        with console.status(shape.about):
            runs, apart = bench.run_rounds(shape, 1 if options.quick else options.rounds)
        found = figures_of(runs, apart)
        figures["shapes"][shape.name] = {"vocabulary": shape.vocabulary} | found
        show(console, f"{shape.about} ({shape.vocabulary:,} words)", found, judged=not options.quick)
    for name, why in left_out.items():
        console.print(f"LEFT OUT: {name}: {why}", style="bold red", soft_wrap=True)
    return figures


def chosen_shapes(options: argparse.Namespace) -> list[Shape]:
    every = (*SHAPES, *IN_PROPORTION)
    if options.shapes is not None:
        chosen = [shape for shape in every if shape.name in options.shapes]
    else:
        chosen = list(every if options.in_proportion else SHAPES)
    if not options.quick:
        return chosen
    return [replace(shape, vocabulary=min(shape.vocabulary, QUICK_VOCABULARY)) for shape in chosen]


def peer_python(options: argparse.Namespace) -> Path | None:
    if options.peer_python is not None or not options.with_peer:
        return options.peer_python
    environment = ROOT / "build" / "trl-venv"
    python, complete = environment / "bin" / "python", environment / "complete"
    if not complete.exists():
        pinned = PEER | {name: version(name).partition("+")[0] for name in SHARED}
        packages = [f"{name}=={release}" for name, release in pinned.items()]
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        complete.touch()
    return python


if __name__ == "__main__":
    main()
