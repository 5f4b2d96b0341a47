"""`onnx:FILE`: a detector in YOLO's exported layouts, run by onnxruntime on the CPU.

Input: one tensor (1, 3, H, W), float32 or float16, RGB from 0 to 1; the screen is reduced to fit and padded with grey
(114) on all sides, as YOLO's exporters expect. Sides without a fixed length are `FREE_SIDE`. Output: one of `LAYOUTS`.

Names of classes are in the file's metadata (`names`, as Ultralytics writes it) or in a YAML file beside it, FILE with
the ending .yaml, which comes first:

    names: [Button, Icon, Text]          # or {0: Button, …}
    kinds: {Icon: button, Text: null}    # names that are not a kind of WIDGET_KINDS; null drops the class
    layout: yolo8                        # only where the shape of the output leaves a choice
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.errors import CheckpointError
from vlm_agent.files.installation import install_line
from vlm_agent.recipe.yaml_file import read_mapping, read_value
from vlm_agent.screens.widgets.boxes import fraction_box, in_reading_order, suppressed

LAYOUTS = {
    "yolo8": "(1, 4 + classes, N): centre x, centre y, width, height, a score per class (YOLOv8 and later)",
    "yolo5": "(1, N, 5 + classes): the same with the score of any object before the classes (YOLOv5, YOLOv7)",
    "boxes": "(1, N, 6): left, top, right, bottom, score, class (exported with suppression, YOLOv10)",
}
"""Lengths are in pixels of the input, scores from 0 to 1."""

FREE_SIDE = 640
_GREY = 114
_KEYS = ("names", "kinds", "layout")


@dataclass(frozen=True)
class OnnxFile:
    """`kinds`: that of each class, None for one that is dropped. `score`: the least confidence. `overlap`: IoU above
    which the weaker of two boxes of one kind is dropped."""

    path: Path
    session: Any
    layout: str
    kinds: tuple[str | None, ...]
    size: tuple[int, int]
    score: float = 0.25
    overlap: float = 0.5

    @classmethod
    def load(cls, path: Path) -> "OnnxFile":
        """Raises CheckpointError, one line that names the file, where it is not such a detector."""
        session = _open(path)
        described = _described(path, session)
        names = _names(path, described.get("names"))
        kinds = _kinds(path, names, described.get("kinds"))
        return cls(
            path, session, _layout(path, session, len(names), described.get("layout")), kinds, _size(path, session)
        )

    def detect(self, pixels: np.ndarray) -> tuple[Widget, ...]:
        """Raises CheckpointError where the output is not what its layout says."""
        values, scale, (top, left) = _letterboxed(pixels, self.size)
        boxes, scores, classes = self._boxes(self._output(values))
        keep = np.array([self.kinds[number] is not None for number in classes], bool) & (scores >= self.score)
        boxes, scores, classes = (boxes[keep] - (top, left, top, left)) / scale, scores[keep], classes[keep]
        kinds = np.array([WIDGET_KINDS.index(str(self.kinds[number])) for number in classes], int)
        return in_reading_order(
            Widget(WIDGET_KINDS[kinds[index]], box, None, float(scores[index]))
            for index in suppressed(boxes, scores, kinds, self.overlap)
            if min((box := fraction_box(boxes[index], *pixels.shape[:2]))[2:]) > 0
        )

    def _output(self, values: np.ndarray) -> np.ndarray:
        """(N, columns) float64: one row per box."""
        wanted = self.session.get_inputs()[0]
        try:
            output = self.session.run(None, {wanted.name: values.astype(_TYPES[wanted.type])})[0]
        except Exception as error:  # noqa: BLE001 (onnxruntime's errors share no base class)
            raise CheckpointError(f"{self.path} cannot be run: {_first_line(error)}") from None
        rows = np.asarray(output, np.float64)
        columns = {"yolo8": 4, "yolo5": 5, "boxes": 6}[self.layout] + (len(self.kinds) if self.layout != "boxes" else 0)
        axis = 1 if self.layout == "yolo8" else 2
        if rows.ndim != 3 or rows.shape[0] != 1 or rows.shape[axis] != columns:
            raise CheckpointError(
                f"{self.path} returned {rows.shape} instead of {LAYOUTS[self.layout]} for {len(self.kinds)} classes"
            )
        if not np.isfinite(rows).all():
            raise CheckpointError(f"{self.path} returned boxes that are not numbers (NaN or infinite)")
        return rows[0].T if self.layout == "yolo8" else rows[0]

    def _boxes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N, 4) corners (y0, x0, y1, x1) in pixels of the input, (N,) scores, (N,) classes."""
        if self.layout == "boxes":
            boxes, scores, classes = rows[:, [1, 0, 3, 2]], rows[:, 4], rows[:, 5]
            if ((classes != np.floor(classes)) | (classes < 0) | (classes >= len(self.kinds))).any():
                raise CheckpointError(f"{self.path} returned classes that are not 0 to {len(self.kinds) - 1}")
            classes = classes.astype(int)
        else:
            x, y, wide, high = rows[:, :4].T
            boxes = np.stack([y - high / 2, x - wide / 2, y + high / 2, x + wide / 2], 1)
            of_classes = rows[:, 4:] if self.layout == "yolo8" else rows[:, 5:] * rows[:, 4:5]
            classes = of_classes.argmax(1)
            scores = of_classes.max(1)
        if ((scores < -1e-3) | (scores > 1 + 1e-3)).any():
            raise CheckpointError(f"{self.path} returned scores outside 0 to 1; export it with the sigmoid")
        return boxes, np.clip(scores, 0, 1), classes


_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def _open(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise CheckpointError(f"onnx:{path} needs onnxruntime ({error}); {install_line('screens')}") from None
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; write onnx:FILE with the path of an ONNX file")
    try:
        return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors share no base class)
        raise CheckpointError(f"{path} cannot be read as ONNX: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def _described(path: Path, session: Any) -> Mapping[str, Any]:
    """What the YAML file beside the detector says, and the names in its own metadata where that has none."""
    beside = path.with_suffix(".yaml")
    content = read_mapping(beside, CheckpointError) if beside.is_file() else {}
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise CheckpointError(f"{beside}: unknown key {unknown[0]}; the keys are {', '.join(_KEYS)}")
    metadata = session.get_modelmeta().custom_metadata_map
    if "names" in content or "names" not in metadata:
        return content
    try:
        return {"names": read_value(metadata["names"]), **content}
    except yaml.YAMLError:
        raise CheckpointError(f"{path} has names of classes in its metadata that cannot be read") from None


def _names(path: Path, names: Any) -> list[str]:
    if names is None:
        beside = path.with_suffix(".yaml")
        raise CheckpointError(
            f"{path} has no names of classes in its metadata; write them to {beside} (names: [Button, …])"
        )
    if isinstance(names, Mapping):
        if sorted(names, key=str) != sorted(range(len(names)), key=str):
            raise CheckpointError(f"{path}: the names of classes must be numbered from 0 to {len(names) - 1}")
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{path}: the names of classes must be a list of texts, or texts by number")
    return names


def _kinds(path: Path, names: list[str], mapped: Any) -> tuple[str | None, ...]:
    """The kind of each class. "Check-Box", "checkbox" and "CheckBox" are `check_box`."""
    mapped = {} if mapped is None else mapped
    if not isinstance(mapped, Mapping) or not all(kind is None or kind in WIDGET_KINDS for kind in mapped.values()):
        raise CheckpointError(f"{path}: kinds must map names of classes to null or one of {', '.join(WIDGET_KINDS)}")
    known = {_letters(kind): kind for kind in WIDGET_KINDS}
    unknown = [name for name in names if name not in mapped and _letters(name) not in known]
    if unknown:
        raise CheckpointError(
            f"{path} has a class {unknown[0]!r} that is no kind of widget; name its kind, or null, under kinds in "
            f"{path.with_suffix('.yaml')} ({', '.join(WIDGET_KINDS)})"
        )
    return tuple(mapped[name] if name in mapped else known[_letters(name)] for name in names)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _layout(path: Path, session: Any, classes: int, layout: Any) -> str:
    """The layout that the YAML file names, or the only one that the declared shape allows."""
    if layout is not None:
        if not isinstance(layout, str) or layout not in LAYOUTS:
            raise CheckpointError(f"{path}: layout {layout!r} is unknown; choose one of {', '.join(LAYOUTS)}")
        return layout
    shape = list(session.get_outputs()[0].shape)
    shape = shape if len(shape) == 3 else [None] * 3
    fits = {"yolo8": shape[1] == 4 + classes, "yolo5": shape[2] == 5 + classes, "boxes": shape[2] == 6}
    found = [name for name in LAYOUTS if fits[name]]
    if len(found) != 1:
        reason = f"{' or '.join(found)}" if found else "no known layout"
        raise CheckpointError(
            f"{path} declares an output of shape {session.get_outputs()[0].shape}, {reason} with {classes} classes; "
            f"write layout to {path.with_suffix('.yaml')} ({', '.join(LAYOUTS)})"
        )
    return found[0]


def _size(path: Path, session: Any) -> tuple[int, int]:
    """(height, width) of the input."""
    inputs = session.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else []
    is_picture = len(shape) == 4 and shape[1] == 3 and inputs[0].type in _TYPES
    if not is_picture or not (shape[0] in (1, None) or isinstance(shape[0], str)):  # the name of a free side
        wanted = [(one.type, one.shape) for one in inputs]
        raise CheckpointError(f"{path} takes {wanted}; a detector takes one float tensor (1, 3, height, width)")
    return tuple(side if isinstance(side, int) else FREE_SIDE for side in shape[2:])  # type: ignore[return-value]


def _letterboxed(pixels: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, float, tuple[int, int]]:
    """(1, 3, H, W) float32 from 0 to 1, pixels of it per pixel of the screen, and (top, left) of the screen in it."""
    high, wide = pixels.shape[:2]
    scale = min(size[0] / high, size[1] / wide)
    within = (max(1, round(wide * scale)), max(1, round(high * scale)))
    small = np.array(Image.fromarray(pixels).resize(within, Image.Resampling.BILINEAR))
    top, left = (size[0] - within[1]) // 2, (size[1] - within[0]) // 2
    values = np.full((*size, 3), _GREY, np.uint8)
    values[top : top + within[1], left : left + within[0]] = small
    return values.transpose(2, 0, 1)[None].astype(np.float32) / 255, scale, (top, left)
