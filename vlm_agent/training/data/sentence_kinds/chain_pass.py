"""What is known of a run on sources and targets before it: truncated sources, and the size of a pass."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from vlm_agent.models.cost import CostModel, Workload
from vlm_agent.training.data.data_module import Note
from vlm_agent.training.data.sentence_kinds.kind import PassCounts
from vlm_agent.training.data.stream import RowSize


def note_on_sources(steps: np.ndarray, limit: int, described: bool) -> Note:
    """How many sources are too long. `steps`: rows of `ChainOfActionsKind.counts` that are learned. `limit`:
    `data.max_source_tokens`. `described`: whether what follows the goal is the description of the screen."""
    total, shorter, cut = len(steps), int((steps["dropped"] > 0).sum()), int((steps["cut"] > 0).sum())
    lost, lost_tokens = int(steps["dropped"].sum()), int(steps["cut"].sum())
    after_goal = "screen description" if described else "texts (screen description, result)"
    line = (
        f"sources of at most {limit} tokens: of {total:,}, {shorter:,} ({shorter / total:.1%}) lose earlier "
        f"actions, {lost:,} in all; {cut:,} ({cut / total:.1%}) lose the end of their {after_goal}"
    )
    figures: dict[str, Any] = {
        "sources": total,
        "lose_actions": shorter,
        "actions_lost": lost,
        "lose_description": cut,
        "description_tokens_lost": lost_tokens,
        "mean_tokens": float(steps["source"].mean()),
        "max_tokens": int(steps["source"].max()),
    }
    return Note("truncated_sources", line, figures)


@dataclass(frozen=True)
class ChainPass(PassCounts):
    """`source_tokens`, `target_tokens`: mean and maximum. `largest_sentence`: the workload of the longest source with
    the longest target."""

    source_tokens: tuple[float, int]
    target_tokens: tuple[float, int]
    largest_sentence: Workload

    @classmethod
    def of(cls, steps: np.ndarray, cost: CostModel, vectors: np.ndarray) -> "ChainPass":
        """`steps`: rows of `ChainOfActionsKind.counts` that are learned. `vectors`: int64 (N,), the feature vectors of
        each."""
        source, target = steps["source"], steps["target"]
        longest = int(source.max()), int(target.max())
        return cls(
            episodes=len(np.unique(steps["episode"])),
            sentences=len(steps),
            longest=int((source + target).max()),
            actions=len(steps),
            load=_workload(cost, source, target, vectors),
            source_tokens=(float(source.mean()), longest[0]),
            target_tokens=(float(target.mean()), longest[1]),
            largest_sentence=_workload(cost, np.array(longest[:1]), np.array(longest[1:]), vectors.max(keepdims=True)),
        )

    def rows(self) -> dict[str, str]:
        return {
            "tokens a source": _mean_and_maximum(*self.source_tokens),
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
