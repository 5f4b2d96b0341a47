"""The size of one pass over trajectories."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from vlm_agent.models.cost import Workload, causal_pairs
from vlm_agent.training.data.sentence_kinds.kind import PassCounts


@dataclass(frozen=True)
class TrajectoryPass(PassCounts):
    """`screen_tokens`: minimum, mean and maximum of a screen. `over_budget`: episodes that are split into `windows`."""

    over_budget: int
    windows: int
    screen_tokens: tuple[int, float, int]

    def rows(self) -> dict[str, str]:
        fewest, mean, most = self.screen_tokens
        return {
            "over the budget": f"{self.over_budget:,} episodes, cut into {self.windows:,} windows"
            if self.over_budget
            else "none",
            "tokens a screen": f"{mean:,.0f}" if fewest == most else f"{mean:,.0f} ({fewest:,} to {most:,})",
        }


def count_trajectories(
    sentences: np.ndarray, steps: np.ndarray, sizes: np.ndarray, is_by_step: bool = False
) -> TrajectoryPass:
    """`sentences`, `steps`: rows of `TrajectoryKind.counts`, sentences in the order of the steps. `sizes`: int64
    (S, 2), (height, width) of each step's screen as the model sees it. `is_by_step`: each step is a sentence, which is
    no split at a budget."""
    begins = np.searchsorted(steps["episode"], sentences["episode"])
    first, last = begins + sentences["first"], begins + sentences["last"]
    times = _times_read(first, last, len(steps))
    parts = np.unique(sentences["episode"], return_counts=True)[1]
    cut = parts[:0] if is_by_step else parts[parts > 1]
    read = steps["screen"][times > 0]
    return TrajectoryPass(
        episodes=len(parts),
        over_budget=len(cut),
        windows=int(cut.sum()),
        sentences=len(sentences),
        longest=int(sentences["tokens"].max()),
        actions=int(sentences["actions"].sum()),
        screen_tokens=(int(read.min()), float(np.average(steps["screen"], weights=times)), int(read.max())),
        load=Workload(
            tokens=int(sentences["tokens"].sum()),
            pairs=causal_pairs(sentences["tokens"]),
            supervised=int(sentences["supervised"].sum()),
            screens=_count_sizes(sizes, times),
        ),
    )


def _times_read(first: np.ndarray, last: np.ndarray, steps: int) -> np.ndarray:
    """int64 (steps,): the number of sentences that contain each step."""
    changes = np.bincount(first, minlength=steps + 1) - np.bincount(last, minlength=steps + 1)
    return np.cumsum(changes)[:-1]


def _count_sizes(sizes: np.ndarray, times: np.ndarray) -> Counter[tuple[int, int]]:
    different, which = np.unique(sizes, axis=0, return_inverse=True)
    counts = np.bincount(which.ravel(), times).astype(np.int64)
    return Counter(
        {tuple(size): count for size, count in zip(different.tolist(), counts.tolist(), strict=True) if count}
    )
