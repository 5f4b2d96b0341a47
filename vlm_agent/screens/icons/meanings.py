"""The meanings of icons: their words and what such icons look like, from `meanings.yaml`."""

from pathlib import Path

import yaml

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
