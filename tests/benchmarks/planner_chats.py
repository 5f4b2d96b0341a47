"""Chats that train one text model on every mode of the planner (`dynamic_planning`).

    vlm-agent simulate --thoughts --output SIMULATED --episodes 250
    python tests/benchmarks/planner_chats.py --shards SIMULATED/shards --output CHATS [--modes none d_pot] [--limit N]
    vlm-agent train --config RECIPE --data.sentences chat --data.chats CHATS

The agent itself writes the prompts, with the settings that it has behind a server; a program that knows the recorded
steps replies. Plans and immediate steps are those of the shards (`PlanTexts`), actions the recorded ones. A thought
(react) and a description (seeact) are the recorded thought, else the immediate step. Reflexion is taught both ways: at
every other step the first action is another step's, judged as wrong, and only the verdict and the second answer are
written. Histories are the replies so far; react shows 0, 1, 2, 4 or all of them, by episode. OUT/MODE.jsonl has one
chat for each reply; the same input writes the same bytes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import Turn
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.agent import DynamicPlanningAgent
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.llm.client import Completion
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode, Step, recorded_screen
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import atomic_write
from vlm_agent.sentences.html import one_line

OPTIONS: dict[str, dict[str, Any]] = {"reflexion": {"feedback": "own"}}
"""Settings of modes beside the defaults."""

ROUNDS = (0, 1, 2, 4, None)
"""Earlier rounds that react shows, from episode to episode; None: all."""


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
        assert self.step is not None
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


def chats_of(mode: str, episodes: Sequence[Episode]) -> list[dict]:
    """The chats of one mode, as rows of JSON lines. Raises DatasetError for a step without a plan."""
    options = OPTIONS.get(mode, {})
    settings = DynamicPlanningSettings(mode=mode, endpoint="http://localhost:1", model="none", screen="html", **options)
    agent = _unconnected(settings)
    calls = agent.calls
    for number, episode in enumerate(episodes):
        if mode == "react":
            agent = replace(agent, rounds=ROUNDS[number % len(ROUNDS)])
        _play(agent, calls, episode, reflects=mode == "reflexion")
    return [{"messages": [*messages, {"role": "assistant", "content": reply}]} for messages, reply in calls.chats]


def _unconnected(settings: DynamicPlanningSettings) -> Any:
    language = settings.language.build()
    return DynamicPlanningAgent(
        KnowingCalls(language),  # type: ignore[arg-type]
        settings._prompts(),
        language,
        settings._mode,
        None,
        settings._shown_examples,
        settings.feedback,
        settings.screen,
    )


def _play(agent: DynamicPlanningAgent, calls: KnowingCalls, episode: Episode, reflects: bool) -> None:
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


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="shards with plans")
    parser.add_argument("--split", default="train")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for MODE.jsonl")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE")
    parser.add_argument("--limit", type=int, metavar="N", help="episodes (default: all)")
    options = parser.parse_args(words)
    try:
        shards = ShardDataset(options.shards, split=options.split)
        episodes = [shards.without_pixels(number) for number in range(len(shards))[: options.limit]]
        for mode in options.modes:
            chats = chats_of(mode, episodes)
            path = options.output / f"{mode}.jsonl"
            with atomic_write(path) as temporary:
                lines = (json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats)
                temporary.write_text("".join(lines), encoding="utf-8")
            print(f"{path}: {len(chats):,} chats of {len(episodes):,} episodes")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
