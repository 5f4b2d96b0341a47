"""Rollouts: an agent that samples plays tasks, several phones at once, and what it drew is recorded.

A record has no screens: the phone draws the same ones when the recorded answers are performed again (`replayed`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import cast

from vlm_agent.agents import NoAnswerError, Usage
from vlm_agent.agents.decoding.sampling import Sampling
from vlm_agent.agents.vlm.agent import Prompt, VlmAgent
from vlm_agent.devices.acting.episode import Outcome, untraced_turns
from vlm_agent.devices.acting.loop import Ending, Turns, answered_together
from vlm_agent.errors import DatasetError, RecipeError
from vlm_agent.recipe.reinforcement import RewardRecipe
from vlm_agent.sentences.trajectory import TrajectorySentences, swipe_targets
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.corrections import Corrector
from vlm_agent.simulator.opening import SimulatedTask

_DIGITS = 16
"""Hexadecimal digits of a phone's digest: 64 bits."""


@dataclass(frozen=True)
class RecordedAnswer:
    """One answer of a rollout: its token `ids`, the log-probability with which each was sampled, the mean entropy
    (nats) of their distributions, and a digest of the `state` of the phone before it. `correction`: the tokens of the
    expert's answer in that state; empty where it has none, or the method asks for none."""

    ids: list[int]
    log_probabilities: list[float]
    entropy: float
    state: str
    correction: list[int] = field(default_factory=list)

    def corrected(self) -> "RecordedAnswer":
        """The expert's answer, which was not sampled, if there is one."""
        if not self.correction:
            return self
        return replace(self, ids=self.correction, log_probabilities=[math.nan] * len(self.correction))


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


def rollout_turns(
    task: SimulatedTask, sample: int, states: list[str], look: Callable[[SimulatedPhone], None] = lambda _: None
) -> Turns[tuple[Ending, Outcome]]:
    """One rollout; the caller answers. Before each answer, a digest of the phone is appended to `states`, and `look` is
    called."""
    with task.open() as opened:
        phone = cast("SimulatedPhone", opened.device)
        run = untraced_turns(opened, f"{task.name}#{sample}", task.solution())
        try:
            asked = next(run)
            while True:
                states.append(phone.digest().hex()[:_DIGITS])
                look(phone)
                asked = run.send((yield asked))
        except StopIteration as end:
            return end.value


class Corrections:
    """The expert's answers to the screens of a rollout, as the agent would write them: the tokens of each."""

    def __init__(self, task: SimulatedTask, sentences: TrajectorySentences) -> None:
        self.corrector, self.sentences = Corrector(task.task, task.solution().actions), sentences
        self.answers: list[list[int]] = []

    def look(self, phone: SimulatedPhone) -> None:
        steps, language = self.corrector.steps(phone), self.sentences.language
        target = swipe_targets(steps)[0] if steps and language.name_swipe_targets else None
        text = language.encode(steps[0].action, steps[0].screen, target) if steps else ""
        is_writable = bool(steps) and self.sentences.writes(text)
        self.answers.append([*self.sentences.ids(text), self.sentences.end_mark] if is_writable else [])


def play(
    agent: VlmAgent, wave: Sequence[tuple[str, int]], temperature: float, seed: str, is_corrected: bool = False
) -> list[Rollout]:
    """The rollouts (task, sample) of a wave, in common forward passes: rounding depends on who else is in the wave, so
    equal waves have equal results. `is_corrected`: whether answers have corrections. Raises RecipeError for a model
    that cannot play several phones."""
    sampling = Sampling(temperature, seed)
    together = replace(agent, sampling=sampling).together()
    if together is None:
        raise RecipeError("reinforcement needs a decoder-only model, such as phone_vlm_tiny or Qwen-VL; change model")
    states: list[list[str]] = [[] for _ in wave]
    experts = [Corrections(task_at(task), agent.sentences) for task, _ in wave] if is_corrected else []
    runs = [
        rollout_turns(task_at(task), sample, states[number], *[one.look for one in experts[number : number + 1]])
        for number, (task, sample) in enumerate(wave)
    ]
    ends: dict[int, tuple[Ending, Outcome]] = {}
    for number, end in answered_together(runs, together, len(runs)):
        if isinstance(end, NoAnswerError):
            raise end
        ends[number] = end
    corrections = [one.answers for one in experts] or [[[] for _ in own] for own in states]
    return [
        _recorded(*one, sampling, states[number], corrections[number], *ends[number]) for number, one in enumerate(wave)
    ]


def _recorded(
    task: str,
    sample: int,
    sampling: Sampling,
    states: Sequence[str],
    corrections: Sequence[list[int]],
    ending: Ending,
    outcome: Outcome,
) -> Rollout:
    drawn = [sampling.answers[f"{task}#{sample}", step] for step in range(len(states))]
    answers = [
        RecordedAnswer(one.ids, one.log_probabilities, fmean(one.entropies), state, correction)
        for one, state, correction in zip(drawn, states, corrections, strict=True)
    ]
    return Rollout(task, sample, task_at(task).template, answers, outcome, ending.unparsed)


def replayed(rollout: Rollout, agent: VlmAgent) -> Iterator[Prompt]:
    """The prompt of each answer, as the agent read it. Raises DatasetError where the phone does not do what it did."""
    states: list[str] = []
    run = rollout_turns(task_at(rollout.task), rollout.sample, states)
    asked = next(run)
    for step, recorded in enumerate(rollout.answers):
        if states[step:] != [recorded.state]:
            raise DatasetError(
                f"the phone of task {rollout.task} is in another state than when sample {rollout.sample} was played; "
                "remove the folder of this round in RUN/rounds and the checkpoints after its start, and run the same "
                "command again to play it again"
            )
        prompt = agent.prompt(*asked)
        yield prompt
        with suppress(StopIteration):
            asked = run.send((prompt.answer(recorded.ids, Usage()), 0.0))
