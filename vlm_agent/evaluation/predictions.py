"""What an evaluation run leaves behind: one row a gold step, with what the model said about it.

The file is self-contained: the gold action, the screen's elements and the model's words are in it, so that any score
can be computed again without the model and without the shards.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.episodes import Action, Episode, UiElement
from vlm_agent.evaluation.completeness import check_episodes, check_present

SCHEMA_VERSION = "1"
_VERSION_KEY = b"vlm_agent_predictions"

_POINT = pa.list_(pa.float64(), 2)
_ACTION = pa.struct({"kind": pa.int8(), "touch_yx": _POINT, "lift_yx": _POINT, "text": pa.string()})
_ELEMENT = pa.struct({"box": pa.list_(pa.float64(), 4), "text": pa.string(), "type": pa.string()})
SCHEMA = pa.schema(
    {
        "episode_id": pa.string(),
        "subset": pa.string(),
        "goal": pa.string(),
        "step": pa.int32(),
        "episode_length": pa.int32(),
        "gold": _ACTION,
        "elements": pa.list_(_ELEMENT),
        "text": pa.string(),
        "predicted": _ACTION,
    },
    metadata={_VERSION_KEY: SCHEMA_VERSION.encode()},
)
_ROWS_A_GROUP = 4096
WRITING = {
    "compression": "zstd",
    # Words repeat. Numbers do not, and are a third smaller by the bytes of equal weight.
    "use_dictionary": [
        *("episode_id", "subset", "goal", "text", "gold.text", "predicted.text"),
        *("elements.list.element.text", "elements.list.element.type"),
    ],
    "use_byte_stream_split": ["elements.list.element.box.list.element"],
}
"""Options of the Parquet writer."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said about one gold step.

    `step` counts from 0, `episode_length` is the number of steps of the gold episode, `text` is the model's output as
    it came, and `predicted` is None where that output is no action: a wrong answer like any other.
    """

    episode_id: str
    subset: str
    goal: str
    step: int
    episode_length: int
    gold: Action
    elements: tuple[UiElement, ...]
    text: str
    predicted: Action | None


def predictions_for(episode: Episode, texts: Sequence[str], predicted: Sequence[Action | None]) -> list[Prediction]:
    """One Prediction a step of `episode`; DatasetError unless there is a text and an action (or None) for each."""
    if not len(episode) == len(texts) == len(predicted):
        raise DatasetError(
            f"episode {episode.id} has {len(episode)} steps, but {len(texts)} texts and {len(predicted)} actions came"
        )
    about = (episode.id, episode.subset, episode.goal)
    return [
        Prediction(*about, index, len(episode), step.action, step.elements, text, action)
        for index, (step, text, action) in enumerate(zip(episode.steps, texts, predicted, strict=True))
    ]


def check_complete(predictions: Sequence[Prediction], episode_ids: Collection[str] = ()) -> None:
    """Raises DatasetError unless every step of every episode met is there exactly once, naming what is not.

    `episode_ids` are the episodes that must be met; without them an episode missing as a whole cannot be seen.
    """
    numbers: dict[str, int] = {}
    for row in predictions:
        numbers.setdefault(row.episode_id, len(numbers))
    check_present(numbers, episode_ids)
    check_episodes(
        list(numbers),
        np.array([numbers[row.episode_id] for row in predictions], np.int64),
        np.array([row.subset for row in predictions], str),
        np.array([row.episode_length for row in predictions], np.int64),
        np.array([row.step for row in predictions], np.int64),
    )


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Writes Parquet under a temporary name beside `path` and renames it, so that `path` is never half a file."""
    batch: list[dict] = []
    with written_whole(Path(path)) as part, pq.ParquetWriter(part, SCHEMA, **WRITING) as writer:
        for prediction in predictions:
            batch.append(_row(prediction))
            if len(batch) == _ROWS_A_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, SCHEMA))


def read_predictions(path: Path) -> list[Prediction]:
    """The rows in the order written; DatasetError naming the file where it is not one of `write_predictions`."""
    with open_predictions(path) as file:
        return [_prediction(row) for batch in file.iter_batches(_ROWS_A_GROUP) for row in batch.to_pylist()]


def open_predictions(path: Path) -> pq.ParquetFile:
    """Closed by the caller. DatasetError naming the file where it is not one of `write_predictions`."""
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DatasetError(f"{path} is no Parquet file: {error}") from error
    version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"").decode()
    if version != SCHEMA_VERSION:
        file.close()
        raise DatasetError(
            f"{path} is no predictions file of version {SCHEMA_VERSION} "
            f"(found {version or 'none'}); give the predictions.parquet of an evaluation run"
        )
    return file


def _row(prediction: Prediction) -> dict:
    return {
        **{name: getattr(prediction, name) for name in ("episode_id", "subset", "goal", "step", "episode_length")},
        "gold": _action_row(prediction.gold),
        "elements": [{"box": e.box, "text": e.text, "type": e.type} for e in prediction.elements],
        # A lone surrogate cannot be stored; it stays visible rather than stopping a run at its last step.
        "text": prediction.text.encode("utf-8", "backslashreplace").decode(),
        "predicted": None if prediction.predicted is None else _action_row(prediction.predicted),
    }


def _action_row(action: Action) -> dict:
    return {"kind": int(action.kind), "touch_yx": action.touch_yx, "lift_yx": action.lift_yx, "text": action.text}


def _prediction(row: dict) -> Prediction:
    row["gold"] = _action(row["gold"])
    row["predicted"] = None if row["predicted"] is None else _action(row["predicted"])
    row["elements"] = tuple(UiElement(tuple(e["box"]), e["text"], e["type"]) for e in row["elements"])
    return Prediction(**row)


def _action(row: dict) -> Action:
    return Action(row["kind"], tuple(row["touch_yx"]), tuple(row["lift_yx"]), row["text"])
