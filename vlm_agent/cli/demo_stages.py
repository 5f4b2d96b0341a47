"""Every stage at a small size, from a simulated phone to a scored agent, through the same commands that users type.

    OUT/aitw/               demonstrations in AITW's format, with splits.json and groups.json
    OUT/shards/             the demonstrations as shards
    OUT/contact_sheet.png   a demonstration whose goal needs memory
    OUT/agent/              the training run
    OUT/evaluation/         predictions.parquet, metrics.json, report.html
    OUT/online/             tasks on simulated phones: online.json, and a trace per task
    OUT/agent.gif           the agent carrying out one of these tasks
    OUT/summary.json        partial match of every run (percent), success on phones, seconds, peak memory; written last

Every number is set in the recipe or in the constants below.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import UserError
from vlm_agent.evaluation.online import AGENT, ONLINE
from vlm_agent.evaluation.scoring.measures import SHARES_OF_TASKS
from vlm_agent.evaluation.scoring.metrics import headline
from vlm_agent.files import atomic_write, is_free, parsing, read_checked
from vlm_agent.files.console import say
from vlm_agent.files.peak_memory import PeakMemory
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.yaml_file import find_shipped

RECIPE = Path("recipes/phone_vlm_tiny_lora.yaml")
SEED = 0

MARKER = ".vlm-agent-demo"
"""A file that marks the folder as written by a demo, so that the next demo may remove what is in it of `WRITTEN`."""

WRITTEN = ("aitw", "shards", "contact_sheet.png", "agent", "evaluation", "online", "agent.gif", "summary.json")


@dataclass(frozen=True)
class Sizes:
    """`episodes` to simulate, test episodes to score at most, online `tasks`, and `overrides` of the recipe."""

    episodes: int
    scored_episodes: int
    tasks: int
    overrides: tuple[str, ...] = ()


FULL = Sizes(episodes=1600, scored_episodes=160, tasks=100)
SLOW = replace(FULL, overrides=("--training.steps", "650"))
"""`FULL` for CPUs without AVX-512, which process half as many trajectories in ten minutes."""

PHONES = 25
"""Phones that the agent operates at once."""

QUICK = Sizes(
    episodes=60, scored_episodes=2, tasks=2, overrides=("--training.steps", "3", "--training.save_steps", "null")
)


_REMEDY = "remove the output and run the demo again"


class DemoError(UserError):
    """The demo cannot run here, or one of its commands failed."""


def run_demo(output: Path, quick: bool = False) -> int:
    """Runs everything into `output` and returns 0.

    Raises DemoError, before anything is removed, if `output` holds files of others or the recipe is missing, and when
    a command fails, which then has printed its own message.
    """
    if not find_shipped(RECIPE).is_file():
        raise DemoError(f"{RECIPE} is not part of this installation; install the package again")
    claim(output)
    began = time.monotonic()
    with PeakMemory() as memory:
        _run_commands(output, QUICK if quick else FULL if _is_fast() else SLOW)
    summary = _scores(output) | {
        "online": _success(output),
        "seconds": round(time.monotonic() - began, 1),
        "peak_rss_gb": round(memory.peak / 1e9, 2),
    }
    with atomic_write(output / "summary.json") as part:
        part.write_text(json.dumps(summary, indent=2) + "\n")
    say(
        f"{summary['seconds']:.0f} s, at most {summary['peak_rss_gb']} GB of memory. Open in a browser, for the score "
        f"and pictures of the agent's errors:\n  {output / 'evaluation' / 'report.html'}\n"
        f"Other results:\n  {output / 'contact_sheet.png'}\n  {output / 'agent.gif'}\n  {output / 'summary.json'}"
    )
    return 0


def _is_fast() -> bool:
    return has_bf16() or torch.backends.cpu.get_cpu_capability() == "AVX512"


def claim(output: Path) -> None:
    """Makes `output` a folder with the demo's marker; removes the files of an earlier demo, and no others.

    Raises DemoError where `output` holds other files.
    """
    output = output.resolve()  # a link may lead to a larger disk
    if (output / MARKER).is_file():
        say(f"Removing the earlier demo in {output}")
        for path in map(output.joinpath, WRITTEN):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    elif not is_free(output):
        raise DemoError(f"{output} is not the output of a demo; choose another folder with --output")
    output.mkdir(parents=True, exist_ok=True)
    (output / MARKER).write_text("Written by `vlm-agent demo`, which removes its files at its next start.\n")


def _run_commands(output: Path, sizes: Sizes) -> None:
    aitw, shards, agent = (output / name for name in ("aitw", "shards", "agent"))
    _run("simulate", "--output", aitw, "--episodes", sizes.episodes, "--seed", SEED)
    _run("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json")
    _run("inspect", shards, "--draw", _episode_to_draw(shards, aitw), "--output", output / "contact_sheet.png")
    _run("train", "--config", RECIPE, "--output", agent, "--data.shards", shards, *sizes.overrides)
    precision = ["--agent.bf16", "true"] if has_bf16() else []
    scored = ["--split", "test", "--limit", sizes.scored_episodes, "--groups", aitw / "groups.json", *precision]
    _run("evaluate", "--checkpoint", agent, "--shards", shards, "--output", output / "evaluation", *scored)
    acted = ["--tasks", sizes.tasks, "--seed", SEED, "--controls", "none", "--workers", PHONES, *precision]
    _run("evaluate", "--online", "--checkpoint", agent, "--output", output / "online", *acted)
    _run("inspect", _trace_to_draw(output / "online"), "--animate", output / "agent.gif")


def _run(*words) -> None:
    """Runs one command in its own process, as from a terminal."""
    arguments = [str(word) for word in words]
    say(f"$ {shlex.join(['vlm-agent', *arguments])}")
    began = time.monotonic()
    command = [sys.executable, "-m", "vlm_agent.cli", *arguments]
    environment = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # loading 3 million weights needs none
    if not torch.cuda.is_available():
        environment["CUDA_VISIBLE_DEVICES"] = ""  # the CPU is enough, even where PyTorch cannot use the GPUs
    status = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 (fixed arguments, no shell)
    if status != 0:
        raise DemoError(f"`vlm-agent {arguments[0]}` failed with status {status}; its message is above")
    say(f"({arguments[0]}: {time.monotonic() - began:.0f} s)\n")


def _episode_to_draw(shards: Path, aitw: Path) -> str:
    """The id of the shortest test episode of web_shopping that needs memory; "first" without one."""
    memory = set(json.loads((aitw / "groups.json").read_text())["memory_goals"])
    shopping = ShardDataset(shards, split="test", subset="web_shopping")
    lengths = {
        episode_id: len(screens)
        for episode_id, screens in zip(shopping.ids, shopping.screen_sizes, strict=True)
        if episode_id in memory
    }
    return min(lengths, key=lengths.__getitem__, default="first")


def _trace_to_draw(online: Path) -> Path:
    """The agent's longest successful task; without any success, its shortest task."""
    content = read_checked(online / ONLINE, _REMEDY)
    with parsing(online / ONLINE, _REMEDY):
        runs = [task["runs"][AGENT] for task in content["tasks"]]
        successes = [run for run in runs if run["success"]]
        chosen = max(successes, key=lambda run: run["steps"]) if successes else min(runs, key=lambda run: run["steps"])
        return online / chosen["trace"]


def _success(output: Path) -> dict[str, dict]:
    """{run: {success, false_completes, side_effects: percent, and the interval of each: [percent, percent]}}, two
    decimals."""
    path = output / "online" / ONLINE
    content = read_checked(path, _REMEDY)
    with parsing(path, _REMEDY):
        rows = {run: rows["overall"] for run, rows in content["runs"].items()}
        return {
            run: {rate: round(row[rate], 2) for rate in SHARES_OF_TASKS}
            | {interval: [round(edge, 2) for edge in row[interval]] for interval in SHARES_OF_TASKS.values()}
            for run, row in rows.items()
        }


def _scores(output: Path) -> dict[str, dict]:
    """{run: {scorer: {overall, subset …, memory_goals: percent}}}, two decimals."""
    path = output / "evaluation" / "metrics.json"
    metrics = read_checked(path, _REMEDY)
    with parsing(path, _REMEDY):
        return {
            run: {
                scorer: {name: None if share is None else round(share, 2) for name, share in shares.items()}
                for scorer, shares in headline(scores).items()
            }
            for run, scores in metrics.items()
        }
