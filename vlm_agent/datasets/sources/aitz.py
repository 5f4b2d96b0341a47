"""Android in the Zoo: one JSON file per episode, a list of its steps in order, with the screens as PNGs next to it.

    <split>/<subset>/<SUBSET-episode>/<SUBSET-episode>.json

(IMNearth/CoAT.) A step has the fields of an AITW record under other names, and the four texts of
Chain-of-Action-Thought. `ui_positions`, `ui_text`, `ui_types`, `result_touch_yx` and `result_lift_yx` are JSON inside
strings; boxes are in pixels. All keys but those of the four texts are required. Keys that the action's type does not
use are not read. AitZ does not record the phone, the Android version and the activity.
"""

import json
import re
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from vlm_agent.datasets.formats.json_list import JsonItem, read_items
from vlm_agent.datasets.sources import (
    LABELS,
    BadRecord,
    EpisodeStep,
    Input,
    Source,
    checks,
    inputs_of_episodes,
    main_files,
)
from vlm_agent.episodes import Step, UiElement
from vlm_agent.errors import DatasetError
from vlm_agent.files.hashing import HashedFiles

SUBSETS = ("general", "google_apps", "install", "single", "web_shopping")

_NAME = re.compile(rf"({'|'.join(subset.upper() for subset in SUBSETS)})-[\w-]+\.json")

_REQUIRED = (
    "episode_id",
    "episode_length",
    "image_path",
    "instruction",
    "result_action_text",
    "result_action_type",
    "result_lift_yx",
    "result_touch_yx",
    "step_id",
    "ui_positions",
    "ui_text",
    "ui_types",
)
_ACTION = checks.ActionKeys("result_action_type", "result_action_text", "result_touch_yx", "result_lift_yx")


def is_data(path: Path) -> bool:
    """Whether the file is an episode, by its name."""
    return _NAME.fullmatch(path.name) is not None


def subset_of(path: Path) -> str:
    """The subset at the beginning of the file's name. Raises DatasetError for names that AitZ does not use."""
    if match := _NAME.fullmatch(path.name):
        return match[1].lower()
    raise DatasetError(
        f"{path} does not have the name of an AitZ episode: <SUBSET>-<episode>.json, where the subset is one of "
        f"{', '.join(subset.upper() for subset in SUBSETS)}"
    )


def split_of(path: Path) -> str | None:
    """train, validation or test if the file lies in folders as published (`val` is validation), None elsewhere."""
    folder = path.absolute().parent
    if (folder.name, folder.parent.name) != (path.stem, subset_of(path)):
        return None
    return LABELS.get(folder.parent.parent.name)


def _inputs(paths: Sequence[Path]) -> list[Input]:
    """Episodes of one split and subset together, in the order of their names."""
    groups: dict[tuple[str | None, str], list[Path]] = {}
    for path in paths:
        groups.setdefault((split_of(path), subset_of(path)), []).append(path)
    inputs: list[Input] = []
    for (split, subset), group in groups.items():
        group.sort(key=lambda path: path.name)
        stem = subset if split is None else f"{split}-{subset}"
        inputs += inputs_of_episodes(group, stem, subset, lambda path: sorted(path.parent.glob(f"{path.stem}_*.png")))
    return inputs


def _read(input_: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    for path in main_files(input_, files, is_data):
        yield from read_steps(path)


SOURCE = Source(
    name="aitz",
    about="Android in the Zoo: JSON and PNG files",
    example="GOOGLE_APPS-523638528775825151.json",
    is_data=is_data,
    inputs=_inputs,
    read=_read,
    subsets=SUBSETS,
    is_published=True,
)


def read_steps(path: Path) -> Iterator[EpisodeStep | BadRecord]:
    """The steps of one episode's file in order, one screen in memory at a time, and a BadRecord for each unusable one.

    If the file stops being a JSON list, the last item is a BadRecord with the error. Points and boxes are float32
    values, boxes in fractions of the size of the screen's file; `offset` is the byte at which the step begins in the
    JSON file.

    Raises DatasetError if `path` is not a file or does not have the name of an AitZ episode.
    """
    subset, split = subset_of(path), split_of(path)
    for item in read_items(path):
        if item.error is not None:
            yield BadRecord(path, item.number, item.offset, item.error, ends_file=True)
            continue
        try:
            yield _parse_step(item, path, subset, split)
        except DatasetError as error:
            yield BadRecord(path, item.number, item.offset, str(error))


def _parse_step(item: JsonItem, path: Path, subset: str, split: str | None) -> EpisodeStep:
    fields = _Fields(item.value, _REQUIRED)
    episode_id, step_id = fields.string("episode_id"), fields.integer("step_id")
    length = fields.integer("episode_length")
    checks.check_position(episode_id, step_id, length)
    action, moved_points = checks.read_action(fields, _ACTION)
    notes = {name: fields.string(key) for name, key in checks.NOTE_KEYS.items() if key in fields}
    screen = checks.read_screen(checks.beside(path, fields.string("image_path")))
    return EpisodeStep(
        file=path,
        record=item.number,
        offset=item.offset,
        fingerprint=item.checksum,
        episode_id=episode_id,
        subset=subset,
        step_id=step_id,
        episode_length=length,
        goal=fields.string("instruction"),
        step=Step(screen, action, _elements(fields, screen.shape[:2]), notes=notes),
        split=split,
        moved_points=moved_points,
    )


class _Fields(checks.JsonFields):
    """A step's keys. Lists are JSON inside strings."""

    def inner_list(self, key: str) -> list:
        """The list in the string under the key."""
        text = checks.unicode_of(self.value(key), key)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{key} is {reprlib.repr(text)}, expected a list as JSON in a string: {error}") from None
        if not isinstance(value, list):
            raise DatasetError(f"{key} holds {reprlib.repr(value)}, expected a list")
        return value

    def strings(self, key: str) -> list[str]:
        return [checks.text_of(value, key) for value in self.inner_list(key)]

    def floats(self, key: str) -> list[float]:
        """Rounded to float32, the precision of AITW's points."""
        return np.asarray(checks.numbers_of(self.inner_list(key), key), np.float32).tolist()


def _elements(fields: _Fields, size: tuple[int, ...]) -> tuple[UiElement, ...]:
    """`size` is the screen's (height, width) in pixels. Boxes are divided by it in float64, then rounded to float32."""
    boxes = fields.inner_list("ui_positions")
    for box in boxes:
        if not isinstance(box, list) or len(box) != 4:
            raise DatasetError(f"ui_positions holds {reprlib.repr(box)}, expected boxes of four numbers (y, x, h, w)")
        checks.numbers_of(box, "ui_positions")
    fractions = (np.asarray(boxes, np.float64).reshape(-1, 4) / np.tile(size, 2)).astype(np.float32)
    return checks.elements_of(
        fractions.ravel().tolist(), fields.strings("ui_text"), fields.strings("ui_types"), "ui_positions"
    )
