"""Rollouts: an agent that samples plays tasks, several phones at once, and what it drew is recorded.

A record has no screens: the phone draws the same ones when the recorded answers are performed again (`replayed`).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import cast

from vlm_agent.agents import NoAnswerError, Usage
from vlm_agent.agents.decoding.sampling import Sampling
from vlm_agent.agents.vlm.agent import Prompt, VlmAgent
from vlm_agent.devices.acting.episode import Outcome, untraced_turns
from vlm_agent.devices.acting.loop import Ending, Turns, answered_together
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError, RecipeError
from vlm_agent.recipe.reinforcement import RewardRecipe
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.opening import SimulatedTask

_DIGITS = 16
"""Hexadecimal digits of a phone's digest: 64 bits."""


@dataclass(frozen=True)
class RecordedAnswer:
    """One answer of a rollout: its token `ids`, the log-probability with which each was sampled, the mean entropy
    (nats) of their distributions, and a digest of the `state` of the phone before it."""

    ids: list[int]
    log_probabilities: list[float]
    entropy: float
    state: str


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


def rollout_turns(task: SimulatedTask, sample: int, states: list[str]) -> Turns[tuple[Ending, Outcome]]:
    """One rollout; the caller answers. A digest of the phone is appended to `states` before each answer."""
    with task.open() as opened:
        phone = cast("SimulatedPhone", opened.device)
        run = untraced_turns(opened, f"{task.name}#{sample}", task.solution())
        try:
            asked = next(run)
            while True:
                states.append(phone.digest().hex()[:_DIGITS])
                asked = run.send((yield asked))
        except StopIteration as end:
            return end.value


def play(agent: VlmAgent, wave: Sequence[tuple[str, int]], temperature: float, seed: str) -> list[Rollout]:
    """The rollouts (task, sample) of a wave, in common forward passes: rounding depends on who else is in the wave, so
    equal waves have equal results. Raises RecipeError for a model that cannot play several phones."""
    sampling = Sampling(temperature, seed)
    together = replace(agent, sampling=sampling).together()
    if together is None:
        raise RecipeError("reinforcement needs a decoder-only model, such as phone_vlm_tiny or Qwen-VL; change model")
    states: list[list[str]] = [[] for _ in wave]
    runs = [rollout_turns(task_at(task), sample, own) for (task, sample), own in zip(wave, states, strict=True)]
    ends: dict[int, tuple[Ending, Outcome]] = {}
    for number, end in answered_together(runs, together, len(runs)):
        if isinstance(end, NoAnswerError):
            raise end
        ends[number] = end
    return [_recorded(*one, sampling, states[number], *ends[number]) for number, one in enumerate(wave)]


def _recorded(
    task: str, sample: int, sampling: Sampling, states: Sequence[str], ending: Ending, outcome: Outcome
) -> Rollout:
    drawn = [sampling.answers[f"{task}#{sample}", step] for step in range(len(states))]
    answers = [
        RecordedAnswer(one.ids, one.log_probabilities, fmean(one.entropies), state)
        for one, state in zip(drawn, states, strict=True)
    ]
    return Rollout(task, sample, task_at(task).template, answers, outcome, ending.unparsed)


def replayed(rollout: Rollout, agent: VlmAgent) -> Iterator[tuple[Prompt, Action | None]]:
    """The prompt of each answer, as the agent read it, and the action that the answer encodes. Raises DatasetError
    where the phone does not do what it did."""
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
        answer = prompt.answer(recorded.ids, Usage())
        yield prompt, answer.action
        with suppress(StopIteration):
            asked = run.send((answer, 0.0))
