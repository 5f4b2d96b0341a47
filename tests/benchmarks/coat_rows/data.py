"""The data: simulated demonstrations with the expert's texts, as shards."""

import shutil
from pathlib import Path

from ablation.runs import command

from vlm_agent.datasets.shards.dataset import MANIFEST


def make_data(folder: Path, episodes: int) -> None:
    """Writes `folder`/aitw and `folder`/shards at the first call; an interrupted simulation starts again."""
    aitw, shards = folder / "aitw", folder / "shards"
    if (shards / MANIFEST).is_file():
        return
    if not (aitw / "complete").is_file():
        shutil.rmtree(aitw, ignore_errors=True)
        command("simulate", "--thoughts", "--output", aitw, "--episodes", episodes, "--seed", 0)
        (aitw / "complete").touch()
    command("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json")
