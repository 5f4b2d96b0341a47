"""Episodes that a prompt may show, and those of them whose goals are nearest to a goal by a sentence encoder."""

import hashlib
import io
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from vlm_agent.agents.examples.encoder import Encoder
from vlm_agent.datasets.shards.dataset import ShardDataset, manifest_digest
from vlm_agent.datasets.statistics.leakage import normalise
from vlm_agent.episodes import Action, Screen, UiElement
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import atomic_write, read_checked, sha256_of
from vlm_agent.files.console import Progress, make_console
from vlm_agent.files.parquet import open_parquet
from vlm_agent.texts.actions import action_in_words
from vlm_agent.texts.lines import one_line

PREDICTIONS, PLAN = "predictions.parquet", "plan.json"
"""Files of an evaluation (`evaluation/offline/`), from which the second source reads."""

_MARK = b"vlm_agent_predictions"
TRAIN = "train"


class ReferencesError(UserError):
    """References that cannot be read; the message names folder and remedy."""


@dataclass(frozen=True)
class Reference:
    """An episode as an example: its number in its source, its goal, and its actions in words."""

    number: int
    id: str
    goal: str
    actions: tuple[str, ...]


class GoalSource(Protocol):
    """Episodes by number; `ids` and `goals` are of all of them."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def goals(self) -> Sequence[str]: ...

    @abstractmethod
    def read(self, number: int) -> Reference: ...


class ReferenceSource(GoalSource, Protocol):
    """Episodes with screens."""

    @abstractmethod
    def first_screen(self, number: int) -> Screen: ...

    @abstractmethod
    def description(self, number: int) -> str:
        """The recorded description of that screen. Raises ReferencesError where there is none."""


@dataclass(frozen=True)
class Demonstrated:
    """The split train of a folder of shards. Raises ReferencesError if it has no episode, DatasetError without
    shards."""

    folder: Path

    def __post_init__(self) -> None:
        if not self.ids:
            raise ReferencesError(f"references: {self.folder} has no episode in split {TRAIN}; name other shards")

    @cached_property
    def _dataset(self) -> ShardDataset:
        return ShardDataset(self.folder, split=TRAIN)

    @property
    def ids(self) -> Sequence[str]:
        return self._dataset.ids

    @cached_property
    def goals(self) -> Sequence[str]:
        table = self._dataset.table(["episode_id", "goal"])
        goals = dict(zip(table["episode_id"].to_pylist(), table["goal"].to_pylist(), strict=True))
        return [goals[one] for one in self.ids]

    def read(self, number: int) -> Reference:
        episode = self._dataset.without_pixels(number)
        actions = tuple(action_in_words(step.action, step.screen) for step in episode.steps)
        return Reference(number, episode.id, episode.goal, actions)

    def first_screen(self, number: int) -> Screen:
        return self._dataset.step(number, 0).screen

    def description(self, number: int) -> str:
        return _description(self._dataset, number)

    def digest(self) -> str:
        return manifest_digest(self.folder)


@dataclass(frozen=True)
class Predicted:
    """The test episodes of an earlier evaluation with the actions that its agent predicted: the paper's own source.

    `shards`: where their screens are; None: the evaluation's. Raises ReferencesError for another folder.
    """

    folder: Path
    shards: Path | None = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise ReferencesError(f"references: {self.folder / PREDICTIONS} has no episode")

    @cached_property
    def _table(self) -> pa.Table:
        """The steps as they are in the file: as objects, the elements of an evaluation of AITW would take gigabytes."""
        path = self.folder / PREDICTIONS
        columns = ["episode_id", "goal", "step", "predicted", "elements"]
        try:
            with open_parquet(path, "name the folder of a finished evaluation") as file:
                if _MARK not in (file.schema.metadata or {}) or set(columns) - set(file.schema.names):
                    raise ReferencesError(f"references: {path} holds no predictions of an evaluation")
                return file.read(columns)
        except DatasetError as error:
            raise ReferencesError(f"references: {error}") from None

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        """The rows of each episode."""
        episodes: dict[str, list[int]] = {}
        for row, episode in enumerate(self._table["episode_id"].to_pylist()):
            episodes.setdefault(episode, []).append(row)
        return episodes

    @cached_property
    def ids(self) -> Sequence[str]:
        return list(self._rows)

    @cached_property
    def goals(self) -> Sequence[str]:
        return [self._table["goal"][rows[0]].as_py() for rows in self._rows.values()]

    def read(self, number: int) -> Reference:
        steps = (self._table.slice(row, 1).to_pylist()[0] for row in self._rows[self.ids[number]])
        rows = sorted(steps, key=lambda row: row["step"])
        actions = tuple(action_in_words(_action(row), _screen(row)) for row in rows if row["predicted"] is not None)
        return Reference(number, self.ids[number], rows[0]["goal"], actions)

    def digest(self) -> str:
        return sha256_of([self.folder / PREDICTIONS])

    @cached_property
    def _dataset(self) -> ShardDataset:
        try:
            if self.shards is not None:
                return ShardDataset(self.shards)
            return ShardDataset(Path(read_checked(self.folder / PLAN, "evaluate again")["given"]["shards"]))
        except (DatasetError, OSError, KeyError, TypeError) as error:
            raise ReferencesError(
                f"references: the screens of {self.folder} cannot be read: {error}; name their folder "
                "as references.shards"
            ) from None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {one: number for number, one in enumerate(self._dataset.ids)}

    def first_screen(self, number: int) -> Screen:
        return self._dataset.step(self._place(number), 0).screen

    def _place(self, number: int) -> int:
        episode_id = self.ids[number]
        if episode_id not in self._places:
            raise ReferencesError(
                f"references: {self._dataset.directory} lacks episode {episode_id} of {self.folder}; name the folder "
                "of its screens as references.shards"
            )
        return self._places[episode_id]

    def description(self, number: int) -> str:
        return _description(self._dataset, self._place(number))


def _description(dataset: ShardDataset, number: int) -> str:
    """The recorded description of the first screen of an episode."""
    text = one_line(dataset.without_pixels(number).steps[0].notes.get("screen", ""))
    if not text:
        raise ReferencesError(
            f"references: episode {dataset.ids[number]} of {dataset.directory} has no description of its first screen "
            "to learn as a caption; write shards with `vlm-agent simulate --thoughts` or `vlm-agent annotate`"
        )
    return text


def _action(row: dict) -> Action:
    content = row["predicted"]
    return Action(content["kind"], tuple(content["touch"].values()), tuple(content["lift"].values()), content["text"])


def _screen(row: dict) -> Screen:
    elements = (UiElement(tuple(one["box"].values()), one["text"], one["type"]) for one in row["elements"])
    return Screen(None, tuple(elements))


_DECIMALS = 5
"""The digits of similarities. Goals that are as near up to rounding come in their order, whatever the processor."""


SourceT = TypeVar("SourceT", bound=GoalSource)


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
        known = self._places.get(goal)
        vector = self.encoder.encode([goal])[0] if known is None else self.vectors[known]  # float32 (D,)
        similarity = np.round(self.vectors @ vector, _DECIMALS)
        numbers: list[int] = []
        for place in np.argsort(-similarity, kind="stable").tolist():
            of_goal = (number for number in self.episodes[place] if self.source.ids[number] != without)
            numbers += [number for number in (next(of_goal, None),) if number is not None]
            if len(numbers) == self.count:
                break
        return numbers

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
        return list(by_goal(self.source.goals).values())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()


def distinct_goals(source: GoalSource) -> list[str]:
    """A goal as written for each different one (in `normalise`), in order of appearance."""
    return [source.goals[numbers[0]] for numbers in by_goal(source.goals).values()]


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


def by_goal(goals: Sequence[str]) -> dict[str, list[int]]:
    """Goal (in `normalise`) → its indices in `goals`."""
    found: dict[str, list[int]] = {}
    for number, goal in enumerate(goals):
        found.setdefault(normalise(goal), []).append(number)
    return found
