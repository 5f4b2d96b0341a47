"""Chats that teach a text model to answer this agent's prompts: the replies are what the recorded steps say.

The agent itself writes the prompts, with the settings that it has behind a server; a program that knows the recorded
step replies. Plans and immediate steps are those of the shards (`PlanTexts`), actions the recorded ones. A thought
(react) and a description (seeact) are the recorded thought, else the immediate step. Reflexion is taught both ways: at
every other step the first action is another step's, judged as wrong, and only the verdict and the second answer are
written. Histories are the replies so far.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import Turn
from vlm_agent.agents.lessons import Lesson, lesson
from vlm_agent.agents.llm.client import Completion
from vlm_agent.episodes import Episode, Step, recorded_screen
from vlm_agent.errors import DatasetError
from vlm_agent.sentences.html import one_line

if TYPE_CHECKING:
    from vlm_agent.agents.dynamic_planning.agent import DynamicPlanningAgent


def lessons_of(agent: "DynamicPlanningAgent", episodes: Iterable[Episode], reflects: bool) -> Iterator[Lesson]:
    """A lesson for each reply of the model, episode after episode. `reflects`: whether the model judges its actions.

    Raises DatasetError for a step without a plan.
    """
    for episode in episodes:
        calls = KnowingCalls(agent.language)
        _play(replace(agent, calls=calls), calls, episode, reflects)  # type: ignore[arg-type]
        yield from (lesson(messages, reply) for messages, reply in calls.chats)


@dataclass
class KnowingCalls:
    """In place of an endpoint. `chats`: (messages, reply) of every call that teaches something.

    `step`: the recorded one that replies are about; `wrong`: an action to write first, in its place.
    """

    language: ActionLanguage
    step: Step | None = None
    wrong: str = ""
    chats: list[tuple[list[dict], str]] = field(default_factory=list)

    def completion(self, messages: Sequence[dict], max_tokens: int) -> Completion:
        opening, asks_again = messages[0]["content"], len(messages) > 2 and messages[-2]["role"] == "assistant"
        reply, teaches = self._reply(opening, asks_again and not self._thinks(opening))
        if teaches:
            self.chats.append((list(messages), reply))
        return Completion(reply)

    def _reply(self, opening: str, corrects: bool) -> tuple[str, bool]:
        if self.step is None:
            raise AssertionError("a step is known before its prompts are written")
        plan = self.step.plan
        if '{"right"' in opening:
            reason = f"To be done now: {self._now()}"
            return json.dumps({"right": False, "reason": reason} if self.wrong else {"right": True, "reason": ""}), True
        if "Write a plan" in opening:
            lines = plan.plan if plan is not None else ()
            content = {"plan": "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))}
            return json.dumps(
                content | ({"step": self._now()} if '"step"' in opening else {}), ensure_ascii=False
            ), True
        if "Describe what is to be done" in opening:
            return self._thought(), True
        action = self.language.encode(self.step.action, self.step.screen)
        if self._thinks(opening):
            return f"Thought: {self._thought()}\nAction: {action}", True
        if self.wrong and not corrects:
            return self.wrong, False
        return action, True

    @staticmethod
    def _thinks(opening: str) -> bool:
        return "Thought:" in opening

    def _now(self) -> str:
        plan = self.step.plan if self.step is not None else None
        return "" if plan is None else one_line(plan.step or plan.plan[0])

    def _thought(self) -> str:
        coat = None if self.step is None else self.step.coat
        return one_line(coat.think) if coat is not None and coat.think.strip() else self._now()


def _play(agent: "DynamicPlanningAgent", calls: KnowingCalls, episode: Episode, reflects: bool) -> None:
    history: list[Turn] = []
    texts = [agent.language.encode(step.action, step.screen) for step in episode.steps]
    for number, step in enumerate(episode.steps):
        if step.plan is None or not step.plan.plan:
            raise DatasetError(
                f"step {number} of episode {episode.id} has no plan; write shards with `vlm-agent simulate --thoughts`"
            )
        screen = recorded_screen(episode, number)
        calls.step, calls.wrong = step, ""
        if reflects and number % 2:
            other = texts[number - 1]
            calls.wrong = other if other != texts[number] and agent.language.decode(other, screen) else ""
        answer = agent.act(episode.goal, tuple(history), screen)
        action = step.action if answer.action is None else answer.action
        history.append(Turn(screen, answer, action, answer.thoughts))
