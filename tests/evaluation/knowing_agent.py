"""An agent that needs no model, and what to evaluate it on."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vlm_agent.agents import Answer
from vlm_agent.datasets.shards import ShardWriter, write_manifest
from vlm_agent.episodes import SUBSETS, Action, Episode, Step
from vlm_agent.training.recipe import LanguageRecipe


@dataclass(frozen=True)
class KnowingAgent:
    """Right wherever it has eyes and memory. Writes into `diary` what it is asked, and dies of call number `life`."""

    diary: Path
    life: int | None = None
    sighted: bool = True
    remembering: bool = True

    def on_grey_screens(self):
        return replace(self, sighted=False)

    def without_history(self):
        return replace(self, remembering=False)

    def answer_episodes(self, episodes):
        asked = self.diary.read_text().splitlines() if self.diary.exists() else []
        if self.life is not None and len({line.split()[0] for line in asked}) >= self.life:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.diary.open("a") as file:
            call = len(asked)
            file.writelines(f"{call} {self.sighted} {self.remembering} {episode.id}\n" for episode in episodes)
        return [[self._answer(step.action) for step in episode.steps] for episode in episodes]

    def answer_both_ways(self, episodes):
        answers = self.answer_episodes(episodes)
        free = [[Answer("tap at", None, settled=False), *rest] for _, *rest in answers]
        return free, answers

    def _answer(self, action):
        if not (self.sighted and self.remembering):
            return Answer("nothing", None, settled=True)
        return Answer("as shown", action, settled=True)

    def asked(self) -> list[str]:
        """`sighted remembering episode` of everything it was asked."""
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        return [line.partition(" ")[2] for line in lines]


@dataclass(frozen=True)
class Knowing:
    """Its source."""

    folder: Path
    weights: str = "a"
    life: int | None = None
    place: str = "here"
    language = LanguageRecipe()

    def described(self):
        return {"weights": self.weights}

    def load(self):
        return self.agent

    @property
    def agent(self):
        return KnowingAgent(self.folder / "diary.txt", self.life)


def write_shards(folder: Path, splits: list[str], count: int = 4) -> Path:
    """`count` episodes of two steps in each of two subsets, in these splits by turns."""
    files = []
    for subset in SUBSETS[:2]:
        shard = f"{subset}/{subset}.parquet"
        with ShardWriter(folder / shard) as writer:
            for number in range(count):
                writer.write(_episode(f"{subset}-{number}", subset), splits[number % len(splits)])
        files.append({"shard": shard, "subset": subset, "episodes_written": count})
    write_manifest(folder, {"files": files})
    return folder


def _episode(episode_id, subset):
    screen = np.zeros((40, 20, 3), np.uint8)
    actions = (Action.tap(0.5, 0.5), Action.complete())
    return Episode(episode_id, subset, f"do {episode_id}", tuple(Step(screen, action) for action in actions))
