"""AndroidControl (Li et al. 2024): gzip TFRecords, one episode per record.

A record is a `tf.train.Example` with n actions and n + 1 screens (google-research, `android_control/README.md`):
`episode_id`, `goal`, `screenshots` (PNG), `accessibility_trees` (`formats/accessibility.py`), `screenshot_widths`,
`screenshot_heights`, `actions` (JSON, points in pixels), `step_instructions`. The last screen has no action: it shows
the finished task, so it becomes a step `STATUS_TASK_COMPLETE` with an empty instruction. A record with as many screens
as actions has no such step.

A `scroll` has a direction, that of the content, and no point: the finger of `SWIPES` moves the opposite way. The
instruction of a step is also its note `step`, which sentences can have. An episode is read whole or not at all.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.datasets.formats.accessibility import Node, read_forest
from vlm_agent.datasets.formats.tf_example import ExampleError, parse_example
from vlm_agent.datasets.formats.tfrecord import Record, read_records
from vlm_agent.datasets.sources import BadRecord, EpisodeStep, Input, Source, checks
from vlm_agent.episodes import HIDDEN, WINDOW, Action, Step, UiElement, shown_elements
from vlm_agent.errors import DatasetError
from vlm_agent.files.hashing import HashedFile, HashedFiles
from vlm_agent.geometry import OPPOSITE

SUBSET = "android_control"

MAX_NODES = 1 << 17
"""Episodes with more windows and nodes are refused, to bound memory."""

_KINDS = {
    "accessibility_trees": "bytes",
    "actions": "bytes",
    "episode_id": "int64",
    "goal": "bytes",
    "screenshot_heights": "int64",
    "screenshot_widths": "int64",
    "screenshots": "bytes",
    "step_instructions": "bytes",
}
_WITH_POINT = {"click": Action.tap, "long_press": Action.long_press}
_WITH_TEXT = {"input_text": ("text", Action.type_text), "open_app": ("app_name", Action.open_app)}
_PLAIN = {"navigate_back": Action.press("back"), "navigate_home": Action.press("home"), "wait": Action.wait()}
_TYPES = (*_WITH_POINT, "scroll", *_WITH_TEXT, *_PLAIN)


def is_data(path: Path) -> bool:
    """Whether the file's name matches those of AndroidControl's files."""
    return re.fullmatch(r"android_control-\d+-of-\d+(\.gz)?", path.name) is not None


def _inputs(paths: Sequence[Path]) -> list[Input]:
    """One input per file."""
    return [Input.of(path.name, SUBSET, [path]) for path in paths]


def _read(input_: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    (path,) = input_.files
    with files.open(path) as file:
        yield from read_steps(path, file)


SOURCE = Source(
    name="androidcontrol",
    about="AndroidControl: gzip TFRecords",
    example="android_control-00000-of-00020",
    is_data=is_data,
    inputs=_inputs,
    read=_read,
    is_published=True,
    has_own_names=True,
)


def read_steps(path: Path, file: BinaryIO | HashedFile | None = None) -> Iterator[EpisodeStep | BadRecord]:
    """The steps of a file in order, and a BadRecord for each unusable episode.

    Points are divided by the size of the screen in float64. `file` is read instead of opening `path`; it must be
    seekable and at its beginning. Without it, raises DatasetError if `path` is a folder or does not exist.
    """
    for record in read_records(path, file):
        try:
            yield from parse_episode(record, path)
        except (DatasetError, ExampleError) as error:
            yield BadRecord(path, record.number, record.offset, str(error), record.ends_file, _count(record))


def _count(record: Record) -> int:
    """The number of steps of a record that is refused: that of its screens, 1 if they cannot be counted."""
    with suppress(ExampleError):
        if found := parse_example(record.payload or b"", ("screenshots",)):
            return max(1, len(found["screenshots"].values))
    return 1


def parse_episode(record: Record, path: Path) -> list[EpisodeStep]:
    """The steps of one record. Their screens are views of the record's payload.

    Raises DatasetError or ExampleError with the feature, and the number of its value or the counts that differ.
    """
    if record.payload is None:
        raise DatasetError(str(record.error))
    fields = checks.ExampleFields(parse_example(record.payload, _KINDS), _KINDS, _KINDS)
    texts = fields.strings("actions")
    screens = fields.values("screenshots")
    sizes = _sizes(fields, texts)
    instructions = fields.strings("step_instructions")
    pairs = [_action(text, f"actions {number}", sizes[number]) for number, text in enumerate(texts)]
    if len(sizes) > len(texts):
        pairs.append((Action.complete(), False))
        instructions.append("")
    trees = _trees(fields, sizes)
    for number, (screen, size) in enumerate(zip(screens, sizes, strict=True)):
        if (found := checks.check_screen(screen, f"screenshots {number}")) != size:
            raise DatasetError(
                f"screenshots {number} has {found[0]}×{found[1]} pixels, but screenshot_heights and screenshot_widths "
                f"say {size[0]}×{size[1]}"
            )
    episode_id, goal = str(fields.integer("episode_id")), fields.string("goal")
    return [
        EpisodeStep(
            file=path,
            record=record.number,
            offset=record.offset,
            fingerprint=record.checksum,
            episode_id=episode_id,
            subset=SUBSET,
            step_id=number,
            episode_length=len(sizes),
            goal=goal,
            step=Step(
                None,
                action,
                shown_elements(trees[number]),
                notes={"step": instructions[number]},
                instruction=instructions[number],
                stored_size=size,
                tree=trees[number],
            ),
            moved_points=int(is_moved),
            png=screens[number],
        )
        for number, ((action, is_moved), size) in enumerate(zip(pairs, sizes, strict=True))
    ]


def _sizes(fields: checks.ExampleFields, actions: Sequence[str]) -> list[tuple[int, int]]:
    """The (height, width) of each screen, after a comparison of all counts."""
    count, screens = len(actions), len(fields.values("screenshots"))
    if not 1 <= count < checks.MAX_STEPS:
        raise DatasetError(f"actions has {count} values, expected 1 to {checks.MAX_STEPS - 1}")
    if screens not in (count, count + 1):
        raise DatasetError(f"screenshots has {screens} values and actions {count}; expected {count + 1} screens")
    expected = dict.fromkeys(("accessibility_trees", "screenshot_heights", "screenshot_widths"), screens)
    for name, wanted in (expected | {"step_instructions": count}).items():
        if (found := len(fields.values(name))) != wanted:
            raise DatasetError(f"{name} has {found} values, expected {wanted}: {count} actions, {screens} screens")
    sizes = list(zip(fields.values("screenshot_heights"), fields.values("screenshot_widths"), strict=True))
    for number, (height, width) in enumerate(sizes):
        if not checks.is_screen_size(height, width):
            raise DatasetError(f"screenshot_heights and screenshot_widths {number} are {height} and {width}, no screen")
    return sizes


def _action(text: str, key: str, size: tuple[int, int]) -> tuple[Action, bool]:
    """The action, and whether its point was moved to the edge of the screen."""
    try:
        return _read_action(checks.read_json(text.encode(), "the action"), size)
    except DatasetError as error:
        raise DatasetError(f"{key}: {error}") from None


def _read_action(fields: checks.JsonFields, size: tuple[int, int]) -> tuple[Action, bool]:
    kind = fields.string("action_type")
    if make := _WITH_POINT.get(kind):
        x, y = checks.numbers_of([fields.value("x"), fields.value("y")], "the point (x, y)")
        height, width = size
        where = f"the point (x, y) = ({x:g}, {y:g}) on {width}×{height} pixels"
        point, is_moved = checks.point_of([y / height, x / width], where)
        return make(*point), is_moved
    if kind == "scroll":
        direction = fields.string("direction")
        if direction not in OPPOSITE:
            raise DatasetError(f"direction {direction[:50]!r} is unknown; expected one of {', '.join(OPPOSITE)}")
        return Action.swipe(*SWIPES[OPPOSITE[direction]]), False
    if kind in _WITH_TEXT:
        name, make_text = _WITH_TEXT[kind]
        return make_text(fields.string(name)), False
    if kind not in _PLAIN:
        raise DatasetError(f"action_type {kind[:50]!r} is unknown; expected one of {', '.join(_TYPES)}")
    return _PLAIN[kind], False


def _trees(fields: checks.ExampleFields, sizes: Sequence[tuple[int, int]]) -> list[tuple[UiElement, ...]]:
    found: list[tuple[UiElement, ...]] = []
    count = 0
    for number, (data, size) in enumerate(zip(fields.values("accessibility_trees"), sizes, strict=True)):
        try:
            nodes = read_forest(data)
        except ExampleError as error:
            raise DatasetError(f"accessibility_trees {number}: {error}") from None
        count += len(nodes)
        if count > MAX_NODES:
            raise DatasetError(f"accessibility_trees {number}: the episode has more than {MAX_NODES} windows and nodes")
        found.append(tuple(_element(node, *size) for node in nodes))
    return found


def _element(node: Node, height: int, width: int) -> UiElement:
    """The text of a node is its text, else its description, else its hint."""
    left, top, right, bottom = node.box
    box = (top / height, left / width, (bottom - top) / height, (right - left) / width)
    text = node.text or node.description or node.hint
    if node.is_window or not node.is_visible:
        return UiElement(box, text, WINDOW if node.is_window else HIDDEN)
    return UiElement(box, text, "TEXT" if text else f"ICON_{node.class_name.rpartition('.')[2].upper()}")
