"""An agent that plays a fixed list of actions and ignores its input: a baseline, also used in tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, model_validator

from vlm_agent.action_languages import (
    ActionLanguage,
    ChosenLanguage,
    LanguageSettings,
    default_language,
    default_settings,
)
from vlm_agent.agents.agent import Agent, AgentSettings, Answer, Turn
from vlm_agent.episodes import Action, Screen


@dataclass(frozen=True)
class ScriptedAgent(Agent):
    """Answers with `actions` in order, and repeats the last one."""

    actions: Sequence[Action]
    language: ActionLanguage = field(default_factory=default_language)

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        action = self.actions[min(len(history), len(self.actions) - 1)]
        return Answer(self.language.encode(action), action)


class ScriptedSettings(AgentSettings):
    """`actions`: texts in the `action_language`."""

    agent: str = "scripted"
    actions: Annotated[list[str], Field(min_length=1)]
    action_language: ChosenLanguage = Field(default_factory=default_settings)

    @model_validator(mode="after")
    def _readable(self) -> "ScriptedSettings":
        language = self.action_language.build()
        if language.needs_elements or getattr(self.action_language, "counts_pixels", False):
            raise ValueError(f"{self.action_language.name} needs a screen to be read; choose another, such as binned")
        unreadable = [text for text in self.actions if language.decode(text) is None]
        if unreadable:
            raise ValueError(f"{unreadable[0]!r} is not an action; {language.instructions}")
        return self

    @property
    def language(self) -> LanguageSettings:
        return self.action_language

    def load(self) -> ScriptedAgent:
        language = self.action_language.build()
        actions = [action for text in self.actions if (action := language.decode(text)) is not None]
        return ScriptedAgent(actions, language)
