"""The size of one pass over trajectories, from columns alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets.shards.columns import Columns
from vlm_agent.models.cost import Workload, causal_pairs
from vlm_agent.sentences.image_sizes import ScreenRule
from vlm_agent.training.data.sentence_kinds.kind import PassCounts
from vlm_agent.training.data.stream import Item
from vlm_agent.training.data.token_counts import TokenCounts


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
    items: Sequence[Item], counts: TokenCounts, sizes: np.ndarray, is_by_step: bool = False
) -> TrajectoryPass:
    """`items`: the sentences of a pass, of episodes of `counts`. `sizes`: int64 (S, 2), of each step's screen as the
    model sees it (`seen_sizes`). `is_by_step`: each step is a sentence, which is no split at a budget."""
    begins = np.cumsum(counts.lengths) - counts.lengths
    episode = counts.rows_of(np.array([item.episode for item in items], np.int64))
    first, learned, last = _bounds(items, counts.lengths[episode]) + begins[episode]
    tokens = _sentence_tokens(items, counts.whole[episode])
    times = _times_read(first, last, len(counts.step))
    parts = Counter(episode.tolist())
    cut = [] if is_by_step else [number for number in parts.values() if number > 1]
    supervised = np.concatenate([[0], np.cumsum(counts.action)])
    writable = np.concatenate([[0], np.cumsum(counts.is_writable)])
    read = counts.screen[times > 0]
    return TrajectoryPass(
        episodes=len(parts),
        over_budget=len(cut),
        windows=sum(cut),
        sentences=len(items),
        longest=int(tokens.max()),
        actions=int((writable[last] - writable[learned]).sum()),
        screen_tokens=(int(read.min()), float(np.average(counts.screen, weights=times)), int(read.max())),
        load=Workload(
            tokens=int(tokens.sum()),
            pairs=causal_pairs(tokens),
            supervised=int((supervised[last] - supervised[learned]).sum()),
            screens=_count_sizes(sizes, times),
        ),
    )


def _sentence_tokens(items: Sequence[Item], whole: np.ndarray) -> np.ndarray:
    """int64 (items,)"""
    lengths = zip(items, whole.tolist(), strict=True)
    return np.array([length if item.window is None else item.window.tokens for item, length in lengths], np.int64)


def _bounds(items: Sequence[Item], lengths: np.ndarray) -> np.ndarray:
    """int64 (3, items): first step, first supervised step, last step + 1, within the item's episode."""
    windows = [
        (0, 0, length) if item.window is None else (item.window.first, item.window.first_supervised, item.window.last)
        for item, length in zip(items, lengths.tolist(), strict=True)
    ]
    return np.array(windows, np.int64).T


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


def seen_sizes(columns: Columns, screens: ScreenRule) -> np.ndarray:
    """int64 (S, 2): (height, width) in pixels of each step's screen, as the model takes it."""
    stored, which = np.unique(np.stack([columns.height, columns.width], axis=1), axis=0, return_inverse=True)
    fitted = np.array([screens.fitted(*size) for size in stored.tolist()], np.int64)
    return fitted[which.ravel()]
