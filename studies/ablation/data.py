"""Simulated demonstrations as shards."""

import json
from collections.abc import Callable
from pathlib import Path

from studies.ablation.runs import command
from vlm_agent.datasets.shards.dataset import MANIFEST
from vlm_agent.files import atomic_write

MEMORY_GOALS = "memory_goals"
"""The group of groups.json whose goals need memory."""


def make_shards(
    folder: Path,
    simulated: Callable[[Path], object],
    splits: Callable[[Path], Path] = lambda aitw: aitw / "splits.json",
) -> None:
    """Writes `folder`/aitw by `simulated`, which shows it only complete, and `folder`/shards, at the first call.

    `splits` (folder of the demonstrations) → the file of their splits; episodes that it lacks are not in the shards.
    """
    aitw, shards = folder / "aitw", folder / "shards"
    if (shards / MANIFEST).is_file():
        return
    if not aitw.exists():
        simulated(aitw)
    command("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", splits(aitw))


def make_data(folder: Path, episodes: int) -> None:
    """Demonstrations with the expert's texts and plans; see `make_shards`."""
    words = ("--thoughts", "--episodes", episodes, "--seed", 0)
    make_shards(folder, lambda aitw: command("simulate", "--output", aitw, *words))


def make_memory_goals(folder: Path, episodes: int) -> None:
    """`folder`/shards with the test episodes alone whose goals need memory, of another seed than `make_data`: 9 %
    of the test split."""
    words = ("--thoughts", "--episodes", episodes, "--seed", 1)
    make_shards(folder, lambda aitw: command("simulate", "--output", aitw, *words), _splits_of_memory_goals)


def _splits_of_memory_goals(aitw: Path) -> Path:
    splits, groups = (json.loads((aitw / f"{name}.json").read_text(encoding="utf-8")) for name in ("splits", "groups"))
    path = aitw / "memory_splits.json"
    with atomic_write(path) as part:
        part.write_text(json.dumps({"test": sorted({*splits["test"]} & {*groups[MEMORY_GOALS]})}), encoding="utf-8")
    return path
