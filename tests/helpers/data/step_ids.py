"""Texts and token ids of the sources and targets of single steps, by their parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.episodes import Screen, Step
from vlm_agent.sentences.steps import StepSentences, StepSource


@dataclass(frozen=True)
class Target:
    """`plan_ids`: the plan, up to and with the heading of the decision. `decision_ids`: the action and the end mark."""

    thought_ids: list[int]
    plan_ids: list[int]
    decision_ids: list[int]

    def __len__(self) -> int:
        return len(self.thought_ids) + len(self.plan_ids) + len(self.decision_ids)


def source_ids(sentences: StepSentences, source: StepSource) -> list[int]:
    return sentences.encode(source.segments, ()).input_ids


def target_of(sentences: StepSentences, steps: Sequence[Step]) -> Target:
    segments = sentences.target(steps)
    parts = ([each for each in segments if each.role == role] for role in ("thought", "plan", "action"))
    return Target(*(sentences.encode(part, ()).input_ids for part in parts))


def source_text(sentences: StepSentences, goal: str, past: Sequence[Step], screen: Screen) -> str:
    """The text of a source of any length, which needs no tokenizer."""
    head, actions, goal_text, description = sentences._texts(goal, past, screen)
    return " ".join([*head, *actions, goal_text, *description])


def target_text(sentences: StepSentences, steps: Sequence[Step]) -> str:
    """The text of a target, without the end mark."""
    return "".join(segment.text or "" for segment in sentences._target_texts(steps))
