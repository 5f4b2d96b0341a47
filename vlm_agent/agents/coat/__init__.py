"""Settings of the agent that prompts a model behind a chat endpoint with CoA, CoT or CoAT."""

import hashlib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from vlm_agent.action_languages import LanguageSettings, language_settings
from vlm_agent.agents.agent import Agent
from vlm_agent.agents.coat.prompts import PROMPTS, CoatPrompts, Mode
from vlm_agent.agents.llm.prompted import PromptedSettings

_PHONE = "activity and elements of the screen, as any phone gives"
_NOTES: dict[str, dict[str, str]] = {
    "recorded": {},
    "phone": {"screen descriptions": _PHONE, "action results": _PHONE},
    "model": {
        "screen descriptions": "the prompted model, from the screen alone",
        "action results": "the prompted model, from the screens before and after the action",
    },
}


class CoatAgentSettings(PromptedSettings):
    """`mode`, `elements`, `texts`, `thoughts`, `max_tokens`: see `CoatAgent`. Other settings are those of every
    prompted model."""

    agent: str = "coat"
    mode: Mode = "coat"
    elements: Literal["text", "marks"] = "text"
    texts: Literal["recorded", "phone", "model"] = "recorded"
    thoughts: bool = False

    @model_validator(mode="after")
    def _reads_texts(self) -> Self:
        if self.mode != "coat" and self.texts != "recorded":
            raise ValueError(f"texts: {self.texts} is for mode coat; mode {self.mode} reads none")
        if self.mode != "coat" and self.thoughts:
            raise ValueError(f"thoughts is for mode coat; mode {self.mode} reads no thoughts of earlier steps")
        return self

    @property
    def display_name(self) -> str:
        return f"{self.model} at {self.endpoint}, {self.mode}"

    @property
    def language(self) -> LanguageSettings:
        return language_settings({"name": "coat"})

    @property
    def reads_elements(self) -> bool:
        return True

    @property
    def text_inputs(self) -> tuple[str, ...]:
        if self.mode != "coat":
            return ()
        recorded = ("screen", "result") if self.texts == "recorded" else ()
        return (*recorded, *(("think",) if self.thoughts else ()), "action")

    @property
    def text_notes(self) -> dict[str, str]:
        if self.mode != "coat":
            return {}
        return _NOTES[self.texts] | {"earlier actions without a description": "a template: action and touched element"}

    def identity(self) -> dict[str, Any]:
        """The same model on another server is the same agent. Prompts count by their content."""
        content = self._prompts().model_dump_json()
        names = ("agent", "model", "mode", "elements", "texts", "thoughts", "max_tokens")
        return {name: getattr(self, name) for name in names} | {"prompts": hashlib.sha256(content.encode()).hexdigest()}

    def load(self) -> Agent:
        from vlm_agent.agents.coat.agent import CoatAgent

        return CoatAgent(
            self.open_calls(),
            self._prompts(),
            self.language.build(),
            self.mode,
            self.elements,
            self.texts,
            self.thoughts,
            self.max_tokens,
            workers=self.concurrency,
        )

    def _prompts(self) -> CoatPrompts:
        return CoatPrompts.read(PROMPTS if self.prompts is None else Path(self.prompts))
