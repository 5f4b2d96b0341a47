"""Settings of the agent that prompts a served model with screens in words (VisionTasker), and of its baselines."""

import hashlib
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from vlm_agent.agents.agent import Agent
from vlm_agent.agents.llm.prompted import PromptedSettings
from vlm_agent.agents.vision_tasker.prompts import PROMPTS, PromptLanguage, Prompts, Shown
from vlm_agent.screens.understand import Readers

_IN_WORDS = {"words": "screens in words read from pixels", "html": "screens as HTML", "marks": "numbers in the picture"}


class VisionTaskerSettings(PromptedSettings):
    """`screen`: the screen in words, read from its pixels by `readers`; as HTML of its elements; or as a picture with
    their numbers. Elements are those of the phone or data set, or with `--elements read` those of `readers`.

    `prompt_language`: of prompts and words. `prompts`: a file to use in place of its own prompts.
    """

    agent: str = "vision_tasker"
    screen: Shown = "words"
    prompt_language: PromptLanguage = "en"
    readers: Readers = Readers()
    max_tokens: PositiveInt = 300

    @property
    def display_name(self) -> str:
        return f"{self.model} at {self.endpoint}, {_IN_WORDS[self.screen]}"

    @property
    def text_notes(self) -> dict[str, str]:
        if self.screen != "words":
            return {}
        from vlm_agent.agents.read_screens.reader import in_words

        return {"screens in words": in_words(self.readers)}

    def identity(self) -> dict[str, Any]:
        """The same model on another server is the same agent. Prompts count by their content."""
        content = self._prompts().model_dump_json()
        names = ("agent", "model", "screen", "prompt_language", "max_tokens")
        identity = {name: getattr(self, name) for name in names}
        identity["prompts"] = hashlib.sha256(content.encode()).hexdigest()
        if self.screen == "words":
            from vlm_agent.agents.read_screens.reader import readers_identity

            identity["readers"] = readers_identity(self.readers)
        return identity

    def load(self) -> Agent:
        from vlm_agent.agents.read_screens.reader import ScreenReader
        from vlm_agent.agents.vision_tasker.agent import VisionTaskerAgent

        return VisionTaskerAgent(
            self.open_calls(),
            self._prompts(),
            ScreenReader.of(self.readers),
            self.screen,
            self.prompt_language,
            max_tokens=self.max_tokens,
            workers=self.concurrency,
        )

    def _prompts(self) -> Prompts:
        return Prompts.read(PROMPTS[self.prompt_language] if self.prompts is None else Path(self.prompts))
