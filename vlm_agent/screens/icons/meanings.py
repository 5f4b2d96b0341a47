"""The meanings of icons: their words and what such icons look like, from `meanings.yaml`."""

from pathlib import Path

import yaml

FILE = Path(__file__).with_name("meanings.yaml")
LANGUAGES = ("en", "zh")

_LINES: dict[str, dict[str, str]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))

MEANINGS: dict[str, dict[str, str]] = {
    name: {language: line[language] for language in LANGUAGES} for name, line in _LINES.items()
}
"""Name of a meaning → language → its words. The order is that of the file, and of the outputs of `phone_icons_tiny`."""

LOOKS: dict[str, str] = {name: line["looks"] for name, line in _LINES.items()}
"""Name of a meaning → what such icons look like, in English: "a gear"."""
