"""One record of Android in the Wild: a `tf.train.Example` that holds one step of an episode.

Fields (google-research, `android_in_the_wild/README.md`): `episode_id`, `episode_length`, `step_id`, `goal_info`,
`device_type`, `android_api_level`, `current_activity`, `image/{height,width,channels}`, `image/encoded` (raw uint8
H·W·C), `image/ui_annotations_positions` (4 floats an element: y x h w), `image/ui_annotations_{text,ui_types}`,
`results/{action_type,type_action,yx_touch,yx_lift}`. All are required. What an action's type does not use (points of a
key press, text of a tap) is not read.
"""

from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.tf_example import Feature, encode_example, parse_example
from vlm_agent.episodes import Action, ActionKind, Episode, Step, UiElement

MAX_SIDE = 16_384
MAX_PIXELS = 1 << 25
"""Screens beyond 16,384 pixels a side or 33.5 megapixels are refused: no phone has one, damaged numbers do."""

MAX_STEPS = 10_000
"""Longer episodes are refused: AITW's longest have some dozens of steps, damaged numbers have billions."""

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


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """What one record holds: a step, and of which episode it is which step."""

    episode_id: str
    step_id: int
    episode_length: int
    goal: str
    device_type: str
    android_api_level: int
    step: Step


def parse_step(payload: bytes) -> EpisodeStep:
    """Reads one AITW `tf.train.Example`.

    The screen is a read-only view of `payload`, not a copy.

    Raises DatasetError, or ExampleError for bytes that are no Example, saying what is wrong with which field.
    """
    fields = _Fields(parse_example(payload, _KINDS))
    length, step_id = fields.integer("episode_length"), fields.integer("step_id")
    if not (1 <= length <= MAX_STEPS and 0 <= step_id < length):
        raise DatasetError(f"step_id {step_id} of episode_length {length} is not within 0 … {MAX_STEPS - 1}")
    episode_id = fields.string("episode_id")
    if not episode_id:
        raise DatasetError("episode_id is empty")
    step = Step(_screen(fields), _action(fields), _elements(fields), fields.string("current_activity"))
    return EpisodeStep(
        episode_id=episode_id,
        step_id=step_id,
        episode_length=length,
        goal=fields.string("goal_info"),
        device_type=fields.string("device_type"),
        android_api_level=fields.integer("android_api_level"),
        step=step,
    )


def encode_step(episode: Episode, number: int) -> bytes:
    """The Example of one step of an episode; the same step gives the same bytes.

    Raises DatasetError for a step without pixels.
    """
    step = episode.steps[number]
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
            "image/encoded": [memoryview(np.ascontiguousarray(step.screenshot, np.uint8)).cast("B")],
            "image/height": [height],
            "image/ui_annotations_positions": positions.ravel(),
            "image/ui_annotations_text": [element.text.encode() for element in step.elements],
            "image/ui_annotations_ui_types": [element.type.encode() for element in step.elements],
            "image/width": [width],
            **_results(step.action),
            "step_id": [number],
        }
    )


class _Fields:
    """Typed access to an Example's features; every error names the field."""

    def __init__(self, features: dict[str, Feature]):
        self._features = features
        if missing := sorted(_KINDS.keys() - features.keys()):
            raise DatasetError(f"missing field {', '.join(missing)}")

    def values(self, name: str) -> list | np.ndarray:
        kind, values = self._features[name]
        if kind not in (None, _KINDS[name]):
            raise DatasetError(f"{name} is a list of {kind}, expected {_KINDS[name]}")
        return values

    def integer(self, name: str) -> int:
        values = self.values(name)
        if len(values) != 1:
            raise DatasetError(f"{name} has {len(values)} values, expected 1")
        return values[0]

    def string(self, name: str) -> str:
        """An empty list counts as an empty string: some writers leave empty values out."""
        values = self.strings(name)
        if len(values) > 1:
            raise DatasetError(f"{name} has {len(values)} values, expected 1")
        return values[0] if values else ""

    def strings(self, name: str) -> list[str]:
        try:
            return [str(value, "utf-8") for value in self.values(name)]
        except UnicodeDecodeError as error:
            raise DatasetError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None

    def floats(self, name: str) -> list[float]:
        values = np.asarray(self.values(name), np.float32)
        if not np.isfinite(values).all():
            raise DatasetError(f"{name} holds a number that is not finite")
        return values.tolist()


def _screen(fields: _Fields) -> np.ndarray:
    height, width, channels = (fields.integer(f"image/{name}") for name in ("height", "width", "channels"))
    if channels != 3:
        raise DatasetError(f"image/channels is {channels}, expected 3 (RGB)")
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE and height * width <= MAX_PIXELS):
        raise DatasetError(f"image/height {height} and image/width {width} are no size of a phone's screen")
    buffers = fields.values("image/encoded")
    if len(buffers) != 1:
        raise DatasetError(f"image/encoded has {len(buffers)} values, expected 1")
    expected, got = height * width * channels, len(buffers[0])
    if got != expected:
        raise DatasetError(
            f"image/encoded has {got} bytes, expected {height}×{width}×{channels} = {expected} (raw pixels, not a PNG)"
        )
    return np.frombuffer(buffers[0], np.uint8).reshape(height, width, channels)


def _action(fields: _Fields) -> Action:
    number = fields.integer("results/action_type")
    try:
        kind = ActionKind(number)
    except ValueError:
        known = ", ".join(f"{kind.value} {kind.name}" for kind in ActionKind)
        raise DatasetError(f"results/action_type {number} is unknown; AITW has {known}") from None
    if kind is ActionKind.TYPE:
        return Action.type_text(fields.string("results/type_action"))
    if kind is ActionKind.DUAL_POINT:
        return Action(kind, _point(fields, "results/yx_touch"), _point(fields, "results/yx_lift"))
    return Action(kind)


def _point(fields: _Fields, name: str) -> tuple[float, float]:
    point = tuple(fields.floats(name))
    if len(point) != 2:
        raise DatasetError(f"{name} has {len(point)} values, expected 2 (y, x)")
    if not all(0.0 <= value <= 1.0 for value in point):
        raise DatasetError(f"{name} is {point}; a gesture needs (y, x) within [0, 1]")
    return point


def _elements(fields: _Fields) -> tuple[UiElement, ...]:
    numbers = fields.floats("image/ui_annotations_positions")
    texts = fields.strings("image/ui_annotations_text")
    types = fields.strings("image/ui_annotations_ui_types")
    if not (len(numbers) == 4 * len(texts) == 4 * len(types)):
        raise DatasetError(
            f"image/ui_annotations: {len(numbers)} positions, {len(texts)} texts and {len(types)} ui_types do not "
            "belong together (4 positions an element)"
        )
    boxes = zip(*[iter(numbers)] * 4, strict=True)
    return tuple(UiElement(*element) for element in zip(boxes, texts, types, strict=True))


def _results(action: Action) -> dict[str, list | np.ndarray]:
    return {
        "results/action_type": [int(action.kind)],
        "results/type_action": [action.text.encode()],
        "results/yx_lift": np.asarray(action.lift_yx, np.float32),
        "results/yx_touch": np.asarray(action.touch_yx, np.float32),
    }
