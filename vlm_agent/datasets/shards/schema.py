"""The columns of a shard, and an episode as a row of them.

One row per episode. `steps` is a list of structs, each with the screen as an encoded image (PNG, WebP or JPEG) in
`screenshot.bytes`. `notes` holds the texts of `Step.notes` in the order of their names, `instruction` the low-level
instruction of the step or null. `record` and `offset` locate the step in its source file, as in `EpisodeStep`.
`elements` holds `Step.tree` where the source has it.

Every change of the columns needs a new `VERSION`, and a folder of another version is converted again. Version 5 has one
column `notes` in place of a column for each kind of text, so that a source with other texts needs no other columns.
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from vlm_agent.datasets.shards.images import EncodedScreen, ScreenFormat
from vlm_agent.datasets.sources.checks import DAMAGED_FILE_ERRORS
from vlm_agent.episodes import Action, Episode, Step, UiElement, shown_elements
from vlm_agent.errors import DatasetError

VERSION = 5

IN_STEPS = "steps.list.element."
"""How Parquet names a column of the steps: `IN_STEPS + "height"`."""

_POINT = pa.list_(pa.float32(), 2)
_ELEMENT = pa.struct([("box", pa.list_(pa.float32(), 4)), ("text", pa.string()), ("type", pa.string())])
_NOTE = pa.struct([("name", pa.string()), ("text", pa.string())])
_SCREENSHOT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_STEP = pa.struct(
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
        ("notes", pa.list_(_NOTE)),
        ("instruction", pa.string()),
        ("record", pa.int64()),
        ("offset", pa.int64()),
    ]
)


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


_EPISODE = pa.struct(
    [
        ("episode_id", pa.string()),
        ("subset", pa.string()),
        ("split", pa.string()),
        ("goal", pa.string()),
        ("device_type", pa.string()),
        ("android_api_level", pa.int32()),
        ("steps", pa.list_(_STEP)),
    ]
)
SCHEMA = pa.schema(list(_EPISODE), {"huggingface": json.dumps({"info": {"features": _hf_feature(_EPISODE)}})})


def check_is_shard(path: Path, schema: pa.Schema, remedy: str) -> None:
    """Raises DatasetError naming the file of a shard that has other columns."""
    if not schema.equals(SCHEMA):
        raise DatasetError(f"{path} is not a shard of this program: it has other columns; {remedy}")


def _leaves(name: str, type_: pa.DataType) -> list[str]:
    """The columns in which Parquet stores a field."""
    if pa.types.is_struct(type_):
        return [leaf for field in type_ for leaf in _leaves(f"{name}.{field.name}", field.type)]
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return _leaves(f"{name}.list.element", type_.value_type)
    return [name]


_COLUMNS = [leaf for field in SCHEMA for leaf in _leaves(field.name, field.type)]
COMPRESSED = [leaf for leaf in _COLUMNS if leaf != f"{IN_STEPS}screenshot.bytes"]
"""All columns but the pixels. Screens are already encoded images; compressing them again would take a tenth of the
conversion time."""


ALL_BUT_PIXELS = (
    *(name for name in SCHEMA.names if name != "steps"),
    *(f"{IN_STEPS}{field.name}" for field in _STEP if field.name != "screenshot"),
)
"""All columns but `screenshot`."""

ALL_COLUMNS = (*ALL_BUT_PIXELS, f"{IN_STEPS}screenshot")


def empty_table(columns: Sequence[str]) -> pa.Table:
    """A table of these columns without rows. Reading an empty file drops the other fields of the steps."""
    file = io.BytesIO()
    pq.write_table(SCHEMA.empty_table(), file)
    return pq.ParquetFile(file).read(list(columns)).replace_schema_metadata(None)


INDEX = "index.parquet"
"""The file with the small columns of all episodes of a folder.

A shard has a row group per episode, and reading a column of 700,000 row groups takes minutes and gigabytes of footers.
All of the index is also in the shards; `vlm-agent convert` rewrites a missing one.
"""

INDEXED = (
    *(name for name in SCHEMA.names if name != "steps"),
    *(IN_STEPS + name for name in ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")),
)
"""Columns of the shards that are in the index. It also has `shard` and `row_group`, the place of the episode."""

INDEX_SCHEMA = (
    empty_table(INDEXED).schema.append(pa.field("shard", pa.string())).append(pa.field("row_group", pa.int32()))
)


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
        "elements": [{"box": item.box, "text": item.text, "type": item.type} for item in step.all_elements],
        "notes": note_structs(step.notes),
        "instruction": step.instruction,
        "record": record,
        "offset": offset,
    }


def note_structs(notes: Mapping[str, str]) -> list[dict[str, str]]:
    """The value of the column `notes`, by name, so that equal notes have equal bytes."""
    return [{"name": name, "text": notes[name]} for name in sorted(notes)]


def notes_of(structs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The inverse of `note_structs`."""
    return {note["name"]: note["text"] for note in structs}


def from_row(row: dict, first: int = 0) -> Episode:
    """The episode of a row. Its screenshots are None if the row was read without pixels.

    `first`: the number of its first step in the episode. Raises DatasetError that names episode and step, where a
    screen cannot be decoded.
    """
    where = f"episode {row['episode_id']}, step"
    return Episode(
        id=row["episode_id"],
        subset=row["subset"],
        goal=row["goal"],
        steps=tuple(_step(struct, f"{where} {number}") for number, struct in enumerate(row["steps"], first)),
        device_type=row["device_type"],
        android_api_level=row["android_api_level"],
        first_step=first,
    )


def _step(struct: dict, where: str) -> Step:
    try:
        screenshot = decode_screen(struct["screenshot"]["bytes"]) if "screenshot" in struct else None
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from None
    elements = tuple(UiElement(tuple(item["box"]), item["text"], item["type"]) for item in struct["elements"])
    shown = shown_elements(elements)
    return Step(
        screenshot,
        Action(struct["action_kind"], tuple(struct["touch_yx"]), tuple(struct["lift_yx"]), struct["text"]),
        shown,
        struct["activity"],
        notes_of(struct["notes"]),
        struct["instruction"],
        (struct["height"], struct["width"]),
        None if shown is elements else elements,
    )


def decode_screen(data: bytes) -> np.ndarray:
    """uint8 (height, width, 3) RGB pixels of any image that Pillow reads. Raises DatasetError for a damaged one."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.array(image if image.mode == "RGB" else image.convert("RGB"))
    except (*DAMAGED_FILE_ERRORS, Image.DecompressionBombError) as error:
        raise DatasetError(f"the screen cannot be decoded ({error})") from None
