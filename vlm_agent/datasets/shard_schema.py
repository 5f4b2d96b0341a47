"""The columns of a shard, and an episode as a row of them.

One row an episode; `steps` is a list of structs, each with the screen as a PNG in `screenshot.bytes`. A change here
needs another `SCHEMA_VERSION`.
"""

import json

import pyarrow as pa

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.images import decode_screen, encode_png
from vlm_agent.episodes import Action, Episode, Step, UiElement

SCHEMA_VERSION = 1

IN_STEPS = "steps.list.element."
"""How Parquet names a column of the steps: `IN_STEPS + "height"`."""

_POINT = pa.list_(pa.float32(), 2)
_ELEMENT = pa.struct([("box", pa.list_(pa.float32(), 4)), ("text", pa.string()), ("type", pa.string())])
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
    ]
)
_COLUMNS = pa.schema(
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


def _hf_feature(type_: pa.DataType) -> dict:
    """The type in the words of the `datasets` library, written out here because importing it takes seconds."""
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


SCHEMA = _COLUMNS.with_metadata(
    {"huggingface": json.dumps({"info": {"features": {field.name: _hf_feature(field.type) for field in _COLUMNS}}})}
)

ALL_BUT_PIXELS = (
    *(name for name in SCHEMA.names if name != "steps"),
    *(f"{IN_STEPS}{field.name}" for field in _STEP if field.name != "screenshot"),
)
"""The columns that an episode without its screens consists of."""


def to_row(episode: Episode, split: str) -> dict:
    """The row of an episode; DatasetError where it has no pixels."""
    return {
        "episode_id": episode.id,
        "subset": episode.subset,
        "split": split,
        "goal": episode.goal,
        "device_type": episode.device_type,
        "android_api_level": episode.android_api_level,
        "steps": [_to_struct(step, episode.id, number) for number, step in enumerate(episode.steps)],
    }


def _to_struct(step: Step, episode_id: str, number: int) -> dict:
    if step.screenshot is None:
        raise DatasetError(f"episode {episode_id}, step {number} has no pixels to write")
    height, width = step.size
    return {
        "screenshot": {"bytes": encode_png(step.screenshot), "path": f"{number}.png"},
        "height": height,
        "width": width,
        "action_kind": int(step.action.kind),
        "touch_yx": step.action.touch_yx,
        "lift_yx": step.action.lift_yx,
        "text": step.action.text,
        "activity": step.activity,
        "elements": [{"box": item.box, "text": item.text, "type": item.type} for item in step.elements],
    }


def from_row(row: dict) -> Episode:
    """The episode of a row; its screenshots are None where the row was read without pixels."""
    return Episode(
        id=row["episode_id"],
        subset=row["subset"],
        goal=row["goal"],
        steps=tuple(_from_struct(struct) for struct in row["steps"]),
        device_type=row["device_type"],
        android_api_level=row["android_api_level"],
    )


def _from_struct(struct: dict) -> Step:
    screenshot = decode_screen(struct["screenshot"]["bytes"]) if "screenshot" in struct else None
    action = Action(struct["action_kind"], tuple(struct["touch_yx"]), tuple(struct["lift_yx"]), struct["text"])
    elements = tuple(UiElement(tuple(item["box"]), item["text"], item["type"]) for item in struct["elements"])
    return Step(screenshot, action, elements, struct["activity"])
