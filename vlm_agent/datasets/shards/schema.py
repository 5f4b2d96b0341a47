"""The columns of a shard, and an episode as a row of them.

One row per episode. `steps` is a list of structs, each with the screen as an encoded image (PNG, WebP or JPEG) in
`screenshot.bytes`. `record` and `offset` locate the step in its source file, as in `EpisodeStep`. `coat` holds the four
texts of Chain-of-Action-Thought; null if the source has none.

| version | columns                                                                    | written                       |
|---------|----------------------------------------------------------------------------|-------------------------------|
| 1       | no `coat`, `record` and `offset`; the folder has no index                  | no longer                     |
| 2       | `FIRST_SCHEMA`                                                             | for all other shards          |
| 3       | also `instruction`, a step's low-level instruction or null                 | for instructions, new actions |
| 4       | `LATEST_SCHEMA`: also `plan`, the lines and the step of a planner, or null | for plans                     |

A shard has the lowest version that holds its episodes (`version_needed`). All versions can be read. Every change of the
columns needs a new version.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.datasets.shards.images import EncodedScreen, ScreenFormat, decode_screen
from vlm_agent.episodes import Action, ActionKind, CoatTexts, Episode, PlanTexts, Step, UiElement
from vlm_agent.errors import DatasetError

FIRST_VERSION, LATEST_VERSION = 2, 4
"""Versions that are written: the one that every shard starts with, and the one with every column."""

READABLE_VERSIONS = (1, 2, 3, 4)

IN_STEPS = "steps.list.element."
"""How Parquet names a column of the steps: `IN_STEPS + "height"`."""

_POINT = pa.list_(pa.float32(), 2)
_ELEMENT = pa.struct([("box", pa.list_(pa.float32(), 4)), ("text", pa.string()), ("type", pa.string())])
_COAT = pa.struct([("screen", pa.string()), ("think", pa.string()), ("action", pa.string()), ("result", pa.string())])
_PLAN = pa.struct([("plan", pa.list_(pa.string())), ("step", pa.string())])
_SCREENSHOT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_FIRST_STEP = pa.struct(
    [
        ("screenshot", _SCREENSHOT),
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("action_kind", pa.int8()),
        ("touch_yx", _POINT),
        ("lift_yx", _POINT),
        ("text", pa.string()),
        ("activity", pa.string()),
        ("elements", pa.list_(_ELEMENT)),
        ("coat", _COAT),
        ("record", pa.int64()),
        ("offset", pa.int64()),
    ]
)
_INSTRUCTED_STEP = pa.struct([*_FIRST_STEP, pa.field("instruction", pa.string())])
_LATEST_STEP = pa.struct([*_INSTRUCTED_STEP, pa.field("plan", _PLAN)])


def _hf_feature(type_: pa.DataType) -> dict:
    """The type as a feature of the `datasets` library, which takes seconds to import."""
    if type_ == _SCREENSHOT:
        return {"_type": "Image"}
    if pa.types.is_struct(type_):
        return {field.name: _hf_feature(field.type) for field in type_}
    if pa.types.is_fixed_size_list(type_):
        return {"feature": _hf_feature(type_.value_type), "length": type_.list_size, "_type": "List"}
    if pa.types.is_list(type_):
        return {"feature": _hf_feature(type_.value_type), "_type": "List"}
    dtype = {"float": "float32"}.get(str(type_), str(type_))
    return {"dtype": dtype, "_type": "Value"}


def _schema(step: pa.DataType) -> pa.Schema:
    columns = pa.schema(
        [
            ("episode_id", pa.string()),
            ("subset", pa.string()),
            ("split", pa.string()),
            ("goal", pa.string()),
            ("device_type", pa.string()),
            ("android_api_level", pa.int32()),
            ("steps", pa.list_(step)),
        ]
    )
    features = {field.name: _hf_feature(field.type) for field in columns}
    return columns.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


FIRST_SCHEMA = _schema(_FIRST_STEP)
LATEST_SCHEMA = _schema(_LATEST_STEP)

SCHEMAS = {FIRST_VERSION: FIRST_SCHEMA, 3: _schema(_INSTRUCTED_STEP), LATEST_VERSION: LATEST_SCHEMA}
"""The columns of each version that is written."""

_KNOWN = {1: _schema(pa.struct(list(_FIRST_STEP)[:-3]))} | SCHEMAS


def version_of(schema: pa.Schema) -> int | None:
    """The version of a shard, by its columns; None for other columns."""
    return next((version for version, columns in _KNOWN.items() if schema.equals(columns)), None)


def check_is_shard(path: Path, schema: pa.Schema, remedy: str) -> int:
    """The version of a shard. Raises DatasetError naming the file where it has other columns."""
    version = version_of(schema)
    if version is None:
        raise DatasetError(f"{path} is not a shard of this program: it has other columns; {remedy}")
    return version


def version_needed(row: dict) -> int:
    """The lowest version that holds a row: 4 for plans, 3 for an instruction or a kind of action beyond AITW's."""
    steps = row["steps"]
    if any(step.get("plan") is not None for step in steps):
        return LATEST_VERSION
    is_new = (step.get("instruction") is not None or not ActionKind(step["action_kind"]).is_in_aitw for step in steps)
    return 3 if any(is_new) else FIRST_VERSION


def _leaves(name: str, type_: pa.DataType) -> list[str]:
    """The columns in which Parquet stores a field."""
    if pa.types.is_struct(type_):
        return [leaf for field in type_ for leaf in _leaves(f"{name}.{field.name}", field.type)]
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return _leaves(f"{name}.list.element", type_.value_type)
    return [name]


def compressed_columns(schema: pa.Schema) -> list[str]:
    """All columns but the pixels. Screens are already encoded images; compressing them again would take a tenth of the
    conversion time."""
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    return [leaf for leaf in leaves if leaf != f"{IN_STEPS}screenshot.bytes"]


ALL_BUT_PIXELS = (
    *(name for name in LATEST_SCHEMA.names if name != "steps"),
    *(f"{IN_STEPS}{field.name}" for field in _LATEST_STEP if field.name != "screenshot"),
)
"""All columns but `screenshot`."""

ALL_COLUMNS = (*ALL_BUT_PIXELS, f"{IN_STEPS}screenshot")


@lru_cache
def _schema_of_columns(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of a table of these columns. Reading an empty file drops the other fields of the steps."""
    file = io.BytesIO()
    pq.write_table(LATEST_SCHEMA.empty_table(), file)
    return pq.ParquetFile(file).read(list(columns)).schema.remove_metadata()


def empty_table(columns: Sequence[str]) -> pa.Table:
    """A table of these columns without rows."""
    return _schema_of_columns(tuple(columns)).empty_table()


def with_columns(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """A table from a shard of any version with exactly these columns; those that the shard does not have are null."""
    return table.replace_schema_metadata(None).cast(_schema_of_columns(tuple(columns)))


def to_row(episode: Episode, split: str) -> dict:
    """The row of an episode with its screens as PNGs. Raises DatasetError for an episode without pixels."""
    encode = ScreenFormat().encode
    steps = []
    for number, step in enumerate(episode.steps):
        if step.screenshot is None:
            raise DatasetError(f"episode {episode.id}, step {number} has no pixels to write")
        steps.append(step_struct(step, encode(step.screenshot), "png", number))
    return episode_row(
        episode.id, episode.subset, split, episode.goal, episode.device_type, episode.android_api_level, steps
    )


def episode_row(
    episode_id: str, subset: str, split: str, goal: str, device_type: str, android_api_level: int, steps: list[dict]
) -> dict:
    """The row of an episode whose steps are structs of `step_struct`."""
    return {
        "episode_id": episode_id,
        "subset": subset,
        "split": split,
        "goal": goal,
        "device_type": device_type,
        "android_api_level": android_api_level,
        "steps": steps,
    }


def step_struct(
    step: Step, screen: EncodedScreen, extension: str, number: int, record: int | None = None, offset: int | None = None
) -> dict:
    """Step `number` of an episode with its screen encoded. `record` and `offset` are None without a source file."""
    return {
        "screenshot": {"bytes": screen.data, "path": f"{number}.{extension}"},
        "height": screen.height,
        "width": screen.width,
        "action_kind": int(step.action.kind),
        "touch_yx": step.action.touch_yx,
        "lift_yx": step.action.lift_yx,
        "text": step.action.text,
        "activity": step.activity,
        "elements": [{"box": item.box, "text": item.text, "type": item.type} for item in step.elements],
        "coat": None if step.coat is None else asdict(step.coat),
        "record": record,
        "offset": offset,
        "instruction": step.instruction,
        "plan": None if step.plan is None else asdict(step.plan),
    }


def from_row(row: dict, first: int = 0) -> Episode:
    """The episode of a row of any version. Its screenshots are None if the row was read without pixels.

    `first`: the number of its first step in the episode. Raises DatasetError that names episode and step, where a
    screen cannot be decoded.
    """
    where = f"episode {row['episode_id']}, step"
    return Episode(
        id=row["episode_id"],
        subset=row["subset"],
        goal=row["goal"],
        steps=tuple(_from_struct(struct, f"{where} {number}") for number, struct in enumerate(row["steps"], first)),
        device_type=row["device_type"],
        android_api_level=row["android_api_level"],
        first_step=first,
    )


def _from_struct(struct: dict, where: str) -> Step:
    try:
        screenshot = decode_screen(struct["screenshot"]["bytes"]) if "screenshot" in struct else None
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from None
    action = Action(struct["action_kind"], tuple(struct["touch_yx"]), tuple(struct["lift_yx"]), struct["text"])
    elements = tuple(UiElement(tuple(item["box"]), item["text"], item["type"]) for item in struct["elements"])
    texts = struct.get("coat")
    coat = None if texts is None else CoatTexts(**texts)
    return Step(
        screenshot,
        action,
        elements,
        struct["activity"],
        coat,
        struct.get("instruction"),
        _plan_of(struct.get("plan")),
        (struct["height"], struct["width"]),
    )


def _plan_of(texts: dict | None) -> PlanTexts | None:
    return None if texts is None else PlanTexts(tuple(texts["plan"]), texts["step"])
