"""One question to an agent: a picture of a screen and a goal. Thread-safe; the first question loads the agent."""

import base64
import io
import threading
import time
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console

from vlm_agent.agents import Agent, AgentSettings
from vlm_agent.agents.loading import load_agent, readers_of_agent
from vlm_agent.drawing.actions import PREDICTED, describe_with_place, draw_action
from vlm_agent.episodes import Screen
from vlm_agent.errors import UserError
from vlm_agent.files.png import encode_png
from vlm_agent.screens.picture import read_picture

MOST_BYTES = 16 << 20
"""The limit of a picture."""

MOST_CHARACTERS = 2000
"""The limit of a goal."""


class QuestionError(UserError):
    """A goal that cannot be used, or an agent that could not answer; the message says why."""


class Asking:
    """Questions to one agent, one at a time. An agent that reads elements has those that are read from the pixels."""

    def __init__(self, settings: AgentSettings, console: Console) -> None:
        self.name = settings.display_name
        self._settings, self._console = settings, console
        self._agent: Agent | None = None
        self._lock = threading.Lock()

    def ask(self, goal: str, picture: bytes) -> dict[str, Any]:
        """The answer as JSON values; `picture` in it is a data URI of the screen with the action.

        `seconds` is wall time without loading; `tokens` is (read, written) or None. `from_disk`: a served model was
        asked the same before, and seconds and tokens include those of that request. The history is empty. Raises
        UserError.
        """
        goal = goal.strip()
        if not goal:
            raise QuestionError("Type a goal.")
        if len(goal) > MOST_CHARACTERS:
            raise QuestionError(f"The goal has {len(goal):,} characters, and may have {MOST_CHARACTERS:,}.")
        pixels = read_picture(io.BytesIO(picture), "The picture")
        with self._lock:
            if self._agent is None:
                readers = readers_of_agent(self._settings) if self._settings.reads_elements else None
                self._agent = load_agent(self._settings, self._console, readers)
            start = time.monotonic()
            answer = self._agent.act(goal, (), Screen(pixels))
            seconds = time.monotonic() - start + answer.diagnostics.seconds_on_disk
        if answer.failed is not None:
            raise QuestionError(f"The agent could not answer: {answer.failed}")
        action, drawn = "no action could be read from the answer", pixels
        if answer.action is not None:
            action = describe_with_place(answer.action)
            drawn = np.asarray(draw_action(Image.fromarray(pixels), answer.action, PREDICTED))
        return {
            "answer": answer.text,
            "notes": {name: text for name, text in answer.notes.items() if text},
            "action": action,
            "seconds": round(seconds, 2),
            "tokens": answer.usage.tokens,
            "from_disk": answer.diagnostics.seconds_on_disk > 0,
            "picture": "data:image/png;base64," + base64.b64encode(encode_png(drawn)).decode(),
        }
