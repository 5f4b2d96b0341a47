"""Pictures of what was right and wrong: episodes chosen from a run, each screen with both actions and its elements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Step
from vlm_agent.evaluation.judged import JudgedSteps
from vlm_agent.evaluation.predictions import Prediction, read_predictions
from vlm_agent.evaluation.report.overlay import VIEW_WIDTH, Mark, boxes, marks
from vlm_agent.evaluation.report.thumbnails import thumbnail
from vlm_agent.evaluation.verdicts import verdicts

RIGHT_TO_WRONG, WRONG_TO_RIGHT = "right_to_wrong", "wrong_to_right"
_WORDS = 240

RowsById = Mapping[str, Sequence[Prediction]]
"""Of some episodes all steps, in order."""


@dataclass(frozen=True)
class Answer:
    """What `who` did: `name` is the class it is drawn in, `words` are those of the action language, or of the model."""

    who: str
    name: str
    words: str


@dataclass(frozen=True)
class Shown:
    """A step in the gallery; coordinates are those of a view box `VIEW_WIDTH` × `height`."""

    step: int
    picture: str
    height: int
    marks: tuple[Mark, ...]
    text_boxes: str
    icon_boxes: str
    gold_name: str
    answers: tuple[Answer, ...]
    parsed: bool
    right: Mapping[str, bool]


@dataclass(frozen=True)
class Panel:
    """An episode in the gallery, or a step of one; `length` is that of the whole episode."""

    episode_id: str
    subset: str
    goal: str
    length: int
    steps: tuple[Shown, ...]

    def count_right(self, scorer: str) -> int:
        return sum(step.right[scorer] for step in self.steps)


def choose(steps: JudgedSteps, worst: int, random: int, seed: int) -> tuple[list[str], list[str]]:
    """Ids of the `worst` episodes and of `random` others.

    Worst are those with the lowest official partial match, of equal ones the lowest strict one, then the longest:
    a long episode gone wrong tells more than a short one.
    """
    ids, lengths = steps.episode_ids, steps.lengths
    official, strict = (
        np.bincount(steps.episode, weights=steps.right[scorer], minlength=len(ids)) / lengths
        for scorer in ("official", "strict")
    )
    order = np.lexsort((ids, -lengths, strict, official))
    rest = np.sort(ids[order[worst:]])
    drawn = np.random.default_rng(seed).permutation(rest)[:random]
    return ids[order[:worst]].tolist(), drawn.tolist()


def choose_flips(changed: Mapping[str, Sequence[int]], count: int, seed: int) -> list[tuple[str, int]]:
    """`count` of the steps that changed one way, as (episode id, step): of different episodes, while there are any."""
    rng = np.random.default_rng(seed)
    names = sorted(changed)
    shuffled = {names[at]: rng.permutation(changed[names[at]]).tolist() for at in rng.permutation(len(names))}
    rounds = max(map(len, shuffled.values()), default=0)
    flat = [(name, steps[turn]) for turn in range(rounds) for name, steps in shuffled.items() if turn < len(steps)]
    return flat[:count]


def rows_by_id(source: Path | Sequence[Prediction], ids: Iterable[str]) -> RowsById:
    """The steps of these episodes, from a predictions file or a list."""
    wanted: dict[str, list[Prediction]] = {name: [] for name in ids}
    for row in read_predictions(source) if isinstance(source, Path) else source:
        if row.episode_id in wanted:
            wanted[row.episode_id].append(row)
    return {name: sorted(rows, key=lambda row: row.step) for name, rows in wanted.items()}


class Gallery:
    """Makes panels, one at a time, so that one episode's pixels are in memory.

    `width` is that of the pictures in pixels; gold actions are written in `language`; verdicts are by `scorers`.
    """

    def __init__(self, dataset: ShardDataset, language: ActionLanguage, scorers: Sequence[str], width: int):
        self._dataset, self._language, self._scorers, self._width = dataset, language, scorers, width
        self._position = {episode_id: index for index, episode_id in enumerate(dataset.ids)}

    def check(self, ids: Iterable[str]) -> None:
        """Raises DatasetError naming the first of these episodes that the shards lack."""
        for episode_id in ids:
            if episode_id not in self._position:
                raise DatasetError(
                    f"episode {episode_id} is in the predictions but not in {self._dataset.directory}; "
                    "give the shards that the run was evaluated on"
                )

    def episodes(self, ids: Sequence[str], rows: RowsById) -> Iterator[Panel]:
        """The panel of each episode."""
        for episode_id in ids:
            yield self._panel(rows[episode_id], [("said", rows[episode_id])])

    def flips(
        self, flips: Sequence[tuple[str, int]], before: tuple[str, RowsById], after: tuple[str, RowsById]
    ) -> Iterator[Panel]:
        """A panel of one step for each (episode id, step), with what both runs, (name, rows), said."""
        for episode_id, step in flips:
            pair = [(name, [rows[episode_id][step]]) for name, rows in (before, after)]
            yield self._panel(pair[1][1], pair)

    def _panel(self, rows: Sequence[Prediction], answers: Sequence[tuple[str, Sequence[Prediction]]]) -> Panel:
        """`rows` are those that the verdicts are on; the last of `answers` says the same."""
        steps = self._dataset[self._position[rows[0].episode_id]].steps
        right = verdicts(rows, self._scorers)
        shown = tuple(
            self._shown(
                steps[row.step].screenshot,
                row,
                [(who, said[index]) for who, said in answers],
                {scorer: bool(right[scorer][index]) for scorer in self._scorers},
            )
            for index, row in enumerate(rows)
        )
        first = rows[0]
        return Panel(first.episode_id, first.subset, first.goal, first.episode_length, shown)

    def _shown(
        self, screen: np.ndarray, row: Prediction, said: list[tuple[str, Prediction]], right: dict[str, bool]
    ) -> Shown:
        height = round(VIEW_WIDTH * screen.shape[0] / screen.shape[1])
        names = ("said",) if len(said) == 1 else ("before", "said")
        actions = [("gold", row.gold), *((name, its.predicted) for name, (_, its) in zip(names, said, strict=True))]
        text_boxes, icon_boxes = boxes(row.elements, height)
        return Shown(
            step=row.step,
            picture=thumbnail(screen, self._width),
            height=height,
            marks=tuple(marks(actions, height)),
            text_boxes=text_boxes,
            icon_boxes=icon_boxes,
            gold_name=row.gold.name,
            answers=(
                Answer("gold", "gold", self._language.render(row.gold, Step(None, row.gold, row.elements))),
                *(Answer(who, name, _short(its.text)) for name, (who, its) in zip(names, said, strict=True)),
            ),
            parsed=row.predicted is not None,
            right=right,
        )


def _short(words: str) -> str:
    return words if len(words) <= _WORDS else words[:_WORDS] + "…"
