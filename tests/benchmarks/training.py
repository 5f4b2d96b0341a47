"""How fast a phone agent is trained, and in how much memory: ours against the field's habits, and against a peer.

    python tests/benchmarks/training.py [--with-peer] [--in-proportion] [--quick]

The same random weights, the same LoRA upon them, the same episodes of 8 steps of the simulated phone and the same
optimiser go along each road in turn, every time in a fresh process, several rounds; the best round of each counts:

    a  step_samples  one sample a step: the goal and all screens and actions before it read again, that action learned;
                     batches of samples padded, logits everywhere. The field's habit
    b  padded        whole trajectories padded to the longest of the batch, logits everywhere: transformers' forward
    c  packed        ours: whole trajectories end to end in one row, logits at supervised positions only
    p  trl           the peer: the same Qwen2.5-VL by TRL's SFTTrainer, multi-turn, loss on the assistant's words; on a
                     CPU it computes logits everywhere (in tiles), on a GPU at labels only, which trl_labels_only
                     makes it do here

An optimiser step has 2 episodes: 8 passes of 2 samples for (a), one pass for the others. After the first round the
roads' losses and gradients of their first step are compared: they agree within 1e-4, or no figure is printed.
The clock runs from episodes in memory to updated weights. Where a ratio by processor time is another one, something
else ran. `--in-proportion` measures each family a second time with so few words in its vocabulary that its head is to
its layers as in 7B, because in a small model a real vocabulary makes leaving logits out worth more than in a large one.

TRL lives in an environment of its own: `--peer-python` names its Python, `--with-peer` makes one in build/; without
either it is left out. `--quick` (short episodes, a small vocabulary, one round, roads at the same time) shows that
everything runs and agrees, and no more.
gpu.py measures ours alone at the shapes of 7B models on a GPU.
Linux only. Prints, last, one line of JSON, where a road's figures are those of its best round.
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
from training.episodes import STEPS, write_episodes
from training.figures import figures_of, show
from training.rounds import ROADS, Bench
from training.shapes import IN_PROPORTION, SHAPES, Shape
from training.words import write_tokenizer

ROOT = Path(__file__).resolve().parents[2]
EPISODES = 6
QUICK_STEPS = 2
QUICK_VOCABULARY = 4096
PEER = {"trl": "1.16.0"}
SHARED = ("torch", "torchvision", "transformers", "peft", "accelerate", "datasets", "pillow", "numpy", "tokenizers")
"""What the peer's environment has in the same releases as ours."""


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
    parser.add_argument("--quick", action="store_true", help="one round of little work, under a minute")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="how often each road is taken (default 2)")
    parser.add_argument("--roads", nargs="+", choices=names, default=names, metavar="NAME", help="only these")
    parser.add_argument(
        "--shapes", nargs="+", choices=shapes, metavar="NAME", help=f"only these of {', '.join(shapes)}"
    )
    parser.add_argument("--in-proportion", action="store_true", help="also with heads in 7B's proportion")
    parser.add_argument("--with-peer", action="store_true", help="install TRL into build/trl-venv")
    parser.add_argument("--peer-python", type=Path, metavar="PATH", help="the Python that has TRL")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="(default: all)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="where to work")
    return parser.parse_args()


def measure(bench: Bench, options: argparse.Namespace) -> dict:
    console = Console()
    left_out = {road.name: why for road in ROADS if (why := bench.left_out(road)) is not None}
    figures = {"quick": options.quick, "threads": options.threads, "left_out": left_out, "shapes": {}}
    for shape in chosen_shapes(options):
        prepare(bench.folder, shape, EPISODES, QUICK_STEPS if options.quick else STEPS)
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


def prepare(folder: Path, shape: Shape, episodes: int, steps: int) -> None:
    """Episodes with screens of the shape's size, and a tokenizer of their words."""
    write_tokenizer(folder / "tokenizer", write_episodes(folder, episodes, shape.screen, steps))


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
