"""A vision-language model behind an OpenAI-compatible chat endpoint, as an agent.

    system     the task, and the action language
    user       the goal, older actions as text, and the oldest screen shown
    assistant  the action executed on that screen
    user       the next screen
    …
    user       the current screen

The action language decodes the answer as it is, except for white space around it.
"""

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from vlm_agent.action_languages import ActionLanguage, ChosenLanguage, LanguageSettings, default_settings
from vlm_agent.agents.agent import AgentSettings, Answer, Turn, Usage, answer_step_by_step
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.datasets.shards.images import encode_png
from vlm_agent.episodes import Episode, Screen
from vlm_agent.errors import UserError

_TASK = (
    "You operate a phone to reach a goal. You see its screen and do one action at a time; the next screen shows what "
    "came of it. "
)


@dataclass(frozen=True)
class EndpointAgent:
    """`past_screens`: earlier screens in the prompt; older actions are written as text.

    `max_tokens` bounds an answer; a truncated one is decoded as it is. `workers`: concurrent calls for whole episodes.
    """

    chat: ChatEndpoint
    language: ActionLanguage
    past_screens: int = 2
    max_tokens: int = 128
    workers: int = 8

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        """Raises EndpointError if the endpoint cannot be used."""
        started = time.perf_counter()
        completion = self.chat.completion(self.messages(goal, history, screen), self.max_tokens)
        read, written = completion.tokens or (None, None)
        usage = Usage(read, written, completion.calls, seconds=time.perf_counter() - started)
        return Answer(completion.text, self.language.decode(completion.text.strip(), screen), usage=usage)

    def answer_episodes(self, episodes: Sequence[Episode], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        """Step by step with `workers` concurrent calls. Raises EndpointError at the first failure."""
        if variants:
            raise UserError(f"an endpoint has no variant {variants[0]!r}; it decodes as its server is configured")
        return [answer_step_by_step(self, episodes, self.workers)]

    def messages(self, goal: str, history: Sequence[Turn], screen: Screen) -> list[dict[str, Any]]:
        """The conversation up to the current screen."""
        older = max(len(history) - self.past_screens, 0)
        opening = f"Goal: {goal}\n" + "".join(
            f"Action {number}: {self._text(turn)}\n" for number, turn in enumerate(history[:older], 1)
        )
        messages: list[dict[str, Any]] = [{"role": "system", "content": _TASK + self.language.instructions}]
        for number, turn in enumerate(history[older:], older + 1):
            messages.append(_screen_message(opening, number, turn.screen))
            messages.append({"role": "assistant", "content": self._text(turn)})
            opening = ""
        return [*messages, _screen_message(opening, len(history) + 1, screen)]

    def _text(self, turn: Turn) -> str:
        return self.language.encode(turn.action, turn.screen)


def _screen_message(opening: str, number: int, screen: Screen) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(encode_png(_pixels(screen))).decode()}"
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": f"{opening}Screen {number}:"},
            {"type": "image_url", "image_url": {"url": url}},
        ],
    }


def _pixels(screen: Screen) -> np.ndarray:
    if screen.pixels is None:
        raise UserError("a chat endpoint needs screenshots, and this source has none")
    return screen.pixels


class EndpointSettings(AgentSettings):
    """`endpoint`: base URL such as http://localhost:8000/v1; `model`: the model's name there.

    `past_screens`: earlier screens in the prompt. `max_tokens`: length of an answer, at most. `concurrency`: calls at a
    time. The key is read from the environment variable OPENAI_API_KEY.
    """

    agent: str = "endpoint"
    endpoint: str
    model: str
    action_language: ChosenLanguage = Field(default_factory=default_settings)
    past_screens: NonNegativeInt = 2
    max_tokens: PositiveInt = 128
    concurrency: PositiveInt = 8

    @model_validator(mode="after")
    def _usable(self) -> "EndpointSettings":
        self._chat()
        return self

    @property
    def place(self) -> str:
        return f"{self.model} at {self.endpoint}"

    @property
    def language(self) -> LanguageSettings:
        return self.action_language

    def described(self) -> dict[str, Any]:
        """Without the address: the same model on another server is the same agent."""
        return {"model": self.model, "past_screens": self.past_screens, "max_tokens": self.max_tokens}

    def load(self) -> EndpointAgent:
        language = self.action_language.build()
        return EndpointAgent(self._chat(), language, self.past_screens, self.max_tokens, self.concurrency)

    def _chat(self) -> ChatEndpoint:
        return ChatEndpoint(self.endpoint, self.model)
