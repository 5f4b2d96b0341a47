"""Rollouts: an agent that samples plays tasks, several phones at once, and what it drew is recorded.

A record has no screens: the phone draws the same ones when the recorded answers are performed again (`replayed`).
"""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import cast

from vlm_agent.agents import Answer, Asked, NoAnswerError, Usage
from vlm_agent.agents.decoding.sampling import Sampling
from vlm_agent.agents.vlm.agent import Prompt, VlmAgent
from vlm_agent.devices.acting.episode import Outcome, untraced_turns
from vlm_agent.devices.acting.loop import Ending, Turns, answered_together
from vlm_agent.episodes import Step
from vlm_agent.errors import DatasetError, RecipeError
from vlm_agent.recipe.reinforcement import RewardRecipe
from vlm_agent.reinforcement.methods import Trial
from vlm_agent.sentences.trajectory import TrajectorySentences, swipe_targets
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.corrections import Corrector
from vlm_agent.simulator.opening import SimulatedTask

_DIGITS = 16
"""Hexadecimal digits of a phone's digest: 64 bits."""


@dataclass(frozen=True)
class RecordedAnswer:
    """One answer of a rollout: its token `ids`, the log-probability with which each was sampled (0 where the expert
    answered), the mean entropy (nats) of the agent's distributions, and a digest of the `state` of the phone before it.
    `correction`: the tokens of the expert's answer in that state; empty where it has none, or the method needs none."""

    ids: list[int]
    log_probabilities: list[float]
    entropy: float
    state: str
    correction: list[int] = field(default_factory=list)

    def corrected(self) -> "RecordedAnswer":
        """The expert's answer, which was not sampled; its own where there is none."""
        ids = self.correction or self.ids
        return replace(self, ids=ids, log_probabilities=[math.nan] * len(ids))


@dataclass(frozen=True)
class Rollout:
    """`task`: SUBSET/SPLIT/SEED. `sample`: its number among the rollouts of the task, from 0. `unparsed`: the number of
    answers that were not actions."""

    task: str
    sample: int
    template: str
    answers: list[RecordedAnswer]
    outcome: Outcome
    unparsed: int

    @classmethod
    def of_record(cls, record: dict) -> "Rollout":
        """From `asdict`."""
        answers = [RecordedAnswer(**one) for one in record["answers"]]
        return cls(**record | {"answers": answers, "outcome": Outcome(**record["outcome"])})

    def trial(self, rewards: RewardRecipe) -> Trial:
        """What a method reads."""
        states, corrected = [one.state for one in self.answers], [bool(one.correction) for one in self.answers]
        return Trial(self.reward(rewards), bool(self.outcome.success), states, corrected)

    def reward(self, rewards: RewardRecipe) -> float:
        outcome = self.outcome
        return (
            rewards.success * bool(outcome.success)
            + rewards.false_complete * bool(outcome.false_complete)
            + rewards.side_effect * bool(outcome.side_effects)
            + rewards.not_an_action * bool(self.unparsed)
        )


def task_at(name: str) -> SimulatedTask:
    """The task SUBSET/SPLIT/SEED."""
    task = SimulatedTask.at(name)
    assert task is not None  # noqa: S101 (a plan has a checksum)
    return task


@dataclass
class Seen:
    """What is recorded of a rollout on each screen: the `states` of the phone and, with an expert, the tokens of its
    `corrections` as the agent would write them, empty where it has none. It performs the `share` of the answers that
    `rng` draws itself: those of `taken`."""

    agent: VlmAgent
    expert: Corrector | None = None
    share: float = 0.0
    rng: random.Random = field(default_factory=random.Random)
    states: list[str] = field(default_factory=list)
    corrections: list[list[int]] = field(default_factory=list)
    taken: list[bool] = field(default_factory=list)

    def look(self, phone: SimulatedPhone) -> None:
        self.states.append(phone.digest().hex()[:_DIGITS])
        steps = () if self.expert is None else self.expert.steps(phone)
        self.corrections.append(_answer(steps, self.agent.sentences) if steps else [])
        self.taken.append(bool(self.corrections[-1]) and self.rng.random() < self.share)

    def answered(self, asked: Asked, answer: Answer) -> Answer:
        """The answer that is performed."""
        return self.agent.prompt(*asked).answer(self.corrections[-1], Usage()) if self.taken[-1] else answer


def _answer(steps: Sequence[Step], sentences: TrajectorySentences) -> list[int]:
    """The tokens of the first step's action; empty if it is not writable."""
    language, first = sentences.language, steps[0]
    target = swipe_targets(steps)[0] if language.name_swipe_targets else None
    text = language.encode(first.action, first.screen, target)
    return [*sentences.ids(text), sentences.end_mark] if sentences.writes(text) else []


def rollout_turns(task: SimulatedTask, sample: int, seen: Seen) -> Turns[tuple[Ending, Outcome]]:
    """One rollout; the caller answers. `seen` looks at the phone before each answer."""
    with task.open() as opened:
        phone = cast("SimulatedPhone", opened.device)
        run = untraced_turns(opened, f"{task.name}#{sample}", task.solution())
        try:
            asked = next(run)
            while True:
                seen.look(phone)
                answer, seconds = yield asked
                asked = run.send((seen.answered(asked, answer), seconds))
        except StopIteration as end:
            return end.value


def play(
    agent: VlmAgent, wave: Sequence[tuple[str, int]], temperature: float, seed: str, expert_share: float | None = None
) -> list[Rollout]:
    """The rollouts (task, sample) of a wave, in common forward passes: rounding depends on who else is in the wave, so
    equal waves have equal results. `expert_share`: see `Method`. Raises RecipeError for a model that cannot play
    several phones."""
    sampling = Sampling(temperature, seed)
    together = replace(agent, sampling=sampling).together()
    if together is None:
        raise RecipeError("reinforcement needs a decoder-only model, such as phone_vlm_tiny or Qwen-VL; change model")
    seen = [Seen(agent) for _ in wave]
    if expert_share is not None:
        seen = [_beside_expert(agent, *one, expert_share, seed) for one in wave]
    runs = [rollout_turns(task_at(task), sample, own) for (task, sample), own in zip(wave, seen, strict=True)]
    ends: dict[int, tuple[Ending, Outcome]] = {}
    for number, end in answered_together(runs, together, len(runs)):
        if isinstance(end, NoAnswerError):
            raise end
        ends[number] = end
    return [_recorded(*one, sampling, seen[number], *ends[number]) for number, one in enumerate(wave)]


def _beside_expert(agent: VlmAgent, task: str, sample: int, share: float, seed: str) -> Seen:
    expert = Corrector(task_at(task).task, task_at(task).solution().actions)
    return Seen(agent, expert, share, random.Random(f"{seed}/{task}#{sample}"))  # noqa: S311 (no secret)


def _recorded(task: str, sample: int, sampling: Sampling, seen: Seen, ending: Ending, outcome: Outcome) -> Rollout:
    drawn = [sampling.answers[f"{task}#{sample}", step] for step in range(len(seen.states))]
    answers = [
        RecordedAnswer(correction, [0.0] * len(correction), fmean(one.entropies), state, correction)
        if is_taken
        else RecordedAnswer(one.ids, one.log_probabilities, fmean(one.entropies), state, correction)
        for one, state, correction, is_taken in zip(drawn, seen.states, seen.corrections, seen.taken, strict=True)
    ]
    return Rollout(task, sample, task_at(task).template, answers, outcome, ending.unparsed)


def replayed(rollout: Rollout, agent: VlmAgent) -> Iterator[Prompt]:
    """The prompt of each answer, as the agent read it. Raises DatasetError where the phone does not do what it did."""
    seen = Seen(agent)
    run = rollout_turns(task_at(rollout.task), rollout.sample, seen)
    asked = next(run)
    for step, recorded in enumerate(rollout.answers):
        if seen.states[step:] != [recorded.state]:
            raise DatasetError(
                f"the phone of task {rollout.task} is in another state than when sample {rollout.sample} was played; "
                "remove the folder of this round in RUN/rounds and the checkpoints after its start, and run the same "
                "command again to play it again"
            )
        prompt = agent.prompt(*asked)
        yield prompt
        with suppress(StopIteration):
            asked = run.send((prompt.answer(recorded.ids, Usage()), 0.0))
