"""What an evaluation run leaves behind: one row a gold step, with what the model said about it.

The file is self-contained: the gold action, the screen's elements and the model's words are in it, so that any score
can be computed again without the model and without the shards.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.episodes import Action, Episode, UiElement

SCHEMA_VERSION = "1"
_VERSION_KEY = b"vlm_agent_predictions"

_POINT = pa.list_(pa.float64(), 2)
_ACTION = pa.struct({"kind": pa.int8(), "touch_yx": _POINT, "lift_yx": _POINT, "text": pa.string()})
_ELEMENT = pa.struct({"box": pa.list_(pa.float64(), 4), "text": pa.string(), "type": pa.string()})
_SCHEMA = pa.schema(
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

    `episode_ids` are the episodes that must be met; without them an episode missing as a whole cannot be seen. A
    missing answer must not shrink the denominator: that is how published scorers have flattered their models.
    """
    steps: dict[str, list[int]] = {}
    about: dict[str, tuple[str, int]] = {}
    for row in predictions:
        steps.setdefault(row.episode_id, []).append(row.step)
        if about.setdefault(row.episode_id, (row.subset, row.episode_length)) != (row.subset, row.episode_length):
            raise DatasetError(f"episode {row.episode_id} occurs with two subsets or two lengths")
    absent = [episode_id for episode_id in episode_ids if episode_id not in steps]
    if absent:
        raise DatasetError(f"no prediction of {len(absent)} episodes, the first {absent[0]}; run the evaluation again")
    for episode_id, (_, length) in about.items():
        found = sorted(steps[episode_id])
        if found != list(range(length)):
            raise DatasetError(f"episode {episode_id}, {length} steps: {_what_is_wrong(found, length)}")


def _what_is_wrong(found: list[int], length: int) -> str:
    missing = sorted(set(range(length)) - set(found))
    if missing:
        return f"no prediction of step {', '.join(map(str, missing))}; run the evaluation again to complete it"
    surplus = next(step for step in found if found.count(step) > 1 or not 0 <= step < length)
    return f"step {surplus} is predicted twice or does not exist; were two runs written into one file?"


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Writes Parquet under a temporary name beside `path` and renames it, so that `path` is never half a file."""
    batch: list[dict] = []
    with written_whole(Path(path)) as part, pq.ParquetWriter(part, _SCHEMA, compression="zstd") as writer:
        for prediction in predictions:
            batch.append(_row(prediction))
            if len(batch) == _ROWS_A_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, _SCHEMA))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, _SCHEMA))


def read_predictions(path: Path) -> list[Prediction]:
    """The rows in the order written; DatasetError naming the file where it is not one of `write_predictions`."""
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise DatasetError(f"{path} is no Parquet file: {error}") from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"").decode()
    if version != SCHEMA_VERSION:
        raise DatasetError(
            f"{path} is no predictions file of version {SCHEMA_VERSION} "
            f"(found {version or 'none'}); give the predictions.parquet of an evaluation run"
        )
    return [_prediction(row) for batch in table.to_batches() for row in batch.to_pylist()]


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
