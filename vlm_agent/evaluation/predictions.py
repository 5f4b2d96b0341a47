"""Predictions: one row per gold step with the agent's answer.

The file is self-contained: it holds the gold action, the screen's elements, the model's text and the cost of the
answer, so that every score can be computed again without the model and without the shards.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlm_agent.agents import Usage
from vlm_agent.episodes import Action, Episode, UiElement, shown_elements
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.parquet import ParquetReader, ParquetWriter, check_columns, open_parquet

SCHEMA_VERSION = "5"
REMEDY = "move it away and run its evaluate command again, or pass the predictions.parquet of another one"
"""Never to remove it: the file may be the user's own."""

_VERSION_KEY = b"vlm_agent_predictions"

# Points and boxes have a column for each number: Arrow before 26 cannot read a null over a list of fixed size, and a
# failed parse has null points.
POINT = pa.struct(dict.fromkeys(("y", "x"), pa.float64()))
BOX = pa.struct(dict.fromkeys(("y", "x", "height", "width"), pa.float64()))
SIZE = pa.struct(dict.fromkeys(("height", "width"), pa.int32()))
_ACTION = pa.struct({"kind": pa.int8(), "touch": POINT, "lift": POINT, "text": pa.string()})
_ELEMENT = pa.struct({"box": BOX, "text": pa.string(), "type": pa.string()})
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
        "tokens_read": pa.int64(),
        "tokens_written": pa.int64(),
        "calls": pa.int32(),
        "seconds": pa.float64(),
        "from_prefill": pa.bool_(),
        "box": BOX,
        "size": SIZE,
        "instruction": pa.string(),
    },
    metadata={_VERSION_KEY: SCHEMA_VERSION.encode()},
)
_ROWS_PER_GROUP = 4096
WRITING = {
    "compression": "zstd",
    # Texts repeat. Numbers do not; with their bytes grouped by significance they take a third less space.
    "use_dictionary": [
        *("episode_id", "subset", "goal", "text", "gold.text", "predicted.text", "instruction"),
        *("elements.list.element.text", "elements.list.element.type"),
    ],
    "use_byte_stream_split": [f"elements.list.element.box.{field.name}" for field in BOX],
}
"""Options of the Parquet writer."""

COST_FORMS = {"tokens_read": ",.0f", "tokens_written": ",.0f", "calls": ",.1f", "seconds": ",.1f"}
"""Each cost of an answer (table 1 of D-PoT), and its format in tables."""

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to one gold step.

    `step` counts from 0, `episode_length` is the number of steps of the gold episode, `text` is the model's unchanged
    output. `predicted` is None if that output is not an action, which is a wrong answer like any other. `box` is what
    the answer names as such (`Answer.box`): (y, x, height, width), None without one. `elements` are those of
    `Step.tree` where the step has it. `size` is (height, width) of the screen in pixels and `instruction` that of the
    step, None if unknown.
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
    usage: Usage = Usage()  # noqa: RUF009 (frozen)
    box: Box | None = None
    size: tuple[int, int] | None = None
    instruction: str | None = None

    @property
    def shown(self) -> tuple[UiElement, ...]:
        """The elements that agents and models read."""
        return shown_elements(self.elements)


def predictions_for(
    episode: Episode,
    texts: Sequence[str],
    predicted: Sequence[Action | None],
    usages: Sequence[Usage] | None = None,
    boxes: Sequence[Box | None] | None = None,
) -> list[Prediction]:
    """One Prediction per step of `episode`. Raises DatasetError unless every step has a text and an action or None."""
    if not len(episode) == len(texts) == len(predicted):
        raise DatasetError(
            f"episode {episode.id} has {len(episode)} steps, but the agent returned {len(texts)} texts and "
            f"{len(predicted)} actions"
        )
    about, length = (episode.id, episode.subset, episode.goal), len(episode)
    usages = [Usage()] * len(episode) if usages is None else usages
    boxes = [None] * len(episode) if boxes is None else boxes
    answers = zip(episode.steps, texts, predicted, usages, boxes, strict=True)
    return [
        Prediction(
            *about, index, length, at.action, at.all_elements, text, action, usage, box, at.known_size, at.instruction
        )
        for index, (at, text, action, usage, box) in enumerate(answers)
    ]


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Writes Parquet atomically (`files.atomic_write`), so that `path` is never incomplete."""
    batch: list[dict] = []
    with atomic_write(Path(path)) as part, ParquetWriter(part, SCHEMA, **WRITING) as writer:
        for prediction in predictions:
            batch.append(_row(prediction))
            if len(batch) == _ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, SCHEMA))


def read_predictions(path: Path, episodes: Collection[str] | None = None) -> list[Prediction]:
    """The rows in the order written; with `episodes` theirs alone, because all rows of AITW's test split are gigabytes.
    Raises DatasetError naming the file if `write_predictions` did not write it."""
    return list(chain.from_iterable(prediction_batches(path, episodes)))


def prediction_batches(path: Path, episodes: Collection[str] | None = None) -> Iterator[list[Prediction]]:
    """`read_predictions`, a few thousand rows at a time."""
    with open_predictions(path) as file:
        for batch in file.batches(_ROWS_PER_GROUP):
            if episodes is not None:
                batch = batch.filter(pc.is_in(batch["episode_id"], pa.array(list(episodes), pa.string())))
            yield [_prediction(row) for row in batch.to_pylist()]


@contextmanager
def open_predictions(path: Path) -> Iterator[ParquetReader]:
    """The open file, to be read within the block.

    Raises DatasetError naming it if it is missing or damaged, or if `write_predictions` did not write it.
    """
    with open_parquet(path, REMEDY) as file:
        found = file.schema
        version = (found.metadata or {}).get(_VERSION_KEY, b"").decode(errors="replace")
        if version != SCHEMA_VERSION:
            raise DatasetError(
                f"{path} is not a predictions file of version {SCHEMA_VERSION} (found {version or 'none'}); {REMEDY}"
            )
        check_columns(path, found, SCHEMA, SCHEMA.names, REMEDY)
        yield file


def is_predictions_file(path: Path) -> bool:
    """Whether `write_predictions` wrote this Parquet file. Raises DatasetError if it is damaged."""
    with open_parquet(path, REMEDY) as file:
        return _VERSION_KEY in (file.schema.metadata or {})


def cost_per_episode(predictions: Path) -> dict[str, float | None]:
    """Each of `COST_FORMS`: the mean over episodes of the sum over an episode's steps; empty if the agent reports none.

    An episode with a step whose cost is unknown, such as one whose call failed, is left out of that mean. None if no
    episode is left.
    """
    with open_predictions(predictions) as file:
        table = file.read(["episode_id", *COST_FORMS])
    episode = table["episode_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    costs = {name: _mean(episode, table[name].to_numpy()) for name in COST_FORMS}
    return {} if all(value is None for value in costs.values()) else costs


def cost_per_step(predictions: Path) -> dict[str, float | None]:
    """Each of `COST_FORMS`: the mean over the steps whose cost is known; None without any."""
    with open_predictions(predictions) as file:
        table = file.read([*COST_FORMS])
    costs = {name: table[name].drop_null().to_numpy() for name in COST_FORMS}
    return {name: float(values.mean()) if len(values) else None for name, values in costs.items()}


def _mean(episode: np.ndarray, values: np.ndarray) -> float | None:
    """`values`: of each step, NaN or None where unknown."""
    totals = np.bincount(episode, weights=values.astype(np.float64))
    whole = totals[~np.isnan(totals)]
    return float(whole.mean()) if len(whole) else None


def _row(prediction: Prediction) -> dict:
    return {
        **{name: getattr(prediction, name) for name in ("episode_id", "subset", "goal", "step", "episode_length")},
        "gold": _action_row(prediction.gold),
        "elements": [{"box": _struct(BOX, e.box), "text": e.text, "type": e.type} for e in prediction.elements],
        # A lone surrogate cannot be stored; it is escaped rather than failing an evaluation at its last step.
        "text": prediction.text.encode("utf-8", "backslashreplace").decode(),
        "predicted": None if prediction.predicted is None else _action_row(prediction.predicted),
        **asdict(prediction.usage),
        "box": _struct(BOX, prediction.box),
        "size": _struct(SIZE, prediction.size),
        "instruction": prediction.instruction,
    }


def _action_row(action: Action) -> dict:
    touch, lift = _struct(POINT, action.touch_yx), _struct(POINT, action.lift_yx)
    return {"kind": int(action.kind), "touch": touch, "lift": lift, "text": action.text}


def _struct(type_: pa.StructType, values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(type_.names, values, strict=True))


def _prediction(row: dict) -> Prediction:
    row["gold"] = _action(row["gold"])
    row["predicted"] = None if row["predicted"] is None else _action(row["predicted"])
    row["usage"] = Usage(**{field.name: row.pop(field.name) for field in fields(Usage)})
    for name in ("box", "size"):
        row[name] = None if row[name] is None else tuple(row[name].values())
    row["elements"] = tuple(UiElement(tuple(e["box"].values()), e["text"], e["type"]) for e in row["elements"])
    return Prediction(**row)


def _action(row: dict) -> Action:
    return Action(row["kind"], tuple(row["touch"].values()), tuple(row["lift"].values()), row["text"])
