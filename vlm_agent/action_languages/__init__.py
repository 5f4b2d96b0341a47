"""Action languages: codecs between actions and the text that a model reads and writes. One language per file.

To add one: write a file with an `ActionLanguage` and its `LanguageSettings`, and add it to `LANGUAGES`, here or by an
entry point.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter

from vlm_agent.action_languages.auto_ui import AutoUiSettings
from vlm_agent.action_languages.binned import BinnedSettings
from vlm_agent.action_languages.coat import CoatSettings
from vlm_agent.action_languages.element_index import ElementIndexSettings
from vlm_agent.action_languages.language import ActionLanguage, Coordinate, LanguageSettings, LanguageVocabulary
from vlm_agent.action_languages.named import NamedSettings
from vlm_agent.settings import Registry, chosen_from

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

_RELEASED = "vlm_agent.action_languages.released"

LANGUAGES: Registry[type[LanguageSettings]] = Registry(
    "vlm_agent.action_languages",
    {
        "binned": BinnedSettings,
        "named": NamedSettings,
        "auto_ui": AutoUiSettings,
        "coat": CoatSettings,
        "element_index": ElementIndexSettings,
        "qwen25_mobile_use": f"{_RELEASED}.tool_calls:Qwen25Settings",
        "qwen3_mobile_use": f"{_RELEASED}.tool_calls:Qwen3Settings",
        "gui_owl": f"{_RELEASED}.tool_calls:GuiOwlSettings",
        "gui_owl15": f"{_RELEASED}.tool_calls:GuiOwl15Settings",
        "mai_ui": f"{_RELEASED}.tool_calls:MaiUiSettings",
        "ui_tars": f"{_RELEASED}.calls:UiTarsSettings",
        "ui_tars15": f"{_RELEASED}.calls:UiTars15Settings",
        "scalecua": f"{_RELEASED}.calls:ScaleCuaSettings",
        "aguvis": f"{_RELEASED}.calls:AguvisSettings",
        "autoglm": f"{_RELEASED}.calls:AutoGlmSettings",
        "ui_venus": f"{_RELEASED}.calls:UiVenusSettings",
        "cogagent": f"{_RELEASED}.calls:CogAgentSettings",
        "agentcpm": f"{_RELEASED}.objects:AgentCpmSettings",
        "os_genesis": f"{_RELEASED}.objects:OsGenesisSettings",
        "showui": f"{_RELEASED}.objects:ShowUiSettings",
        "seeclick": f"{_RELEASED}.objects:SeeClickSettings",
        "os_atlas": f"{_RELEASED}.lines:OsAtlasSettings",
        "odyssey_agent": f"{_RELEASED}.lines:OdysseyAgentSettings",
    },
    subclass_of=LanguageSettings,
)

DEFAULT = "binned"
"""The language of recipes without `action_language`, and of code without a recipe."""

ChosenLanguage = Annotated[LanguageSettings, chosen_from(LANGUAGES, default=DEFAULT)]
"""The type of a settings field that chooses a language by its `name`."""

_CHOSEN: TypeAdapter[LanguageSettings] = TypeAdapter(ChosenLanguage)


def language_settings(content: Mapping[str, Any]) -> LanguageSettings:
    """Settings from the content of a YAML or JSON mapping. Raises pydantic's ValidationError for wrong content."""
    return _CHOSEN.validate_python(content)


def default_settings() -> LanguageSettings:
    return language_settings({})


def default_language() -> ActionLanguage:
    return default_settings().build()
