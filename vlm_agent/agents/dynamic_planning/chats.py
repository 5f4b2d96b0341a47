"""Chats that teach a text model to answer this agent's prompts: the replies are what the recorded steps say.

The agent itself writes the prompts, with the settings that it has behind a server, and says what each asks for; a
program that knows the recorded step replies. Plans and immediate steps are those of the shards, actions
the recorded ones. A thought (react) and a description (seeact) are the recorded thought, else the immediate step.
Reflexion is taught both ways: at every other step the first action is another step's, judged as wrong, and only the
verdict and the second answer are written. Histories are the replies so far. The caption of a reference is the recorded
description of its first screen.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import Turn
from vlm_agent.agents.chats import Chat, chat_of
from vlm_agent.agents.dynamic_planning.reading import read_description
from vlm_agent.agents.llm.prompted import Replies
from vlm_agent.agents.llm.prompts import numbered_lines
from vlm_agent.agents.llm.replies import UnreadReplyError
from vlm_agent.episodes import Episode, Step, recorded_screen
from vlm_agent.errors import DatasetError
from vlm_agent.texts.lines import one_line

if TYPE_CHECKING:
    from vlm_agent.agents.dynamic_planning.agent import DynamicPlanningAgent


def chats_of(agent: "DynamicPlanningAgent", episodes: Iterable[Episode], reflects: bool) -> Iterator[Chat]:
    """A chat for each reply of the model, episode after episode. `reflects`: whether the model judges its actions.

    Raises DatasetError for a step without a plan.
    """
    for episode in episodes:
        replies = KnownReplies(agent.calls, language=agent.language)
        _play(agent, replies, episode, reflects)
        yield from (chat_of(messages, reply) for messages, reply in replies.chats)


@dataclass
class KnownReplies(Replies):
    """In place of those of an endpoint. `chats`: (messages, reply) of every call that teaches something.

    `step`: the recorded one that replies are about; `wrong`: an action to write first, in its place. `captions`: those
    of the references that the step's prompt shows, in their order.
    """

    language: ActionLanguage = field(kw_only=True)
    step: Step | None = None
    wrong: str = ""
    captions: list[str] = field(default_factory=list)
    chats: list[tuple[list[dict], str]] = field(default_factory=list)

    def ask(
        self,
        messages: Sequence[dict[str, Any]],
        max_tokens: int,
        typical: str,
        tokens: int,
        counts: bool = True,
        kind: str = "",
    ) -> str:
        """The reply of this kind (`prompts.Kind`) to the recorded step."""
        if kind == "action" and self.wrong:
            return self.wrong
        reply = self._replies[kind]()
        self.chats.append((list(messages), reply))
        return reply

    @property
    def _replies(self) -> dict[str, Callable[[], str]]:
        return {
            "plan": lambda: self._plan({}),
            "plan_and_step": lambda: self._plan({"step": self._now()}),
            "description": self._thought,
            "verdict": self._verdict,
            "action": self._action,
            "correction": self._action,
            "thought": lambda: f"Thought: {self._thought()}\nAction: {self._action()}",
            "caption": lambda: self.captions.pop(0),
        }

    def _plan(self, further: dict[str, str]) -> str:
        return json.dumps({"plan": numbered_lines(self._note("plan").split("\n"))} | further, ensure_ascii=False)

    def _verdict(self) -> str:
        reason = f"To be done now: {self._now()}"
        return json.dumps({"right": False, "reason": reason} if self.wrong else {"right": True, "reason": ""})

    def _action(self) -> str:
        if self.step is None:
            raise AssertionError("a step is known before its prompts are written")
        return self.language.encode(self.step.action, self.step.screen)

    def _now(self) -> str:
        return one_line(self._note("step") or self._note("plan").partition("\n")[0])

    def _thought(self) -> str:
        return one_line(self._note("think")) or self._now()

    def _note(self, name: str) -> str:
        return "" if self.step is None else self.step.notes.get(name, "")


def _play(agent: "DynamicPlanningAgent", replies: KnownReplies, episode: Episode, reflects: bool) -> None:
    history: list[Turn] = []
    texts = [agent.language.encode(step.action, step.screen) for step in episode.steps]
    for number, step in enumerate(episode.steps):
        if not step.notes.get("plan"):
            raise DatasetError(
                f"step {number} of episode {episode.id} has no plan; write shards with `vlm-agent simulate --thoughts`"
            )
        screen = recorded_screen(episode, number)
        replies.step, replies.wrong = step, ""
        if reflects and number % 2:
            other = texts[number - 1]
            replies.wrong = other if other != texts[number] and agent.language.decode(other, screen) else ""
        # A later step has the captions of the first one in memory.
        replies.captions = _captions(agent, episode) if number == 0 else []
        answer = agent.answer(episode.goal, tuple(history), screen, replies, episode.id)
        action = step.action if answer.action is None else answer.action
        history.append(Turn(screen, answer, action, answer.notes))


def _captions(agent: "DynamicPlanningAgent", episode: Episode) -> list[str]:
    """Captions of the references of an episode, in their order. Raises DatasetError for a description that the agent
    would not accept as a caption, and ask for once more."""
    if agent.references is None:
        return []
    source = agent.references.source
    found = []
    for one in agent.references.nearest(episode.goal, episode.id):
        text = source.description(one.number)
        try:
            read_description(text)
        except UnreadReplyError as error:
            raise DatasetError(
                f"the description of the first screen of episode {one.id} is no caption: {error}"
            ) from None
        found.append(text)
    return found
