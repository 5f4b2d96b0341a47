"""Icons: what the pixels of an icon mean (VisionTasker, section 4.1)."""

from collections.abc import Callable

from vlm_agent.errors import UserError
from vlm_agent.screens.icons.meanings import LOOKS, MEANINGS
from vlm_agent.screens.icons.none import NoIcons
from vlm_agent.screens.seen import IconReader

__all__ = ["ICON_READERS", "LOOKS", "MEANINGS", "read_icons"]

ICON_READERS: dict[str, Callable[[str], IconReader]] = {
    "none": lambda _: NoIcons(),
}
"""Name of a reader → its constructor, which takes what follows the name and a colon (`clip:FOLDER`), or ""."""


def read_icons(name: str) -> IconReader:
    """The reader with this name. Raises UserError for an unknown name, or for files that the reader cannot use."""
    kind, _, argument = name.partition(":")
    if kind not in ICON_READERS:
        known = ", ".join(sorted(ICON_READERS))
        raise UserError(f"the icon reader {name!r} is unknown; choose one of {known}")
    return ICON_READERS[kind](argument)
