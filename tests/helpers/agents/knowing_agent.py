"""An agent that needs no model, and what to evaluate it on."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlm_agent.agents import Agent, AgentSettings, Answer, Usage
from vlm_agent.agents.controls import GREY
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.episodes import Action, Episode, Step, UiElement


@dataclass(frozen=True)
class KnowingAgent(Agent):
    """Right if it sees the screens and the whole episode. Writes every question to `diary`; dies at call `life`."""

    diary: Path
    life: int | None = None

    def answer_episodes(self, episodes):
        asked = self.diary.read_text().splitlines() if self.diary.exists() else []
        if self.life is not None and len({line.split()[0] for line in asked}) >= self.life:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.diary.open("a") as file:
            call = len(asked)
            file.writelines(
                f"{call} {sees(episode)} {len(episode)} {episode.id} {episode.steps[0].action.name}\n"
                for episode in episodes
            )
        return [[self._answer(episode, step.action) for step in episode.steps] for episode in episodes]

    def act(self, goal, history, screen):
        raise AssertionError("whole episodes are asked for")

    def _answer(self, episode, action):
        if not sees(episode) or len(episode) < STEPS:
            return _answer("nothing", None)
        return _answer("as shown", action)

    def asked(self) -> list[str]:
        """`sees-the-screens steps episode first-action` of everything it was asked."""
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        return [line.partition(" ")[2] for line in lines]


STEPS = 2


def sees(episode: Episode) -> bool:
    return not all((step.screenshot == GREY).all() for step in episode.steps)


def _answer(text: str, action: Action | None) -> Answer:
    return Answer(text, action, usage=Usage(from_prefill=True))


class Knowing(AgentSettings):
    """Its settings."""

    agent: str = "knowing"
    folder: Path
    weights: str = "a"
    life: int | None = None

    @property
    def display_name(self):
        return "here"

    def identity(self):
        return {"weights": self.weights}

    def load(self):
        return self.knower

    @property
    def knower(self):
        return KnowingAgent(self.folder / "diary.txt", self.life)


def write_shards(folder: Path, splits: list[str], count: int = 4, with_elements: bool = False) -> Path:
    """`count` episodes of two steps in each of two subsets, in these splits by turns, as if converted from AITW."""
    files = []
    for subset in SUBSETS[:2]:
        shard = f"{subset}/{subset}.parquet"
        with ShardWriter(folder / shard) as writer:
            for number in range(count):
                writer.write(_episode(f"{subset}-{number}", subset, with_elements), splits[number % len(splits)])
        files.append({"shard": shard, "subset": subset, "episodes_written": count})
    write_manifest(folder, {"source": "aitw", "files": files})
    return folder


def _episode(episode_id, subset, with_elements):
    screen = np.zeros((40, 20, 3), np.uint8)
    elements = (UiElement((0, 0, 0.5, 1), "one"), UiElement((0.5, 0, 0.5, 1), "two")) if with_elements else ()
    actions = (Action.tap(0.5, 0.5), Action.complete())
    steps = tuple(Step(screen, action, elements, "org.shop/.Home") for action in actions)
    return Episode(episode_id, subset, f"do {episode_id}", steps)
