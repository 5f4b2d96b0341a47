"""Settings of the agent that prompts a served model with screens in words (VisionTasker), and of its baselines."""

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PositiveInt, model_validator

from vlm_agent.agents.chats import Chat
from vlm_agent.agents.examples.encoder import WORDS, goal_encoder, goal_encoder_digest
from vlm_agent.agents.examples.store import Demonstration, Demonstrations, DemonstrationsError
from vlm_agent.agents.llm.prompted import PromptedSettings
from vlm_agent.agents.vision_tasker.prompts import PROMPTS, VisionTaskerPrompts
from vlm_agent.agents.vision_tasker.shown import PromptLanguage, Shown
from vlm_agent.episodes import Episode
from vlm_agent.screens.understand import Readers

if TYPE_CHECKING:
    from vlm_agent.agents.vision_tasker.agent import VisionTaskerAgent

_IN_WORDS = {"words": "screens in words read from pixels", "html": "screens as HTML", "marks": "numbers in the picture"}


class VisionTaskerSettings(PromptedSettings):
    """`screen`: the screen in words, read from its pixels by `readers`; as HTML of its elements; or as a picture with
    their numbers. Elements are those of the phone or data set, or with `--elements read` those of `readers`.

    `prompt_language`: of prompts and words. `prompts`: a file to use in place of its own prompts. `history`: False
    leaves earlier actions out of the prompts, as in the paper's table 2.

    `demonstrations`: a store that `vlm-agent record` writes. The prompt has the demonstration whose goal is nearest by
    `encoder`: `words` counts common words; any other name is a sentence encoder, a folder or an installed package.

    `demonstrated_chats`: the share of episodes in whose chats for training (`vlm-agent chats`) the prompts have the
    demonstration, 0 to 1. A digest of its id chooses an episode. The store must not hold these episodes themselves.
    """

    agent: str = "vision_tasker"
    screen: Shown = "words"
    prompt_language: PromptLanguage = "en"
    readers: Readers = Readers()
    history: bool = True
    demonstrations: str | None = None
    encoder: str = WORDS
    demonstrated_chats: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_tokens: PositiveInt = 300

    @model_validator(mode="after")
    def _has_demonstrations(self) -> Self:
        for name in ("encoder", "demonstrated_chats"):
            if self.demonstrations is None and name in self.model_fields_set:
                raise ValueError(f"{name} is for demonstrations; set demonstrations, or remove it")
        return self

    @property
    def display_name(self) -> str:
        shown = "" if self.demonstrations is None else ", shown the nearest demonstration"
        past = "" if self.history else ", no history"
        return f"{self.model} at {self.endpoint}, {_IN_WORDS[self.screen]}{past}{shown}"

    @property
    def reads_elements(self) -> bool:
        """Screens in words are read from pixels by the agent itself."""
        return self.screen != "words"

    @property
    def text_notes(self) -> dict[str, str]:
        notes = {}
        if self.screen == "words":
            from vlm_agent.agents.read_screens import in_words

            notes["screens in words"] = in_words(self.readers)
        if self.demonstrations is not None:
            notes["demonstrations"] = f"of {self.demonstrations}, the nearest goal by {self.encoder}"
        return notes

    def asks_to_be_shown(self, goal: str) -> str:
        store = "demonstrations.sqlite" if self.demonstrations is None else self.demonstrations
        command = f"vlm-agent record --device WHICH --goal {shlex.quote(goal)} --output {shlex.quote(store)}"
        key = f", and set `demonstrations: {store}` in the agent file" if self.demonstrations is None else ""
        return f"The agent did not complete the goal. Show it how, and run it again{key}:\n  {command}"

    def identity(self) -> dict[str, Any]:
        """The same model on another server is the same agent. Prompts count by their content."""
        content = self._prompts().model_dump_json()
        names = ("agent", "model", "screen", "prompt_language", "max_tokens")
        identity = {name: getattr(self, name) for name in names}
        identity["prompts"] = hashlib.sha256(content.encode()).hexdigest()
        if self.screen == "words":
            from vlm_agent.agents.read_screens import readers_identity

            identity["readers"] = readers_identity(self.readers)
        if not self.history:
            identity["history"] = False
        if self.demonstrations is not None:
            store = self._store(self.demonstrations)
            identity["demonstrations"] = {"content": store.digest(), "encoder": goal_encoder_digest(self.encoder)}
        return identity

    def load(self) -> "VisionTaskerAgent":
        from vlm_agent.agents.read_screens import ScreenReader
        from vlm_agent.agents.vision_tasker.agent import VisionTaskerAgent

        return VisionTaskerAgent(
            self.open_calls(),
            self._prompts(),
            ScreenReader.of(self.readers),
            self.screen,
            self.prompt_language,
            self._nearest(),
            self.max_tokens,
            self.history,
            workers=self.concurrency,
        )

    def chats(self, episodes: Iterable[Episode]) -> Iterator[Chat]:
        """With demonstrations in the prompts of the share `demonstrated_chats` of episodes."""
        from vlm_agent.agents.vision_tasker.agent import chats_of

        return chats_of(self.load(), episodes, self.demonstrated_chats)

    def _nearest(self) -> Callable[[str], Demonstration | None] | None:
        """The demonstration nearest to a goal, looked up once for each goal; None without demonstrations."""
        if self.demonstrations is None:
            return None
        store, encoder = self._store(self.demonstrations), goal_encoder(self.encoder)
        return lru_cache(maxsize=None)(lambda goal: store.nearest(goal, encoder))

    @staticmethod
    def _store(path: str) -> Demonstrations:
        if not Path(path).exists():
            raise DemonstrationsError(f"{path} does not exist; record one with `vlm-agent record --output {path}`")
        return Demonstrations(Path(path))

    def _prompts(self) -> VisionTaskerPrompts:
        return VisionTaskerPrompts.read(PROMPTS[self.prompt_language] if self.prompts is None else Path(self.prompts))
