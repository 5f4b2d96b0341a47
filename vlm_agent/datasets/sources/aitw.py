"""Android in the Wild: gzip TFRecords, one step per record, the steps of an episode adjacent and in order.

A record is a `tf.train.Example` with these fields (google-research, `android_in_the_wild/README.md`), all required:
`episode_id`, `episode_length`, `step_id`, `goal_info`, `device_type`, `android_api_level`, `current_activity`,
`image/{height,width,channels}`, `image/encoded` (raw uint8 H·W·C), `image/ui_annotations_positions` (4 floats per
element: y x h w), `image/ui_annotations_{text,ui_types}`, `results/{action_type,type_action,yx_touch,yx_lift}`. Fields
that the action's type does not use (the points of a key press, the text of a tap) are not read. The subset is not in
the record but in the name of the file.

Notes (`Step.notes`) are optional, and the published AITW has none: bytes under AitZ's keys (`checks.NOTE_KEYS`), a plan
as `plan_lines`, bytes for each line, and its immediate step as `plan_step`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from vlm_agent.datasets.formats.tf_example import ExampleError, encode_example, parse_example
from vlm_agent.datasets.formats.tfrecord import Record, read_records, write_records
from vlm_agent.datasets.sources import BadRecord, EpisodeStep, Input, Source, checks
from vlm_agent.episodes import Episode, Step, UiElement
from vlm_agent.errors import DatasetError
from vlm_agent.files.hashing import HashedFile, HashedFiles

SUBSETS = ("general", "google_apps", "install", "single", "web_shopping")


def is_data(path: Path) -> bool:
    """Whether the file's name matches those of AITW's files."""
    return re.search(r"(-\d+-of-\d+|\.tfrecords?)(\.gz)?$", path.name) is not None


def subset_of(path: Path) -> str:
    """The subset at the beginning of the file's name (`google_apps-00000-of-00001`), or the name of its folder.

    Raises DatasetError if neither is one of `SUBSETS`.
    """
    if match := re.match(rf"({'|'.join(SUBSETS)})(?![a-z0-9])", path.name):
        return match[1]
    if path.absolute().parent.name in SUBSETS:
        return path.absolute().parent.name
    raise DatasetError(
        f"cannot determine the subset of {path}: rename the file to <subset>-00000-of-00001 or move it into a folder "
        f"<subset>, where <subset> is one of {', '.join(SUBSETS)}"
    )


def _inputs(paths: Sequence[Path]) -> list[Input]:
    """One input per file."""
    return [Input.of(path.name, subset_of(path), [path]) for path in paths]


def _read(input_: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    (path,) = input_.files
    with files.open(path) as file:
        yield from read_steps(path, input_.subset, file)


SOURCE = Source(
    name="aitw",
    about="Android in the Wild: gzip TFRecords",
    example="google_apps-00000-of-00001",
    is_data=is_data,
    inputs=_inputs,
    read=_read,
    subsets=SUBSETS,
    is_published=True,
)


def read_steps(
    path: Path, subset: str | None = None, file: BinaryIO | HashedFile | None = None
) -> Iterator[EpisodeStep | BadRecord]:
    """The steps of a file in order, and a BadRecord for each unusable record.

    Screens are read-only uint8 (height, width, 3) views of the record; points and boxes are the file's float32 values.
    `file` is read instead of opening `path`; it must be seekable and at its beginning.

    Raises DatasetError if the name of `path` has no subset and, without `file`, if it is a folder or does not exist.
    """
    subset = subset_of(path) if subset is None else subset
    for record in read_records(path, file):
        try:
            yield parse_step(record, path, subset)
        except (DatasetError, ExampleError) as error:
            yield BadRecord(path, record.number, record.offset, str(error), record.ends_file)


def write_episodes(path: Path, episodes: Iterable[Episode]) -> int:
    """Writes a gzip TFRecord file in AITW's own format and returns the number of steps.

    To be readable, the file must have the name `<subset>-00000-of-00001`, or its folder the name of the subset. The
    same episodes give the same bytes. The file appears only when it is complete.

    Raises DatasetError for an episode without pixels.
    """
    return write_records(path, (encode_step(episode, number) for episode in episodes for number in range(len(episode))))


_KINDS = {
    "android_api_level": "int64",
    "current_activity": "bytes",
    "device_type": "bytes",
    "episode_id": "bytes",
    "episode_length": "int64",
    "goal_info": "bytes",
    "image/channels": "int64",
    "image/encoded": "bytes",
    "image/height": "int64",
    "image/ui_annotations_positions": "float",
    "image/ui_annotations_text": "bytes",
    "image/ui_annotations_ui_types": "bytes",
    "image/width": "int64",
    "results/action_type": "int64",
    "results/type_action": "bytes",
    "results/yx_lift": "float",
    "results/yx_touch": "float",
    "step_id": "int64",
}
_NOTES = checks.NOTE_KEYS | {"step": "plan_step"}
"""Name of a note → its field in enriched files. The lines of a plan are a list."""

_PLAN = "plan_lines"
_ALL_KINDS = _KINDS | dict.fromkeys((*_NOTES.values(), _PLAN), "bytes")
_ACTION = checks.ActionKeys("results/action_type", "results/type_action", "results/yx_touch", "results/yx_lift")


def parse_step(record: Record, file: Path, subset: str) -> EpisodeStep:
    """Reads one TFRecord of AITW.

    The screen is a read-only view of the record's payload, not a copy.

    Raises DatasetError naming the invalid field, ExampleError for bytes that are not an Example, and DatasetError with
    the record's error for a record that could not be read.
    """
    if record.payload is None:
        raise DatasetError(str(record.error))
    fields = checks.ExampleFields(parse_example(record.payload, _ALL_KINDS), _ALL_KINDS, _KINDS)
    length, step_id = fields.integer("episode_length"), fields.integer("step_id")
    episode_id = fields.string("episode_id")
    checks.check_position(episode_id, step_id, length)
    action, moved_points = checks.read_action(fields, _ACTION)
    level = fields.integer("android_api_level")
    if not -(1 << 31) <= level < 1 << 31:
        raise DatasetError(f"android_api_level {level} does not fit into 32 bits")
    return EpisodeStep(
        file=file,
        record=record.number,
        offset=record.offset,
        fingerprint=record.checksum,
        episode_id=episode_id,
        subset=subset,
        step_id=step_id,
        episode_length=length,
        goal=fields.string("goal_info"),
        device_type=fields.string("device_type"),
        android_api_level=level,
        step=Step(_screen(fields), action, _elements(fields), fields.string("current_activity"), _notes(fields)),
        moved_points=moved_points,
    )


def encode_step(episode: Episode, number: int) -> bytes:
    """The Example of one step of an episode; the same step gives the same bytes.

    Raises DatasetError for a step without pixels, and for an action of a type that AITW does not have.
    """
    step = episode.steps[number]
    if not step.action.kind.is_in_aitw:
        raise DatasetError(f"episode {episode.id}, step {number}: AITW has no action {step.action.name}")
    if step.screenshot is None:
        raise DatasetError(f"episode {episode.id}, step {number} has no pixels to write")
    height, width, channels = step.screenshot.shape
    positions = np.asarray([element.box for element in step.elements], np.float32)
    return encode_example(
        {
            "android_api_level": [episode.android_api_level],
            "current_activity": [step.activity.encode()],
            "device_type": [episode.device_type.encode()],
            "episode_id": [episode.id.encode()],
            "episode_length": [len(episode)],
            "goal_info": [episode.goal.encode()],
            "image/channels": [channels],
            "image/encoded": [np.ascontiguousarray(step.screenshot, np.uint8).data.cast("B")],
            "image/height": [height],
            "image/ui_annotations_positions": positions.ravel(),
            "image/ui_annotations_text": [element.text.encode() for element in step.elements],
            "image/ui_annotations_ui_types": [element.type.encode() for element in step.elements],
            "image/width": [width],
            "results/action_type": [int(step.action.kind)],
            "results/type_action": [step.action.text.encode()],
            "results/yx_lift": np.asarray(step.action.lift_yx, np.float32),
            "results/yx_touch": np.asarray(step.action.touch_yx, np.float32),
            "step_id": [number],
            **_note_features(step.notes),
        }
    )


def _screen(fields: checks.ExampleFields) -> np.ndarray:
    height, width, channels = (fields.integer(f"image/{name}") for name in ("height", "width", "channels"))
    if channels != 3:
        raise DatasetError(f"image/channels is {channels}, expected 3 (RGB)")
    if not checks.is_screen_size(height, width):
        raise DatasetError(f"image/height {height} and image/width {width} are not the size of a phone's screen")
    buffers = fields.values("image/encoded")
    if len(buffers) != 1:
        raise DatasetError(f"image/encoded has {len(buffers)} values, expected 1")
    expected, got = height * width * channels, len(buffers[0])
    if got != expected:
        raise DatasetError(
            f"image/encoded has {got} bytes, expected {height}×{width}×{channels} = {expected} (raw pixels, not a PNG)"
        )
    return np.frombuffer(buffers[0], np.uint8).reshape(height, width, channels)


def _elements(fields: checks.ExampleFields) -> tuple[UiElement, ...]:
    key = "image/ui_annotations"
    boxes, texts, types = (
        fields.floats(f"{key}_positions"),
        fields.strings(f"{key}_text"),
        fields.strings(f"{key}_ui_types"),
    )
    return checks.elements_of(boxes, texts, types, key)


def _notes(fields: checks.ExampleFields) -> dict[str, str]:
    notes = {name: fields.string(key) for name, key in _NOTES.items() if key in fields}
    if _PLAN in fields:
        notes["plan"] = "\n".join(fields.strings(_PLAN))
    return notes


def _note_features(notes: Mapping[str, str]) -> dict[str, list]:
    features = {key: [notes[name].encode()] for name, key in _NOTES.items() if name in notes}
    if "plan" in notes:
        features[_PLAN] = [line.encode() for line in notes["plan"].split("\n") if line]
    return features
