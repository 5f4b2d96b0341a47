"""Elements that are read from the pixels of screens, in place of those that a phone or a data set provides.

Elements of recorded steps, the current and earlier ones, are replaced, too; references keep those of their data set. A
control is around this agent, so from a grey screen nothing is read. A process reads each picture once.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from vlm_agent.agents.agent import Agent, Answer, Asked, Judge, Preparation, Turn
from vlm_agent.agents.chats import Episodes
from vlm_agent.agents.controls import AgentAround
from vlm_agent.episodes import Episode, Screen
from vlm_agent.errors import UserError
from vlm_agent.files import sha256_of
from vlm_agent.screens.seen import Understood
from vlm_agent.screens.understand import Readers, understand

_REMEMBERED = 4096
"""Screens whose result is kept. It holds no pixels: some kilobytes a screen."""

_CHECKPOINT = (".json", ".safetensors", ".bin", ".txt")


@dataclass
class ScreenReader:
    """Reads one picture at a time, because the readers use all cores by themselves. Thread-safe."""

    readers: Readers
    _memory: OrderedDict[bytes, Understood] = field(default_factory=OrderedDict, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, readers: Readers) -> "ScreenReader":
        """The reader of these settings in this process."""
        return cls(readers)

    def read(self, pixels: np.ndarray) -> Understood:
        """`pixels`: uint8 (height, width, 3), RGB. Raises UserError for pixels of another form."""
        key = hashlib.sha256(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes()).digest()
        with self._lock:
            if (known := self._memory.get(key)) is None:
                known = self._memory[key] = understand(pixels, self.readers)
                if len(self._memory) > _REMEMBERED:
                    self._memory.popitem(last=False)
            self._memory.move_to_end(key)
            return known

    def screen(self, screen: Screen) -> Screen:
        """The screen with its elements read from its pixels; None without pixels."""
        return replace(screen, elements=None if screen.pixels is None else self.read(screen.pixels).elements)

    def __reduce__(self) -> tuple:
        """Another process has a memory of its own."""
        return ScreenReader.of, (self.readers,)


def readers_identity(readers: Readers) -> dict[str, Any]:
    """What decides the result of reading, as JSON values. `files`: digests of detectors and icon readers from files.

    Raises UserError for a file that does not exist.
    """
    identity = readers.model_dump(mode="json", exclude={"text": {"cache", "threads"}})
    named = {name: identity[name].partition(":") for name in ("widgets", "icons")}
    files = {name: _digest(kind, Path(path)) for name, (kind, _, path) in named.items() if path}
    return identity | {"files": files} if files else identity


def readers_of(identity: Mapping[str, Any]) -> Readers:
    """The inverse of `readers_identity`."""
    return Readers.model_validate({name: value for name, value in identity.items() if name != "files"})


def in_words(readers: Readers) -> str:
    """A line for reports."""
    text = readers.text.model_dump()["name"]
    return f"read from pixels (text: {text}, widgets: {readers.widgets}, icons: {readers.icons})"


def _digest(kind: str, path: Path) -> str:
    """The digest of a file, of a detector with the classes in the YAML file beside it, or of a checkpoint's files."""
    if not path.exists():
        raise UserError(f"readers: {path} does not exist")
    paths = [path] if path.is_file() else [one for one in path.iterdir() if one.suffix in _CHECKPOINT]
    beside = path.with_suffix(".yaml")
    return sha256_of([*sorted(paths), *([beside] if kind == "onnx" and beside.is_file() else [])])


@dataclass(frozen=True)
class ReadingAgent(AgentAround):
    """`agent` on screens whose elements `reader` reads. `judge`: of recorded steps with the data set's elements, as
    scores are."""

    reader: ScreenReader
    judge: Judge | None = None

    def visible(self, goal: str, history: Sequence[Turn], screen: Screen) -> Asked:
        turns = tuple(replace(turn, screen=self.reader.screen(turn.screen)) for turn in history)
        return Asked(goal, turns, self.reader.screen(screen))

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        read = [read_episode(episode, self.reader) for episode in episodes]
        return self._judged(episodes, read).answer_episodes(read)

    def preparation(self) -> Preparation | None:
        preparation = self.agent.preparation()
        return None if preparation is None else partial(prepare_read, self.reader, preparation)

    def answer_prepared(self, prepared: Sequence[Any]) -> list[list[Answer]]:
        return self.agent.answer_prepared(prepared)

    def judged_by(self, judge: Judge) -> "ReadingAgent":
        return replace(self, judge=judge)

    def _judged(self, recorded: Sequence[Episode], read: Sequence[Episode]) -> Agent:
        """The agent, which sees the steps that were `read`, with the judge of those that were `recorded`."""
        if self.judge is None:
            return self.agent
        judge = self.judge
        pairs = [zip(after.steps, before.steps, strict=True) for after, before in zip(read, recorded, strict=True)]
        recorded_of = {id(seen): step for steps in pairs for seen, step in steps}
        return self.agent.judged_by(lambda action, step: judge(action, recorded_of[id(step)]))

    def estimate(self, sample: Callable[[], Sequence[Episode]], steps: int) -> str | None:
        return self.agent.estimate(lambda: [read_episode(one, self.reader) for one in sample()], steps)


def prepare_read(reader: ScreenReader, prepare: Preparation, episode: Episode) -> Any:
    """Reads the screens of an episode before the agent's preparation; both may run in another process."""
    return prepare(read_episode(episode, reader))


@dataclass(frozen=True)
class ReadEpisodes:
    """`episodes` with the elements of their screens read from the pixels, an episode at a time."""

    episodes: Episodes
    reader: ScreenReader

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, index: int) -> Episode:
        return read_episode(self.episodes[index], self.reader)


def read_episode(episode: Episode, reader: ScreenReader) -> Episode:
    """The episode with the elements of its screens read from their pixels; none without pixels."""
    read = (replace(step, elements=reader.screen(step.screen).elements or ()) for step in episode.steps)
    return replace(episode, steps=tuple(read))
