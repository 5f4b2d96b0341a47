"""The data: simulated demonstrations with texts that can be read, as shards, and the chats of an input."""

import os
from itertools import chain
from pathlib import Path

from studies.ablation.data import make_shards
from studies.ablation.runs import command
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.files.console import Progress, make_console
from vlm_agent.screens.text import RapidOcrSettings
from vlm_agent.screens.understand import Readers
from vlm_agent.simulator.demonstrations import simulate

SIZE = (896, 416)
"""Size of a screen: at half of it texts are 8 pixels high, which no OCR reads."""


def make_data(folder: Path, episodes: int, tests: int) -> None:
    """Writes `folder`/aitw and `folder`/shards at the first call.

    The test episodes are the first of `vlm-agent simulate --seed 0`, so those of `questions.truth.expert_taps`.
    """
    count = episodes + tests
    shares = {"train": episodes / count, "test": tests / count}
    make_shards(folder, lambda aitw: simulate(aitw, count, splits=shares, sizes=(SIZE,)))


def readers_of(output: Path) -> Readers:
    """The default readers, with a cache of texts that all commands share. One thread where OMP_NUM_THREADS is 1."""
    threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    return Readers(text=RapidOcrSettings(cache=str(output / "texts"), threads=threads))


def read_texts(data: Path, readers: Readers) -> None:
    """Fills the cache with the texts of all screens, an episode after the other; those in it are not read again."""
    datasets = [ShardDataset(data / "shards", split=split) for split in ("test", "train")]
    text = readers.text.load()
    with Progress(make_console(stderr=True), sum(map(len, datasets)), "episodes").shown() as progress:
        for episode in chain(*datasets):
            for step in episode.steps:
                text.read(step.screenshot)
            progress.advance(1, "reading texts")


def make_chats(path: Path, data: Path, agent: Path, elements: str) -> None:
    """Writes the chats of all training episodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command("chats", data / "shards", "--agent", agent, "--elements", elements, "--output", path)
