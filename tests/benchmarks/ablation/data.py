"""Simulated demonstrations as shards."""

from collections.abc import Callable
from pathlib import Path

from ablation.runs import command
from vlm_agent.datasets.shards.dataset import MANIFEST


def make_shards(folder: Path, simulated: Callable[[Path], object]) -> None:
    """Writes `folder`/aitw by `simulated`, which shows it only complete, and `folder`/shards, at the first call."""
    aitw, shards = folder / "aitw", folder / "shards"
    if (shards / MANIFEST).is_file():
        return
    if not aitw.exists():
        simulated(aitw)
    command("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json")


def make_data(folder: Path, episodes: int) -> None:
    """Demonstrations with the expert's texts and plans; see `make_shards`."""
    words = ("--thoughts", "--episodes", episodes, "--seed", 0)
    make_shards(folder, lambda aitw: command("simulate", "--output", aitw, *words))
