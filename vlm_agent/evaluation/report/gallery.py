"""The report's pictures: episodes of a run, each screen with the gold and predicted action and the elements.

Screens are reduced to thumbnails, so that a page can contain thousands of them.
"""

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Screen, Step
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.predictions import Prediction, read_predictions
from vlm_agent.evaluation.report.overlay import VIEW_WIDTH, Mark, boxes, marks
from vlm_agent.evaluation.scoring.judged import JudgedSteps

RIGHT_TO_WRONG, WRONG_TO_RIGHT = "right_to_wrong", "wrong_to_right"
_WORDS = 240

RowsById = Mapping[str, Sequence[Prediction]]
"""Episode id → all steps of that episode, in order."""


@dataclass(frozen=True)
class ShownAnswer:
    """The action of `who`: `name` is its CSS class, `words` is the action language's text or the model's output.

    `right`: verdicts by scorer; empty for the gold action.
    """

    who: str
    name: str
    words: str
    right: Mapping[str, bool]


@dataclass(frozen=True)
class ShownScreen:
    """A step in the gallery; `index` counts from 0, coordinates are in a view box of `VIEW_WIDTH` × `height`."""

    index: int
    picture: str
    height: int
    marks: tuple[Mark, ...]
    text_boxes: str
    icon_boxes: str
    gold_name: str
    answers: tuple[ShownAnswer, ...]
    parsed: bool
    right: Mapping[str, bool]


@dataclass(frozen=True)
class Panel:
    """An episode in the gallery, or one of its steps; `length` is the episode's number of steps."""

    episode_id: str
    subset: str
    goal: str
    length: int
    steps: tuple[ShownScreen, ...]

    def count_right(self, scorer: str) -> str:
        """Such as "3 of 4": right steps among those that the scorer counts. The page's template calls it."""
        verdicts = [step.right[scorer] for step in self.steps if scorer in step.right]
        return f"{sum(verdicts)} of {len(verdicts)}"


def choose(steps: JudgedSteps, worst: int, random: int, seed: int) -> tuple[list[str], list[str]]:
    """The ids of the `worst` episodes, and of `random` other episodes drawn at random.

    The worst have the lowest official partial match; ties are broken by the lowest strict one, then by the greatest
    length, because a failed long episode shows more errors than a short one.
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
    """`count` of the steps that changed in one direction, as (episode id, step), from as many episodes as possible."""
    rng = np.random.default_rng(seed)
    names = sorted(changed)
    shuffled = {names[at]: rng.permutation(changed[names[at]]).tolist() for at in rng.permutation(len(names))}
    rounds = max(map(len, shuffled.values()), default=0)
    flat = [(name, steps[turn]) for turn in range(rounds) for name, steps in shuffled.items() if turn < len(steps)]
    return flat[:count]


def rows_by_id(source: Path | Sequence[Prediction], ids: Iterable[str]) -> RowsById:
    """The steps of these episodes, from a predictions file or a list."""
    by_id: dict[str, list[Prediction]] = {name: [] for name in ids}
    for row in read_predictions(source, by_id) if isinstance(source, Path) else source:
        if row.episode_id in by_id:
            by_id[row.episode_id].append(row)
    return {name: sorted(rows, key=lambda row: row.step) for name, rows in by_id.items()}


@dataclass(frozen=True)
class ShownRun:
    """A run in a gallery: the name beside its answers, their rows, and the verdicts on them."""

    who: str
    rows: RowsById
    steps: JudgedSteps


class Gallery:
    """Creates panels one at a time, so that only one episode's pixels are in memory.

    `width` is the width of the pictures in pixels. Gold actions are written in `language`. Runs have verdicts by
    `scorers`, and possibly by others.
    """

    def __init__(self, dataset: ShardDataset, language: ActionLanguage, scorers: Sequence[str], width: int) -> None:
        self._dataset, self._language, self.scorers, self._width = dataset, language, scorers, width
        self._position = {episode_id: index for index, episode_id in enumerate(dataset.ids)}

    def check(self, ids: Iterable[str], run: JudgedSteps) -> None:
        """Raises DatasetError naming the first of these episodes of a run that the shards lack, or have with another
        number of steps."""
        lengths = dict(zip(run.episode_ids.tolist(), run.lengths.tolist(), strict=True))
        for episode_id in ids:
            position = self._position.get(episode_id)
            if position is None or len(self._dataset.screen_sizes[position]) != lengths[episode_id]:
                what = "not" if position is None else "with another number of steps"
                raise DatasetError(
                    f"episode {episode_id} is in the predictions but {what} in {self._dataset.directory}; "
                    "pass the shards that the run was evaluated on"
                )

    def episodes(self, ids: Sequence[str], run: ShownRun) -> Iterator[Panel]:
        for episode_id in ids:
            yield self._panel(run.rows[episode_id], [run])

    def flips(self, flips: Sequence[tuple[str, int]], before: ShownRun, after: ShownRun) -> Iterator[Panel]:
        """A panel of one step for each (episode id, step), with the answers of both runs."""
        for episode_id, step in flips:
            yield self._panel([after.rows[episode_id][step]], [before, after])

    def _panel(self, rows: Sequence[Prediction], runs: Sequence[ShownRun]) -> Panel:
        """`rows`: the shown steps of one episode, of the last of `runs`."""
        steps = self._dataset[self._position[rows[0].episode_id]].steps
        shown = tuple(self._shown(pixels_of(steps[row.step]), row, runs) for row in rows)
        first = rows[0]
        return Panel(first.episode_id, first.subset, first.goal, first.episode_length, shown)

    def _shown(self, screen: np.ndarray, row: Prediction, runs: Sequence[ShownRun]) -> ShownScreen:
        height = round(VIEW_WIDTH * screen.shape[0] / screen.shape[1])
        names = ("agent",) if len(runs) == 1 else ("before", "agent")
        predictions = [run.rows[row.episode_id][row.step] for run in runs]
        actions = [
            ("gold", row.gold),
            *((name, prediction.predicted) for name, prediction in zip(names, predictions, strict=True)),
        ]
        text_boxes, icon_boxes = boxes(row.shown, height)
        answers = tuple(
            ShownAnswer(run.who, name, _short(prediction.text), self._verdicts(run, row))
            for name, run, prediction in zip(names, runs, predictions, strict=True)
        )
        return ShownScreen(
            index=row.step,
            picture=thumbnail(screen, self._width),
            height=height,
            marks=tuple(marks(actions, height, row.shown)),
            text_boxes=text_boxes,
            icon_boxes=icon_boxes,
            gold_name=row.gold.name,
            answers=(
                ShownAnswer("gold", "gold", self._language.encode(row.gold, Screen(screen, row.shown)), {}),
                *answers,
            ),
            parsed=row.predicted is not None,
            right=answers[-1].right,
        )

    def _verdicts(self, run: ShownRun, row: Prediction) -> dict[str, bool]:
        """By scorer, of those that count the step."""
        steps, at = run.steps, run.steps.row_of(row.episode_id, row.step)
        return {scorer: bool(steps.right[scorer][at]) for scorer in self.scorers if steps.counted[scorer][at]}


def pixels_of(step: Step) -> np.ndarray:
    if step.screenshot is None:
        raise AssertionError("a data set of shards decodes every screenshot")
    return step.screenshot


def _short(words: str) -> str:
    return words if len(words) <= _WORDS else words[:_WORDS] + "…"


_QUALITY = 60
_EFFORT = 2  # 0 to 6: files are a tenth larger than with the default 4 and take half the time


def thumbnail(screen: np.ndarray, width: int) -> str:
    """`screen` uint8 (height, width, 3), at most `width` pixels wide, as a data URL (WebP)."""
    image = Image.fromarray(screen)
    if image.width > width:
        size = (width, max(1, round(image.height * width / image.width)))
        image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
    data = io.BytesIO()
    image.save(data, "WEBP", quality=_QUALITY, method=_EFFORT)
    return "data:image/webp;base64," + base64.b64encode(data.getvalue()).decode()
