"""An agent that asks a model behind a chat endpoint: any vision-language model that somebody serves.

    system     what the task is, and the action language
    user       the goal, earlier actions in words, and the first screen shown
    assistant  the action taken there
    user       the next screen
    …
    user       the screen now

Its answer is read by the action language as it stands, but for white space around it.
"""

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents import Answer
from vlm_agent.agents.chat import ChatEndpoint
from vlm_agent.datasets.images import encode_png
from vlm_agent.episodes import Episode, Step

_TASK = (
    "You operate a phone to reach a goal. You see its screen and do one action at a time; the next screen shows what "
    "came of it. "
)
_GREY = 128


@dataclass(frozen=True)
class EndpointAgent:
    """`past_screens`: how many screens before this one are shown; actions further back are told in words.

    `max_tokens` bounds an answer; one that is cut off is read as it stands. `workers` calls are under way at once.
    `remember` False and `grey` take memory and sight away.
    """

    chat: ChatEndpoint
    language: ActionLanguage
    past_screens: int = 2
    max_tokens: int = 128
    workers: int = 8
    remember: bool = True
    grey: bool = False

    def on_grey_screens(self) -> "EndpointAgent":
        return replace(self, grey=True)

    def without_history(self) -> "EndpointAgent":
        return replace(self, remember=False)

    def act(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> Answer:
        """Raises EndpointError where the endpoint cannot be used."""
        said = self.chat.completion(self.messages(goal, history, screenshot), self.max_tokens)
        return Answer(said.text, self.language.parse(said.text.strip()), tokens=said.tokens)

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """Every step of every episode after its history as demonstrated. Raises EndpointError at the first failure."""
        pool = ThreadPoolExecutor(self.workers)
        try:
            asked = [
                [
                    pool.submit(self.act, episode.goal, episode.steps[:number], step.screenshot)
                    for number, step in enumerate(episode.steps)
                ]
                for episode in episodes
            ]
            return [[answer.result() for answer in steps] for steps in asked]
        finally:
            pool.shutdown(cancel_futures=True)

    def messages(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> list[dict]:
        """The conversation so far, ending with the screen that wants an action."""
        history = history if self.remember else ()
        told = max(len(history) - self.past_screens, 0)
        opening = f"Goal: {goal}\n" + "".join(
            f"Action {number}: {self.language.render(step.action, step)}\n"
            for number, step in enumerate(history[:told], 1)
        )
        turns = [{"role": "system", "content": _TASK + self.language.instructions}]
        for number, step in enumerate(history[told:], told + 1):
            turns.append(self._shown(opening, number, step.screenshot))
            turns.append({"role": "assistant", "content": self.language.render(step.action, step)})
            opening = ""
        return [*turns, self._shown(opening, len(history) + 1, screenshot)]

    def _shown(self, opening: str, number: int, screenshot: np.ndarray) -> dict:
        screen = np.full_like(screenshot, _GREY) if self.grey else screenshot
        url = f"data:image/png;base64,{base64.b64encode(encode_png(screen)).decode()}"
        return {
            "role": "user",
            "content": [
                {"type": "text", "text": f"{opening}Screen {number}:"},
                {"type": "image_url", "image_url": {"url": url}},
            ],
        }
