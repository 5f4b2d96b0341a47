"""The episodes whose goals are nearest to a goal by a sentence encoder."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from vlm_agent.agents.llm.references.sources import GoalSource, Reference
from vlm_agent.datasets.statistics.leakage import normalise
from vlm_agent.files import atomic_write
from vlm_agent.files.console import Progress, make_console

_DECIMALS = 5
"""The digits of similarities. Goals that are as near up to rounding come in their order, whatever the processor."""


SourceT = TypeVar("SourceT", bound=GoalSource)


class Encoder(Protocol):
    def encode(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass
class References(Generic[SourceT]):
    """`count` episodes with the nearest goals, all different (in `normalise`), from the nearest on.

    `digest`: of the encoder, `folder`: where the vectors of goals are kept, from the first use on; None: nowhere.
    `captions`: those that this process knows, by episode. `known`: `vectors`, where they need not be computed. Pickles.
    """

    source: SourceT
    encoder: Encoder
    count: int = 2
    digest: str = ""
    folder: Path | None = None
    captions: dict[str, str] = field(default_factory=dict)
    known: np.ndarray | None = field(default=None, repr=False, compare=False)
    _found: dict[tuple[str, str], list[Reference]] = field(default_factory=dict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def nearest(self, goal: str, without: str = "") -> list[Reference]:
        """`without`: the id of an episode that is left out, the one that is answered. Fewer than `count` if there are
        no more."""
        with self._lock:
            key = (goal, without if without in self._ids else "")
            if key not in self._found:
                self._found[key] = [self.source.read(number) for number in self._numbers(goal, without)]
            return self._found[key]

    def has_goal(self, goal: str, without: str = "") -> bool:
        """Whether one of the nearest references has this goal (in `normalise`).

        It need not be the first: encoders that ignore accents have another goal as near.
        """
        return any(normalise(found.goal) == normalise(goal) for found in self.nearest(goal, without))

    def _numbers(self, goal: str, without: str) -> list[int]:
        similarity = np.round(self.vectors @ self._vector(goal), _DECIMALS)
        numbers: list[int] = []
        for place in np.argsort(-similarity, kind="stable").tolist():
            of_goal = (number for number in self.episodes[place] if self.source.ids[number] != without)
            numbers += [number for number in (next(of_goal, None),) if number is not None]
            if len(numbers) == self.count:
                break
        return numbers

    def _vector(self, goal: str) -> np.ndarray:
        """float32 (D,)"""
        place = self._places.get(goal)
        return self.encoder.encode([goal])[0] if place is None else self.vectors[place]

    @cached_property
    def vectors(self) -> np.ndarray:
        """float32 (G, D), of `distinct_goals`."""
        if self.known is not None:
            return self.known
        goals = distinct_goals(self.source)
        if self.folder is None:
            return self.encoder.encode(goals)
        return stored_vectors(self.encoder, self.digest, goals, self.folder)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {goal: place for place, goal in enumerate(distinct_goals(self.source))}

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(self.source.ids)

    @cached_property
    def episodes(self) -> list[list[int]]:
        """The numbers of the episodes with each of `distinct_goals`."""
        return list(_by_goal(self.source).values())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()


def distinct_goals(source: GoalSource) -> list[str]:
    """A goal as written for each different one (in `normalise`), in order of appearance."""
    return [source.goals[numbers[0]] for numbers in _by_goal(source).values()]


def stored_vectors(encoder: Encoder, digest: str, goals: Sequence[str], folder: Path) -> np.ndarray:
    """float32 (G, D): the vectors of `goals`, from `folder` if it has them. `digest`: of the encoder."""
    name = hashlib.sha256("\n".join([digest, *map(repr, goals)]).encode()).hexdigest()
    path = folder / f"{name}.npy"
    if path.exists() and (known := _read_vectors(path, len(goals))) is not None:
        return known
    vectors = _encoded(encoder, goals)
    folder.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    np.save(file, vectors, allow_pickle=False)
    with atomic_write(path) as part:
        part.write_bytes(file.getvalue() + hashlib.sha256(file.getvalue()).digest())
    return vectors


_DIGEST = hashlib.sha256().digest_size
"""Bytes of the SHA-256 at the end of the file, which readers of .npy ignore."""


def _read_vectors(path: Path, count: int) -> np.ndarray | None:
    """None for a damaged file, which is written again."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
            return None
        vectors: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.ndim == 2 and vectors.dtype == np.float32 and len(vectors) == count else None


_AT_ONCE = 1024


def _encoded(encoder: Encoder, goals: Sequence[str]) -> np.ndarray:
    parts = []
    with Progress(make_console(), len(goals), "goals").shown() as progress:
        for start in range(0, len(goals), _AT_ONCE):
            parts.append(encoder.encode(goals[start : start + _AT_ONCE]))
            progress.advance(len(parts[-1]), "encoding references")
    return np.concatenate(parts)


def _by_goal(source: GoalSource) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, goal in enumerate(source.goals):
        found.setdefault(normalise(goal), []).append(number)
    return found
