"""Widgets in the pixels of a screen: `read_widgets(name)` returns a detector of `DETECTORS`.

Every detector returns widgets ordered from top to bottom and from left to right; it accepts pictures of any size and
returns an empty tuple for one without widgets. Training is `shipped_weights.widgets`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from vlm_agent.errors import UserError
from vlm_agent.screens.seen import WidgetDetector
from vlm_agent.screens.widgets.edges import Edges


def _edges(argument: str) -> WidgetDetector:
    if argument:
        raise UserError(f"widget detector 'edges' takes no argument, and got {argument!r}")
    return Edges()


def _phone_widgets_tiny(argument: str) -> WidgetDetector:
    from vlm_agent.screens.widgets.tiny import PhoneWidgetsTiny  # imports torch

    return PhoneWidgetsTiny.load(Path(argument) if argument else None)


def _onnx(argument: str) -> WidgetDetector:
    from vlm_agent.screens.widgets.onnx_file import OnnxFile

    if not argument:
        raise UserError("widget detector 'onnx' needs a file: onnx:FILE")
    return OnnxFile.load(Path(argument))


DETECTORS: Mapping[str, Callable[[str], WidgetDetector]] = {
    "phone_widgets_tiny": _phone_widgets_tiny,
    "onnx": _onnx,
    "edges": _edges,
}
"""Name → what builds the detector from the text after `NAME:`, empty without one.

`phone_widgets_tiny` is the shipped one, `phone_widgets_tiny:FILE` one that was trained here, `onnx:FILE` any other.
"""


def read_widgets(name: str) -> WidgetDetector:
    """The detector `name`, or `NAME:ARGUMENT`.

    Raises UserError for a name that is not in `DETECTORS`, CheckpointError for a file that is not such a detector.
    """
    kind, _, argument = name.partition(":")
    if kind not in DETECTORS:
        raise UserError(f"widget detector {name!r} is unknown; choose one of {', '.join(DETECTORS)}")
    return DETECTORS[kind](argument)
