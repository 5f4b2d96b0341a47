"""Icons: what the pixels of an icon mean (VisionTasker, section 4.3.2)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import yaml

from vlm_agent.errors import UserError
from vlm_agent.screens.seen import IconReader, Meaning


def _tiny(path: str) -> IconReader:
    from vlm_agent.screens.icons.tiny import TinyIcons  # imports torch

    return TinyIcons.open(path)


def _clip(folder: str) -> IconReader:
    from vlm_agent.screens.icons.clip import ClipIcons  # imports transformers

    return ClipIcons.open(folder)


ICON_READERS: dict[str, Callable[[str], IconReader]] = {
    "none": lambda _: NoIcons(),
    "phone_icons_tiny": _tiny,
    "clip": _clip,
}
"""Name of a reader → its constructor, which takes what follows the name and a colon, or ""."""


def read_icons(name: str) -> IconReader:
    """The reader with this name. Raises UserError for an unknown name, or for files that the reader cannot use."""
    kind, _, argument = name.partition(":")
    if kind not in ICON_READERS:
        forms = "none, phone_icons_tiny, phone_icons_tiny:FILE, clip:FOLDER"
        raise UserError(f"the icon reader {name!r} is unknown; choose one of {forms}")
    return ICON_READERS[kind](argument)


FILE = Path(__file__).with_name("meanings.yaml")
LANGUAGES = ("en", "zh")

# Every command that has settings for screens reads this file; the loader in C is eight times faster.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LINES: dict[str, dict[str, str]] = yaml.load(FILE.read_text(encoding="utf-8"), _LOADER)  # noqa: S506 (a safe loader)

MEANINGS: dict[str, dict[str, str]] = {
    name: {language: line[language] for language in LANGUAGES} for name, line in _LINES.items()
}
"""Name of a meaning → language → its words. The order is that of the file, and of the outputs of `phone_icons_tiny`."""

LOOKS: dict[str, str] = {name: line["looks"] for name, line in _LINES.items()}
"""Name of a meaning → what such icons look like, in English: "a gear"."""


class NoIcons(IconReader):
    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        return [() for _ in crops]
