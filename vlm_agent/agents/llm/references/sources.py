"""Episodes that a prompt may show: demonstrated ones of split train, or those that an earlier run predicted."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from vlm_agent.datasets.shards.dataset import ShardDataset, manifest_digest
from vlm_agent.episodes import Action, Screen, UiElement
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import read_checked, sha256_of
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
    def _rows(self) -> dict[str, list[dict]]:
        """The steps of each episode."""
        path = self.folder / PREDICTIONS
        columns = ["episode_id", "goal", "step", "predicted", "elements"]
        try:
            with open_parquet(path, "name the folder of a finished evaluation") as file:
                if _MARK not in (file.schema.metadata or {}) or set(columns) - set(file.schema.names):
                    raise ReferencesError(f"references: {path} holds no predictions of an evaluation")
                rows = file.read(columns).to_pylist()
        except DatasetError as error:
            raise ReferencesError(f"references: {error}") from None
        episodes: dict[str, list[dict]] = {}
        for row in rows:
            episodes.setdefault(row["episode_id"], []).append(row)
        return episodes

    @cached_property
    def ids(self) -> Sequence[str]:
        return list(self._rows)

    @cached_property
    def goals(self) -> Sequence[str]:
        return [rows[0]["goal"] for rows in self._rows.values()]

    def read(self, number: int) -> Reference:
        rows = sorted(self._rows[self.ids[number]], key=lambda row: row["step"])
        actions = tuple(action_in_words(_action(row), _screen(row)) for row in rows if row["predicted"] is not None)
        return Reference(number, self.ids[number], rows[0]["goal"], actions)

    def digest(self) -> str:
        return sha256_of([self.folder / PREDICTIONS])

    @cached_property
    def _dataset(self) -> ShardDataset:
        try:
            return ShardDataset(self._shards_of_the_plan() if self.shards is None else self.shards)
        except (DatasetError, OSError, KeyError, TypeError) as error:
            raise ReferencesError(
                f"references: the screens of {self.folder} cannot be read: {error}; name their folder "
                "as references.shards"
            ) from None

    def _shards_of_the_plan(self) -> Path:
        """Raises one of several errors for a plan that is damaged or missing."""
        return Path(read_checked(self.folder / PLAN, "evaluate again")["given"]["shards"])

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
    return Screen(
        None, tuple(UiElement(tuple(one["box"].values()), one["text"], one["type"]) for one in row["elements"])
    )
