"""The whole spine, small: from a simulated phone to a scored agent, through the commands that anybody would type.

    OUT/aitw/               demonstrations in AITW's format, with splits.json and groups.json
    OUT/shards/             the same, converted
    OUT/contact_sheet.png   one demonstration that needs memory
    OUT/agent/              the training run
    OUT/evaluation/         predictions.parquet, metrics.json, report.html
    OUT/online/             tasks on simulated phones: online.json, and a trace of each
    OUT/agent.gif           the agent doing one of them
    OUT/summary.json        the partial match of every run in percent, success on phones, seconds, peak memory; written
                            last

Every number of it is in the recipe or in the constants below.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from vlm_agent.datasets import written_whole
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.evaluation.metrics import headline
from vlm_agent.evaluation.online import AGENT, ONLINE
from vlm_agent.models.precision import has_bf16

RECIPE = Path("recipes/phone_vlm_tiny_lora.yaml")
SEED = 0

OURS = ".vlm-agent-demo"
"""A file that marks the folder as a demo's own, which the next demo may remove."""

_SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Sizes:
    """How much of everything: `episodes` simulated, at most `scored` of them tested, `tasks` done on phones; `changes`
    to the recipe."""

    episodes: int
    scored: int
    tasks: int
    changes: tuple[str, ...] = ()


FULL = Sizes(episodes=1600, scored=160, tasks=25)
SLOW = replace(FULL, changes=("--training.steps", "650"))
"""`FULL` where the cores have no bfloat16 arithmetic: ten minutes hold half of the trajectories."""

QUICK = Sizes(
    episodes=60,
    scored=2,
    tasks=2,
    changes=("--training.steps", "3", "--training.save_steps", "null"),
)


class DemoError(ValueError):
    """The demo cannot run here, or one of its commands failed."""


def run_demo(output: Path, quick: bool = False) -> int:
    """Runs everything into `output` and returns 0.

    Raises DemoError, before anything is removed, where `output` holds what no demo made or where there is no recipe;
    and when a command fails, whose own message stands above.
    """
    if not RECIPE.is_file():
        raise DemoError(f"{RECIPE} is not here; run the demo in the root of the repository")
    claim(output)
    began = time.monotonic()
    with PeakMemory() as memory:
        _run_commands(output, QUICK if quick else FULL if has_bf16() else SLOW)
    summary = _scores(output) | {
        "online": _success(output),
        "seconds": round(time.monotonic() - began, 1),
        "peak_rss_gb": round(memory.peak / 1e9, 2),
    }
    with written_whole(output / "summary.json") as part:
        part.write_text(json.dumps(summary, indent=2) + "\n")
    _say(
        f"{summary['seconds']:.0f} s, at most {summary['peak_rss_gb']} GB of memory. To look at:\n"
        f"  {output / 'contact_sheet.png'}\n  {output / 'evaluation' / 'report.html'}\n  {output / 'agent.gif'}\n"
        f"  {output / 'summary.json'}"
    )
    return 0


def claim(output: Path) -> None:
    """Makes `output` an empty folder of the demo's own; what an earlier demo left in it is removed."""
    if (output / OURS).is_file():
        _say(f"Removing what an earlier demo left in {output}")
        shutil.rmtree(output)
    elif output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DemoError(f"{output} holds something that no demo made; remove it, or name another folder with --output")
    output.mkdir(parents=True, exist_ok=True)
    (output / OURS).write_text("Made by `vlm-agent demo`, which removes this folder when it starts again.\n")


def _run_commands(output: Path, sizes: Sizes) -> None:
    aitw, shards, agent = (output / name for name in ("aitw", "shards", "agent"))
    _run("simulate", "--output", aitw, "--episodes", sizes.episodes, "--seed", SEED)
    _run("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json")
    _run("inspect", shards, "--draw", _telling_episode(shards, aitw), "--output", output / "contact_sheet.png")
    _run("train", "--config", RECIPE, "--output", agent, "--data.shards", shards, *sizes.changes)
    precision = ["--bf16"] if has_bf16() else []
    scored = ["--split", "test", "--limit", sizes.scored, "--groups", aitw / "groups.json", *precision]
    _run("evaluate", "--checkpoint", agent, "--shards", shards, "--output", output / "evaluation", *scored)
    acted = ["--tasks", sizes.tasks, "--seed", SEED, "--no-controls", *precision]
    _run("evaluate", "--online", "--checkpoint", agent, "--output", output / "online", *acted)
    _run("inspect", _telling_trace(output / "online"), "--animate", output / "agent.gif")


def _run(*words) -> None:
    """One command in a process of its own, as from a terminal."""
    arguments = [str(word) for word in words]
    _say(f"$ {shlex.join(['vlm-agent', *arguments])}")
    began = time.monotonic()
    command = [sys.executable, "-m", "vlm_agent.cli", *arguments]
    environment = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # those of loading 3 million weights
    status = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 (our own words, no shell)
    if status != 0:
        raise DemoError(f"`vlm-agent {arguments[0]}` ended with status {status}; what it said is above")
    _say(f"({arguments[0]}: {time.monotonic() - began:.0f} s)\n")


def _say(text: str) -> None:
    print(text, flush=True)  # flushed, or a pipe would show it after what the next command says


def _telling_episode(shards: Path, aitw: Path) -> str:
    """Which episode to draw: the shortest held-out shopping goal that needs memory, the first episode without one."""
    memory = set(json.loads((aitw / "groups.json").read_text())["memory_goals"])
    shopping = ShardDataset(shards, split="test", subset="web_shopping")
    lengths = {
        episode_id: len(screens)
        for episode_id, screens in zip(shopping.ids, shopping.screen_sizes, strict=True)
        if episode_id in memory
    }
    return min(lengths, key=lengths.__getitem__, default="first")


def _telling_trace(online: Path) -> Path:
    """Which task to draw: the longest that the agent has done, the shortest if it has done none."""
    told = [task["runs"][AGENT] for task in json.loads((online / ONLINE).read_text(encoding="utf-8"))["tasks"]]
    done = [run for run in told if run["success"]]
    chosen = max(done, key=lambda run: run["steps"]) if done else min(told, key=lambda run: run["steps"])
    return online / chosen["trace"]


def _success(output: Path) -> dict[str, dict]:
    """{run: {success: percent, interval: [percent, percent]}}, two decimals."""
    runs = json.loads((output / "online" / ONLINE).read_text(encoding="utf-8"))["runs"]
    rows = {run: rows["overall"] for run, rows in runs.items()}
    return {
        run: {"success": round(row["success"], 2), "interval": [round(edge, 2) for edge in row["interval"]]}
        for run, row in rows.items()
    }


def _scores(output: Path) -> dict[str, dict]:
    """{run: {scorer: {overall, subset …, memory_goals: percent}}}, two decimals."""
    metrics = json.loads((output / "evaluation" / "metrics.json").read_text())
    return {
        run: {
            scorer: {name: None if share is None else round(share, 2) for name, share in shares.items()}
            for scorer, shares in headline(scores).items()
        }
        for run, scores in metrics.items()
    }


class PeakMemory:
    """The most memory that this process and all below it held at once, in bytes, while the block ran.

    The sum of their resident sets, twice a second. Pages that processes share are counted for each of them, so the
    truth is lower; a peak between two samples is missed.
    """

    def __enter__(self) -> "PeakMemory":
        self.peak = _resident_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, _resident_bytes())


def _resident_bytes() -> int:
    here, total = psutil.Process(), 0
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed, and holds nothing
            total += process.memory_info().rss
    return total
