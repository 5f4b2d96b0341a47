"""The columns of a shard, and an episode as a row of them.

One row an episode; `steps` is a list of structs, each with the screen as a PNG (WebP, JPEG) in `screenshot.bytes`.
`record` and `offset` say where in its source file a step was, as `EpisodeStep` counts them. `coat` holds the four
texts of Chain-of-Action-Thought and is null where the source has none. A change here needs another `SCHEMA_VERSION`.
"""

import json
from dataclasses import asdict

import pyarrow as pa

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.images import EncodedScreen, ScreenFormat, decode_screen
from vlm_agent.episodes import Action, CoatTexts, Episode, Step, UiElement

SCHEMA_VERSION = 2

IN_STEPS = "steps.list.element."
"""How Parquet names a column of the steps: `IN_STEPS + "height"`."""

_POINT = pa.list_(pa.float32(), 2)
_ELEMENT = pa.struct([("box", pa.list_(pa.float32(), 4)), ("text", pa.string()), ("type", pa.string())])
_COAT = pa.struct([("screen", pa.string()), ("think", pa.string()), ("action", pa.string()), ("result", pa.string())])
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
        ("coat", _COAT),
        ("record", pa.int64()),
        ("offset", pa.int64()),
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


def _leaves(name: str, type_: pa.DataType) -> list[str]:
    """What Parquet names the columns that a field is stored as."""
    if pa.types.is_struct(type_):
        return [leaf for field in type_ for leaf in _leaves(f"{name}.{field.name}", field.type)]
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return _leaves(f"{name}.list.element", type_.value_type)
    return [name]


COMPRESSED = tuple(
    leaf for field in SCHEMA for leaf in _leaves(field.name, field.type) if leaf != f"{IN_STEPS}screenshot.bytes"
)
"""Every column but the pixels, which are compressed as they are: trying again costs a tenth of a conversion."""

ALL_BUT_PIXELS = (
    *(name for name in SCHEMA.names if name != "steps"),
    *(f"{IN_STEPS}{field.name}" for field in _STEP if field.name != "screenshot"),
)
"""The columns that an episode without its screens consists of, and where its steps came from."""

ALL_COLUMNS = (*ALL_BUT_PIXELS, f"{IN_STEPS}screenshot")


def to_row(episode: Episode, split: str) -> dict:
    """The row of an episode with its screens as PNGs; DatasetError where it has no pixels."""
    for number, step in enumerate(episode.steps):
        if step.screenshot is None:
            raise DatasetError(f"episode {episode.id}, step {number} has no pixels to write")
    encode = ScreenFormat().encode
    steps = [step_struct(step, encode(step.screenshot), "png", number) for number, step in enumerate(episode.steps)]
    return episode_row(
        episode.id, episode.subset, split, episode.goal, episode.device_type, episode.android_api_level, steps
    )


def episode_row(
    episode_id: str, subset: str, split: str, goal: str, device_type: str, android_api_level: int, steps: list[dict]
) -> dict:
    """The row of an episode of which the steps are structs already."""
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
    """Step `number` of an episode with its screen encoded; nulls where it comes from no record of a file."""
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
    coat = None if struct["coat"] is None else CoatTexts(**struct["coat"])
    return Step(screenshot, action, elements, struct["activity"], coat)
