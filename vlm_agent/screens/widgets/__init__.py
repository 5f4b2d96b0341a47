"""Widgets in the pixels of a screen: `read_widgets(name)` returns a detector of `DETECTORS`.

Every detector returns widgets ordered from top to bottom and from left to right; it accepts pictures of any size and
returns an empty tuple for one without widgets.
"""

from collections.abc import Callable, Mapping

from vlm_agent.errors import UserError
from vlm_agent.screens.seen import WidgetDetector
from vlm_agent.screens.widgets.edges import Edges


def _edges(argument: str) -> WidgetDetector:
    _refuse_argument("edges", argument)
    return Edges()


DETECTORS: Mapping[str, Callable[[str], WidgetDetector]] = {
    "edges": _edges,
}
"""Name → what builds the detector from the text after `NAME:` (empty without one)."""


def read_widgets(name: str) -> WidgetDetector:
    """The detector `name`, or `NAME:ARGUMENT`. Raises UserError for a name that is not in `DETECTORS`."""
    kind, _, argument = name.partition(":")
    if kind not in DETECTORS:
        raise UserError(f"widget detector {name!r} is unknown; choose one of {', '.join(DETECTORS)}")
    return DETECTORS[kind](argument)


def _refuse_argument(name: str, argument: str) -> None:
    if argument:
        raise UserError(f"widget detector {name!r} takes no argument, and got {argument!r}")
