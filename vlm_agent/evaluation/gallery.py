"""Pictures of what was right and wrong: episodes chosen from a run, each screen drawn with both actions."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.verdicts import verdicts
from vlm_agent.screens.drawing import EXPERT, draw_action

GOLD_COLOUR = EXPERT
RIGHT_COLOUR = (47, 111, 222)
WRONG_COLOUR = (217, 48, 37)
_WIDTH = 300
_JPEG_QUALITY = 78
_WORDS = 240


@dataclass(frozen=True)
class Shown:
    """A step in the gallery: the screen as a data URI, what was expected and said, and both verdicts."""

    step: int
    picture: str
    gold: str
    said: str
    parsed: bool
    official: bool
    strict: bool


@dataclass(frozen=True)
class Panel:
    """An episode in the gallery."""

    episode_id: str
    subset: str
    goal: str
    steps: tuple[Shown, ...]

    @property
    def official(self) -> int:
        return sum(step.official for step in self.steps)

    @property
    def strict(self) -> int:
        return sum(step.strict for step in self.steps)


def choose(predictions: Sequence[Prediction], worst: int, random: int, seed: int) -> tuple[list[str], list[str]]:
    """Ids of the `worst` episodes and of `random` others.

    Worst are those with the lowest official partial match, of equal ones the lowest strict one, then the longest:
    a long episode gone wrong tells more than a short one.
    """
    matched = verdicts(predictions)
    ids, episode = np.unique([row.episode_id for row in predictions], return_inverse=True)
    lengths = np.bincount(episode, minlength=len(ids))
    official, strict = (np.bincount(episode, weights=matched[s]) / lengths for s in ("official", "strict"))
    order = np.lexsort((ids, -lengths, strict, official))
    rest = np.sort(order[worst:])
    drawn = np.random.default_rng(seed).permutation(rest)[:random]
    return ids[order[:worst]].tolist(), ids[drawn].tolist()


def panels(
    ids: Sequence[str], predictions: Sequence[Prediction], dataset: ShardDataset, language: ActionLanguage
) -> Iterator[Panel]:
    """The panel of each episode in `ids`, one at a time, so that one episode's pixels are in memory.

    Gold actions are written in `language`. Raises DatasetError where an episode is not in `dataset`.
    """
    position = {episode_id: index for index, episode_id in enumerate(dataset.ids)}
    for episode_id in ids:
        if episode_id not in position:
            raise DatasetError(
                f"episode {episode_id} is in the predictions but not in {dataset.directory}; "
                "give the shards that the run was evaluated on"
            )
        rows = sorted((row for row in predictions if row.episode_id == episode_id), key=lambda row: row.step)
        screens = [step.screenshot for step in dataset[position[episode_id]].steps]
        yield _panel(rows, screens, language)


def _panel(rows: list[Prediction], screens: list[np.ndarray], language: ActionLanguage) -> Panel:
    matched = verdicts(rows)
    steps = tuple(
        Shown(
            step=row.step,
            picture=_picture(screens[row.step], row, right),
            gold=language.render(row.gold),
            said=row.text if len(row.text) <= _WORDS else row.text[:_WORDS] + "…",
            parsed=row.predicted is not None,
            official=bool(right),
            strict=bool(strictly),
        )
        for row, right, strictly in zip(rows, matched["official"], matched["strict"], strict=True)
    )
    return Panel(rows[0].episode_id, rows[0].subset, rows[0].goal, steps)


def _picture(screen: np.ndarray, row: Prediction, right: bool) -> str:
    """The screen, made small before drawing so that lines are equally thick on every phone, as a JPEG data URI."""
    height, width = screen.shape[:2]
    image = Image.fromarray(screen).resize((_WIDTH, round(height * _WIDTH / width)), Image.Resampling.LANCZOS)
    image = draw_action(image, row.gold, GOLD_COLOUR)
    if row.predicted is not None:
        image = draw_action(image, row.predicted, RIGHT_COLOUR if right else WRONG_COLOUR, row=1)
    data = io.BytesIO()
    image.convert("RGB").save(data, "JPEG", quality=_JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()
