"""What is known of a run on sources and targets before it: truncated sources, and the size of a pass."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.models.cost import CostModel, Workload
from vlm_agent.sentences.steps import StepSentences
from vlm_agent.sentences.thoughts import controlled_texts
from vlm_agent.training.data.data_module import Note
from vlm_agent.training.data.sentence_kinds.chain_counts import ChainCounts
from vlm_agent.training.data.sentence_kinds.kind import PassCounts
from vlm_agent.training.data.stream import RowSize

SAMPLE = 2_000
"""Steps whose screen descriptions are read, spread evenly over the run: all of them would take hours."""


@dataclass(frozen=True)
class Truncation:
    """Sources that are too long. `source`: int64 (N,), tokens of the sources of the run or of a sample of them.
    `dropped`: int64 (N,), the earlier actions that each loses, `cut`: the tokens of what follows the goal
    (`after_goal`). `steps`: the learned steps of the run. `limit`: `data.max_source_tokens`."""

    source: np.ndarray
    dropped: np.ndarray
    cut: np.ndarray
    steps: int
    limit: int
    after_goal: str = "screen description"

    @property
    def is_sample(self) -> bool:
        return len(self.source) < self.steps

    def note(self) -> Note:
        """A line for the terminal and the figures for run.json."""
        total = len(self.source)
        of = f"a sample of {total:,} of {self.steps:,}" if self.is_sample else f"{total:,}"
        shorter, cut = int((self.dropped > 0).sum()), int((self.cut > 0).sum())
        line = (
            f"sources of at most {self.limit} tokens: of {of}, {shorter:,} ({shorter / total:.1%}) lose earlier "
            f"actions, {int(self.dropped.sum()):,} in all; {cut:,} ({cut / total:.1%}) lose the end of their "
            f"{self.after_goal}"
        )
        figures: dict[str, Any] = {
            "sources": total,
            "is_sample": self.is_sample,
            "lose_actions": shorter,
            "actions_lost": int(self.dropped.sum()),
            "lose_description": cut,
            "description_tokens_lost": int(self.cut.sum()),
            "mean_tokens": float(self.source.mean()),
            "max_tokens": int(self.source.max()),
        }
        return Note("truncated_sources", line, figures)


_TEXTS = "texts (screen description, result)"


def truncation_of(counts: ChainCounts, sentences: StepSentences) -> Truncation:
    """The truncation of every learned step, without a screen's elements."""
    source, dropped, cut = (each[counts.is_learned] for each in (counts.source, counts.dropped, counts.cut))
    truncation = Truncation(source, dropped, cut, len(source), sentences.max_source_tokens)
    return replace(truncation, after_goal=_TEXTS) if sentences.thoughts.parts.read else truncation


def sample_sources(
    shards: ShardDataset, sentences: StepSentences, counts: ChainCounts, control: str | None
) -> Truncation:
    """Sources of `SAMPLE` learned steps, whose sources are built: the length of a description is known only from its
    text.

    Raises RecipeError if none of these steps has elements.
    """
    learned = np.flatnonzero(counts.is_learned)
    chosen = learned[np.unique(np.linspace(0, len(learned) - 1, min(SAMPLE, len(learned))).astype(np.int64))]
    lengths, losses, described = [], [], False
    for step in chosen.tolist():
        episode, number = shards.without_pixels(int(counts.episode_of[step])), int(counts.step_of[step])
        episode = controlled_texts(episode, sentences.thoughts.parts, control)
        if control == "no_history":
            episode, number = replace(episode, steps=episode.steps[number:]), 0
        described = described or bool(episode.steps[number].elements)
        source = sentences.source_of(episode, number)
        lengths.append(len(source.ids))
        losses.append((source.dropped, source.cut))
    if not described:
        raise RecipeError(
            f"data.elements is true, and none of {len(chosen):,} steps that were read from {shards.directory} has "
            "elements; choose shards of a source with elements, or set data.elements to false"
        )
    dropped, cut = np.array(losses, np.int64).T
    return Truncation(np.array(lengths, np.int64), dropped, cut, len(learned), sentences.max_source_tokens)


@dataclass(frozen=True)
class ChainPass(PassCounts):
    """`source_tokens`, `target_tokens`: mean and maximum. `is_sample`: whether sources are those of a sample.
    `largest_sentence`: the workload of the longest source with the longest target."""

    source_tokens: tuple[float, int]
    target_tokens: tuple[float, int]
    is_sample: bool
    largest_sentence: Workload

    @classmethod
    def of(cls, counts: ChainCounts, truncation: Truncation, cost: CostModel, vectors: np.ndarray) -> "ChainPass":
        """`vectors`: int64 (N,), the feature vectors of each learned step."""
        target, source = counts.target[counts.is_learned], truncation.source
        repeated = np.resize(source, len(target))  # a sample, repeated to the number of steps
        longest = int(source.max()), int(target.max())
        return cls(
            episodes=len(np.unique(counts.episode_of[counts.is_learned])),
            sentences=len(target),
            longest=sum(longest),
            actions=len(target),
            load=_workload(cost, repeated, target, vectors),
            source_tokens=(float(source.mean()), longest[0]),
            target_tokens=(float(target.mean()), longest[1]),
            is_sample=truncation.is_sample,
            largest_sentence=_workload(cost, np.array(longest[:1]), np.array(longest[1:]), vectors.max(keepdims=True)),
        )

    def rows(self) -> dict[str, str]:
        of_sample = " (sample)" if self.is_sample else ""
        return {
            f"tokens a source{of_sample}": _mean_and_maximum(*self.source_tokens),
            "tokens a target": _mean_and_maximum(*self.target_tokens),
        }

    def largest_row(self, size: RowSize) -> Workload:
        return self.largest_sentence * (size.sentences or 1)


def _mean_and_maximum(mean: float, most: int) -> str:
    return f"{mean:,.0f} (at most {most:,})"


def _workload(cost: CostModel, source: np.ndarray, target: np.ndarray, vectors: np.ndarray) -> Workload:
    """The work of a batch of these lengths (N,), without padding."""
    counts = {"source_lengths": source, "target_lengths": target, "feature_counts": vectors}
    return cost.workload({name: column.tolist() for name, column in counts.items()})
