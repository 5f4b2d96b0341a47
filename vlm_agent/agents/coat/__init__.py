"""Settings of the agent that prompts a model behind a chat endpoint with CoA, CoT or CoAT."""

import hashlib
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from vlm_agent.action_languages import LanguageSettings, language_settings
from vlm_agent.agents.agent import Agent, AgentSettings
from vlm_agent.agents.coat.prompts import PROMPTS, Mode, Prompts, read_prompts
from vlm_agent.agents.llm.calls import CallLimits, Calls
from vlm_agent.agents.llm.client import ChatEndpoint

_PHONE = "activity and elements of the screen, as any phone gives"
_NOTES: dict[str, dict[str, str]] = {
    "recorded": {},
    "phone": {"screen descriptions": _PHONE, "action results": _PHONE},
    "model": {
        "screen descriptions": "the prompted model, from the screen alone",
        "action results": "the prompted model, from the screens before and after the action",
    },
}


class CoatAgentSettings(AgentSettings, CallLimits):
    """`endpoint`: base URL such as http://localhost:8000/v1. `model`: the name of the model on that server. The API key
    is read from the environment variable OPENAI_API_KEY.

    `mode`, `elements`, `texts`, `max_tokens`: see `CoatAgent`. `prompts`: a file to use in place of `prompts.yaml`.

    `concurrency`: concurrent calls. `timeout`: seconds without a byte after which a request is repeated. `attempts`:
    requests of a call before it fails. `calls`: folder of the replies, by default the folder `calls` of the command's
    output. `price`, `max_cost`, `requests_per_minute`: see `CallLimits`.
    """

    agent: str = "coat"
    endpoint: str
    model: str
    mode: Mode = "coat"
    elements: Literal["text", "marks"] = "text"
    texts: Literal["recorded", "phone", "model"] = "recorded"
    max_tokens: PositiveInt = 512
    prompts: str | None = None
    concurrency: PositiveInt = 8
    timeout: PositiveFloat = 120.0
    attempts: PositiveInt = 6
    calls: str | None = None

    @model_validator(mode="after")
    def _usable(self) -> "CoatAgentSettings":
        self._chat()
        return self

    @property
    def display_name(self) -> str:
        return f"{self.model} at {self.endpoint}, {self.mode}"

    @property
    def language(self) -> LanguageSettings:
        return language_settings({"name": "coat"})

    @property
    def text_inputs(self) -> tuple[str, ...]:
        if self.mode != "coat":
            return ()
        return ("screen", "result", "action") if self.texts == "recorded" else ("action",)

    @property
    def text_notes(self) -> dict[str, str]:
        if self.mode != "coat":
            return {}
        return _NOTES[self.texts] | {"earlier actions without a description": "a template: action and touched element"}

    def identity(self) -> dict[str, Any]:
        """The same model on another server is the same agent. Prompts count by their content."""
        content = self._prompts().model_dump_json()
        names = ("agent", "model", "mode", "elements", "texts", "max_tokens")
        return {name: getattr(self, name) for name in names} | {"prompts": hashlib.sha256(content.encode()).hexdigest()}

    def in_output(self, output: Path) -> "CoatAgentSettings":
        return self if self.calls is not None else self.model_copy(update={"calls": str(output / "calls")})

    def load(self) -> Agent:
        from vlm_agent.agents.coat.agent import CoatAgent

        folder = Path("calls") if self.calls is None else Path(self.calls)
        limits = CallLimits(**{name: getattr(self, name) for name in CallLimits.model_fields})
        return CoatAgent(
            Calls(self._chat(), folder, limits),
            self._prompts(),
            self.language.build(),
            self.mode,
            self.elements,
            self.texts,
            self.max_tokens,
            self.concurrency,
        )

    def _prompts(self) -> Prompts:
        return read_prompts(PROMPTS if self.prompts is None else Path(self.prompts))

    def _chat(self) -> ChatEndpoint:
        return ChatEndpoint(self.endpoint, self.model, self.timeout, self.attempts)
