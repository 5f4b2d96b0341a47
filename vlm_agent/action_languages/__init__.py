"""Action languages: how an action is written for a model, and read back. One language per file.

To add one: write a file with an `ActionLanguage` and its `LanguageSettings`, import it here and add it to `LANGUAGES`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter

from vlm_agent.action_languages.binned import BinnedSettings
from vlm_agent.action_languages.language import ActionLanguage, Coordinate, LanguageSettings, LanguageVocabulary
from vlm_agent.action_languages.named import NamedSettings
from vlm_agent.settings import chosen_from

__all__ = [
    "DEFAULT",
    "LANGUAGES",
    "ActionLanguage",
    "ChosenLanguage",
    "Coordinate",
    "LanguageSettings",
    "LanguageVocabulary",
    "default_language",
    "default_settings",
    "language_settings",
]

LANGUAGES: dict[str, type[LanguageSettings]] = {
    "binned": BinnedSettings,
    "named": NamedSettings,
}

DEFAULT = "binned"
"""The language of a recipe that names none, and of everything that has no recipe."""

ChosenLanguage = Annotated[LanguageSettings, chosen_from(LANGUAGES, default=DEFAULT)]
"""The type of a settings field that chooses a language by its `name`."""

_CHOSEN: TypeAdapter[LanguageSettings] = TypeAdapter(ChosenLanguage)


def language_settings(content: Mapping[str, Any]) -> LanguageSettings:
    """Settings from the keys and values of YAML or JSON; pydantic's ValidationError where they are wrong."""
    return _CHOSEN.validate_python(content)


def default_settings() -> LanguageSettings:
    return language_settings({})


def default_language() -> ActionLanguage:
    return default_settings().build()
