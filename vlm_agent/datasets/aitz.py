"""Android in the Zoo: one JSON file an episode, a list of its steps in order, and the screens as PNGs beside it.

    <split>/<subset>/<SUBSET-episode>/<SUBSET-episode>.json

(IMNearth/CoAT.) A step has what a record of AITW has, under other names, and the four texts of Chain-of-Action-Thought.
`ui_positions`, `ui_text`, `ui_types`, `result_touch_yx` and `result_lift_yx` are JSON inside strings; boxes are in
pixels. All keys are required but those of the four texts; what an action's type does not use is not read. AitZ does
not tell which phone, Android and activity it was.
"""

import json
import re
import reprlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vlm_agent.datasets import DatasetError, step_checks
from vlm_agent.datasets.episode_steps import BadRecord, EpisodeStep
from vlm_agent.datasets.json_list import JsonItem, read_items
from vlm_agent.datasets.screen_files import beside, read_screen
from vlm_agent.datasets.splits import LABELS
from vlm_agent.episodes import SUBSETS, Action, ActionKind, CoatTexts, Step, UiElement

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
_MAX_NUMBER = float(np.finfo(np.float32).max)


def is_data(path: Path) -> bool:
    """Whether the file is an episode, by its name."""
    return _NAME.fullmatch(path.name) is not None


def subset_of(path: Path) -> str:
    """The subset that the file's name begins with; DatasetError for a name that is none of AitZ's."""
    if match := _NAME.fullmatch(path.name):
        return match[1].lower()
    raise DatasetError(
        f"{path} is not named as an episode of AitZ is: <SUBSET>-<episode>.json, where the subset is one of "
        f"{', '.join(subset.upper() for subset in SUBSETS)}"
    )


def split_of(path: Path) -> str | None:
    """train, validation or test where the file lies in folders as published (`val` is validation), None elsewhere."""
    folder = path.absolute().parent
    if (folder.name, folder.parent.name) != (path.stem, subset_of(path)):
        return None
    return LABELS.get(folder.parent.parent.name)


def read_steps(path: Path) -> Iterator[EpisodeStep | BadRecord]:
    """The steps of one episode's file in order, one screen in memory at a time; what cannot be used is a BadRecord.

    Where the file stops being a list of JSON, the last BadRecord tells so. Points and boxes are float32 values, boxes
    in screen fractions by the size of the screen's file; `offset` is where the step begins in the JSON file, in bytes.

    Raises DatasetError when `path` is no file or not named as AitZ's are.
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
    fields = _Fields(item.value)
    episode_id, step_id = fields.string("episode_id"), fields.integer("step_id")
    length = fields.integer("episode_length")
    step_checks.check_place(episode_id, step_id, length)
    action, coat = _action(fields), _coat(fields)
    screen = read_screen(beside(path, fields.string("image_path")))
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
        device_type="",
        android_api_level=0,
        step=Step(screen, action, _elements(fields, screen.shape[:2]), coat=coat),
        split=split,
    )


class _Fields:
    """Typed access to a step's keys; every error names the key."""

    def __init__(self, value: object):
        if not isinstance(value, dict):
            raise DatasetError(f"the step is {reprlib.repr(value)}, expected an object with keys")
        self._values = value
        if missing := [key for key in _REQUIRED if key not in value]:
            raise DatasetError(f"missing key {', '.join(missing)}")

    def is_given(self, key: str) -> bool:
        return self._values.get(key) is not None

    def string(self, key: str) -> str:
        return _string(self._values[key], key)

    def integer(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int or value.bit_length() > 63:
            raise DatasetError(f"{key} is {reprlib.repr(value)}, expected a whole number")
        return value

    def inner_list(self, key: str) -> list:
        """The list in the string that the key holds."""
        text = _unicode(self._values[key], key)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{key} is {reprlib.repr(text)}, expected a list as JSON in a string: {error}") from None
        if not isinstance(value, list):
            raise DatasetError(f"{key} holds {reprlib.repr(value)}, expected a list")
        return value

    def strings(self, key: str) -> list[str]:
        return [_string(value, key) for value in self.inner_list(key)]

    def point(self, key: str) -> list[float]:
        return np.asarray(_numbers(self.inner_list(key), key), np.float32).tolist()


def _string(value: object, key: str) -> str:
    text = _unicode(value, key)
    step_checks.check_text(len(text.encode("utf-8")), key)
    return text


def _unicode(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise DatasetError(f"{key} holds {reprlib.repr(value)}, expected a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatasetError(f"{key} is not valid Unicode at character {error.start}: {error.reason}") from None
    return value


def _numbers(values: list, key: str) -> list[int | float]:
    for value in values:
        if type(value) not in (int, float) or not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise DatasetError(f"{key} holds {reprlib.repr(value)}, expected a finite number")
    return values


def _action(fields: _Fields) -> Action:
    kind = step_checks.action_kind(fields.integer("result_action_type"), "result_action_type")
    if kind is ActionKind.TYPE:
        return Action.type_text(fields.string("result_action_text"))
    if kind is ActionKind.DUAL_POINT:
        keys = ("result_touch_yx", "result_lift_yx")
        return step_checks.gesture(*map(fields.point, keys), keys)
    return Action(kind)


def _elements(fields: _Fields, size: tuple[int, int]) -> tuple[UiElement, ...]:
    """`size` is the screen's (height, width) in pixels, which boxes are divided by in float64, then rounded."""
    boxes = fields.inner_list("ui_positions")
    for box in boxes:
        if not isinstance(box, list) or len(box) != 4:
            raise DatasetError(f"ui_positions holds {reprlib.repr(box)}, expected boxes of four numbers (y, x, h, w)")
        _numbers(box, "ui_positions")
    fractions = (np.asarray(boxes, np.float64).reshape(-1, 4) / np.tile(size, 2)).astype(np.float32)
    return step_checks.elements_of(
        fractions.ravel().tolist(), fields.strings("ui_text"), fields.strings("ui_types"), "ui_positions"
    )


def _coat(fields: _Fields) -> CoatTexts | None:
    keys = step_checks.COAT_KEYS.values()
    return step_checks.coat_texts({key: fields.string(key) for key in keys if fields.is_given(key)})
