"""GUI-Odyssey (Lu et al. 2024): one JSON file per episode, screens as PNG files, and four ways to split the episodes.

    annotations/<episode>.json    screenshots/<episode>_<step>.png    splits/{random,task,device,app}_split.json

(OpenGVLab/GUI-Odyssey; the version of July 2025 has `sam2_bbox`, `low_level_instruction`, `description`, `intention`
and `context`, which are read where a step has them.) Points and boxes are thousandths of the screen, x first.
`low_level_instruction` is the instruction of a step, and its note `step`. `sam2_bbox`, the box of the element at the
gold point, is an element of the type `TARGET`, which only scorers read. A subset is a category of tasks. An episode is
read whole or not at all.

A button is a CLICK whose `info` is its name. A SCROLL with the length of a tap, or with a direction that rounding
changes, becomes one of `SWIPES`: its direction is horizontal only if |dx| > |dy|.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.datasets.formats.json_list import MAX_JSON_BYTES
from vlm_agent.datasets.sources import BadRecord, EpisodeStep, Input, Source, checks, inputs_of_episodes, main_files
from vlm_agent.episodes import TARGET, Action, Step, UiElement
from vlm_agent.errors import DatasetError
from vlm_agent.files.hashing import HashedFiles

DEFAULT_SUBSET = "odyssey"
"""For episodes whose category cannot be read; they are quarantined."""

_MAX_PNG_BYTES = 1 << 26
_MAX_EPISODE_BYTES = 1 << 28
"""Larger files, and episodes whose screens have more bytes together, are refused, to bound memory."""

_SCALE = 1000
_NOTES = ("description", "intention", "context")
_BUTTONS = {"KEY_HOME": Action.press("home"), "KEY_BACK": Action.press("back"), "KEY_APPSELECT": Action.recents()}
_WITH_POINT = {"CLICK": Action.tap, "LONG_PRESS": Action.long_press}
_TYPING = ("TEXT", "TYPE")
_ENDS = {"COMPLETE": Action.complete(), "INCOMPLETE": Action.impossible(), "IMPOSSIBLE": Action.impossible()}
_TYPES = (*_WITH_POINT, "SCROLL", *_TYPING, *_ENDS)


def is_data(path: Path) -> bool:
    """Whether the file is an episode, by its name and its folder's."""
    return path.suffix == ".json" and path.parent.name == "annotations"


def split_files(paths: Sequence[Path]) -> Mapping[str, Path]:
    """The files in the folders `splits` of the data, by name."""
    folders = [path / "splits" if path.is_dir() else path.parent.parent / "splits" for path in paths]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.json"))}


def _about(path: Path) -> tuple[str, list[Path]]:
    """The subset, and the screens; `read_steps` reports damage."""
    try:
        content = _content(path)
        names = dict.fromkeys(checks.JsonFields(step).string("screenshot") for step in _steps(content))
        screens = [_screen_path(path, name) for name in names]
        return _category(content), [screen for screen in screens if screen.is_file()]
    except DatasetError:
        return DEFAULT_SUBSET, []


def _inputs(paths: Sequence[Path]) -> list[Input]:
    """Episodes of one category together, in the order of their names."""
    groups: dict[str, dict[Path, list[Path]]] = {}
    for path in sorted(paths, key=lambda path: path.name):
        subset, screens = _about(path)
        groups.setdefault(subset, {})[path] = screens
    inputs: list[Input] = []
    for subset, group in groups.items():
        inputs += inputs_of_episodes(list(group), subset, subset, group.__getitem__)
    return inputs


def _read(input_: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    for path in main_files(input_, files, lambda path: path.suffix == ".json"):
        yield from read_steps(path, input_.subset)


SOURCE = Source(
    name="gui_odyssey",
    about="GUI-Odyssey: JSON and PNG files",
    example="annotations/0013520464500004.json",
    is_data=is_data,
    inputs=_inputs,
    read=_read,
    is_published=True,
    has_own_names=True,
    split_files=split_files,
)


def read_steps(path: Path, subset: str | None = None) -> Iterator[EpisodeStep | BadRecord]:
    """The steps of one episode's file in order, or one BadRecord. `subset`: its category if None."""
    try:
        yield from _parse_episode(path, subset)
    except DatasetError as error:
        yield BadRecord(path, 0, 0, str(error), steps=_count(path))


def _count(path: Path) -> int:
    """The number of steps of an episode that is refused, 1 if they cannot be counted."""
    with suppress(DatasetError):
        return len(_steps(_content(path)))
    return 1


def _content(path: Path) -> checks.JsonFields:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror}") from None
    if len(data) > MAX_JSON_BYTES:
        raise DatasetError(f"the file is larger than the limit of {MAX_JSON_BYTES} bytes")
    return checks.read_json(data, "the file")


def _steps(content: checks.JsonFields) -> list:
    steps = content.value("steps")
    if not isinstance(steps, list) or not 1 <= len(steps) <= checks.MAX_STEPS:
        raise DatasetError(f"steps is no list of 1 to {checks.MAX_STEPS} steps")
    if (length := content.integer("step_length")) != len(steps):
        raise DatasetError(f"steps has {len(steps)} steps, but step_length is {length}")
    return steps


def _category(content: checks.JsonFields) -> str:
    category = checks.JsonFields(content.value("task_info")).string("category")
    checks.check_subset(category, "task_info.category")
    return category


def _screen_path(path: Path, name: str) -> Path:
    return checks.beside(path.parent.parent / "screenshots" / path.name, name)


def _parse_episode(path: Path, subset: str | None) -> list[EpisodeStep]:
    content = _content(path)
    category, steps = _category(content), _steps(content)
    task, device = (checks.JsonFields(content.value(key)) for key in ("task_info", "device_info"))
    release = device.string("sdk_version") if "sdk_version" in device else ""
    read, size = [], 0
    for number, one in enumerate(steps):
        read.append(_step(one, path, f"steps {number}"))
        size += len(read[-1][2])
        if size > _MAX_EPISODE_BYTES:
            raise DatasetError(f"steps {number}: the screens up to this one have more than {_MAX_EPISODE_BYTES} bytes")
    return [
        EpisodeStep(
            file=path,
            record=0,
            offset=0,
            fingerprint=zlib.crc32(json.dumps(steps[number], sort_keys=True).encode(), zlib.crc32(png)),
            episode_id=checks.unicode_of(path.stem, "the name of the file"),
            subset=subset or category,
            step_id=number,
            episode_length=len(steps),
            goal=task.string("instruction"),
            device_type=device.string("device_name") if "device_name" in device else "",
            android_api_level=int(release) if re.fullmatch(r"[0-9]{1,4}", release) else 0,
            step=step,
            moved_points=moved,
            png=png,
        )
        for number, (step, moved, png) in enumerate(read)
    ]


def _step(content: object, path: Path, key: str) -> tuple[Step, int, bytes]:
    """The step without pixels, how many of its points were moved to the edge, and its screen."""
    try:
        fields = checks.JsonFields(content)
        screen = _screen_path(path, fields.string("screenshot"))
        if not screen.is_file():
            raise DatasetError(f"the screen {screen.name} is missing")
        if screen.stat().st_size > _MAX_PNG_BYTES:
            raise DatasetError(f"the screen {screen.name} has more than {_MAX_PNG_BYTES} bytes")
        png = screen.read_bytes()
        size = checks.check_screen(png, screen.name)
        notes = {name: fields.string(name) for name in _NOTES if name in fields}
        instruction = fields.string("low_level_instruction") if "low_level_instruction" in fields else None
        if instruction is not None:
            notes["step"] = instruction
        action, moved = _action(fields)
        step = Step(None, action, notes=notes, instruction=instruction, stored_size=size, tree=_target(fields))
        return step, moved, png
    except DatasetError as error:
        raise DatasetError(f"{key}: {error}") from None


def _action(fields: checks.JsonFields) -> tuple[Action, int]:
    """The action, and how many of its points were moved to the edge of the screen."""
    kind, info = fields.string("action"), fields.value("info")
    if kind in _WITH_POINT and isinstance(info, str):
        if info not in _BUTTONS:
            raise DatasetError(f"the button {info[:50]!r} is unknown; expected one of {', '.join(_BUTTONS)}")
        return _BUTTONS[info], 0
    if kind in _WITH_POINT:
        (point,), moved = _points(info, 1)
        return _WITH_POINT[kind](*point), moved
    if kind == "SCROLL":
        return _scroll(info)
    if kind in _TYPING:
        return Action.type_text(fields.string("info")), 0
    if kind not in _ENDS:
        raise DatasetError(f"action {kind[:50]!r} is unknown; expected one of {', '.join(_TYPES)}")
    return _ENDS[kind], 0


def _points(info: object, count: int) -> tuple[list[tuple[float, float]], int]:
    """The points (y, x) of `info`, a list of `count` points (x, y) in thousandths; how many were moved to the edge."""
    if not isinstance(info, list) or len(info) != count:
        raise DatasetError(f"info is {str(info)[:80]}, expected {count} point(s) [x, y]")
    pairs = []
    for point in info:
        values = checks.numbers_of(point, "info")
        pairs.append(checks.point_of([value / _SCALE for value in values[::-1]], f"the point {str(point)[:80]}"))
    return [point for point, _ in pairs], sum(is_moved for _, is_moved in pairs)


def _scroll(info: object) -> tuple[Action, int]:
    points, moved = _points(info, 2)
    (y, x), (to_y, to_x) = ([round(value * _SCALE) for value in point] for point in points)
    direction = ("right" if to_x > x else "left") if abs(to_x - x) > abs(to_y - y) else ("down" if to_y > y else "up")
    action = Action.swipe(points[0], points[1])
    return (action if action.direction == direction else Action.swipe(*SWIPES[direction])), moved


def _target(fields: checks.JsonFields) -> tuple[UiElement, ...] | None:
    values = fields.floats("sam2_bbox") if "sam2_bbox" in fields else []
    if not values:
        return None
    if len(values) != 4:
        raise DatasetError(f"sam2_bbox has {len(values)} values, expected 4 (x1, y1, x2, y2) or none")
    left, top, right, bottom = (value / _SCALE for value in values)
    return (UiElement((top, left, bottom - top, right - left), "", TARGET),)
