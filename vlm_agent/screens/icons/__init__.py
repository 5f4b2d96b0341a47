"""Icons: what the pixels of an icon mean (VisionTasker, section 4.3.2)."""

from collections.abc import Callable

from vlm_agent.errors import UserError
from vlm_agent.screens.icons.meanings import LOOKS, MEANINGS
from vlm_agent.screens.icons.none import NoIcons
from vlm_agent.screens.seen import IconReader

__all__ = ["FORMS", "ICON_READERS", "LOOKS", "MEANINGS", "read_icons"]


def _tiny(path: str) -> IconReader:
    from vlm_agent.screens.icons.tiny.reader import TinyIcons  # imports torch

    return TinyIcons.open(path)


def _clip(folder: str) -> IconReader:
    from vlm_agent.screens.icons.clip.reader import ClipIcons  # imports transformers

    return ClipIcons.open(folder)


ICON_READERS: dict[str, Callable[[str], IconReader]] = {
    "none": lambda _: NoIcons(),
    "phone_icons_tiny": _tiny,
    "clip": _clip,
}
"""Name of a reader → its constructor, which takes what follows the name and a colon, or ""."""

FORMS = ("none", "phone_icons_tiny", "phone_icons_tiny:FILE", "clip:FOLDER")
"""How readers are named, for error messages and help."""


def read_icons(name: str) -> IconReader:
    """The reader with this name. Raises UserError for an unknown name, or for files that the reader cannot use."""
    kind, _, argument = name.partition(":")
    if kind not in ICON_READERS:
        raise UserError(f"the icon reader {name!r} is unknown; choose one of {', '.join(FORMS)}")
    return ICON_READERS[kind](argument)
