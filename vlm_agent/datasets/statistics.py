"""What is in a data set: counts, action mix, episode lengths, screen sizes, from columns alone (no pixel is read)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from vlm_agent.datasets.shard_schema import IN_STEPS
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.datasets.splits import SPLITS
from vlm_agent.episodes import ACTION_NAMES, SUBSETS, TAP_DISTANCE, Action, ActionKind, aitw_distance

_SHOWN_SIZES = 8


@dataclass(frozen=True)
class Statistics:
    """`lengths` are the steps of each episode by (subset, split); `actions` counts action names by subset;
    `screen_sizes` counts screens by (height, width)."""

    lengths: dict[tuple[str, str], np.ndarray]
    actions: dict[str, Counter[str]]
    screen_sizes: Counter[tuple[int, int]]

    @property
    def subsets(self) -> list[str]:
        """Those that have episodes, in AITW's order."""
        return [subset for subset in SUBSETS if subset in self.actions]

    def episodes(self, subset: str | None = None, split: str | None = None) -> int:
        return len(self._lengths(subset, split))

    def steps(self, subset: str | None = None, split: str | None = None) -> int:
        return int(self._lengths(subset, split).sum())

    def action_share(self, name: str, subset: str | None = None) -> float:
        """Percent of the steps, of one subset or of all, whose action is `name` (one of `ACTION_NAMES`)."""
        counts = [self.actions[subset]] if subset is not None else list(self.actions.values())
        total = sum(count.total() for count in counts)
        return 100 * sum(count[name] for count in counts) / total if total else 0.0

    def length_summary(self, subset: str | None = None) -> tuple[int, float, float, int]:
        """(min, median, mean, max) steps of an episode; zeros where there is none."""
        lengths = self._lengths(subset, None)
        if not len(lengths):
            return (0, 0.0, 0.0, 0)
        return (int(lengths.min()), float(np.median(lengths)), float(lengths.mean()), int(lengths.max()))

    def print(self, console: Console) -> None:
        for table in (self._counts_table(), self._actions_table(), self._lengths_table(), self._sizes_table()):
            console.print(table)

    def _lengths(self, subset: str | None, split: str | None) -> np.ndarray:
        found = [
            lengths
            for (its_subset, its_split), lengths in self.lengths.items()
            if subset in (None, its_subset) and split in (None, its_split)
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _rows(self) -> list[tuple[str, str | None]]:
        return [(subset, subset) for subset in self.subsets] + [("all", None)]

    def _counts_table(self) -> Table:
        table = _table("Episodes / steps", "subset", (*SPLITS, "all"))
        for name, subset in self._rows():
            cells = [(self.episodes(subset, split), self.steps(subset, split)) for split in (*SPLITS, None)]
            table.add_row(name, *(f"{episodes:,} / {steps:,}" if episodes else "–" for episodes, steps in cells))
        return table

    def _actions_table(self) -> Table:
        table = _table("Action mix (% of steps)", "subset", ACTION_NAMES)
        for name, subset in self._rows():
            table.add_row(name, *(f"{self.action_share(action, subset):.1f}" for action in ACTION_NAMES))
        return table

    def _lengths_table(self) -> Table:
        table = _table("Episode length (steps)", "subset", ("min", "median", "mean", "max"))
        for name, subset in self._rows():
            table.add_row(name, *(f"{value:g}" for value in np.round(self.length_summary(subset), 1)))
        return table

    def _sizes_table(self) -> Table:
        table = _table("Screen size (height × width)", "size", ("screens", "%"))
        total = self.screen_sizes.total()
        for (height, width), count in self.screen_sizes.most_common(_SHOWN_SIZES):
            table.add_row(f"{height} × {width}", f"{count:,}", f"{100 * count / total:.1f}")
        if others := self.screen_sizes.most_common()[_SHOWN_SIZES:]:
            rest = sum(count for _, count in others)
            table.add_row(f"{len(others)} other sizes", f"{rest:,}", f"{100 * rest / total:.1f}")
        return table


def summarise(dataset: ShardDataset) -> Statistics:
    """Reads the columns that are needed, of every episode of the data set."""
    table = dataset.table(["subset", "split", *(IN_STEPS + name for name in ("action_kind", "touch_yx", "lift_yx"))])
    sizes = dataset.screen_sizes
    lengths: dict[tuple[str, str], list[int]] = {}
    for subset, split, screens in zip(dataset.subsets, dataset.splits, sizes, strict=True):
        lengths.setdefault((subset, split), []).append(len(screens))
    return Statistics(
        lengths={key: np.asarray(value, np.int64) for key, value in lengths.items()},
        actions=_actions(table),
        screen_sizes=Counter(size for screens in sizes for size in screens),
    )


def _actions(table: pa.Table) -> dict[str, Counter[str]]:
    steps = table["steps"].combine_chunks()
    per_episode = np.diff(steps.offsets.to_numpy())
    names = _action_names(steps.flatten())
    subsets = np.repeat(table["subset"].to_numpy(zero_copy_only=False), per_episode)
    return {subset: Counter(names[subsets == subset].tolist()) for subset in np.unique(subsets)}


def _action_names(steps: pa.StructArray) -> np.ndarray:
    """The name of each action, as `Action.name` gives it."""
    kinds = steps.field("action_kind").to_numpy()
    touch, lift = (steps.field(name).flatten().to_numpy().reshape(-1, 2) for name in ("touch_yx", "lift_yx"))
    is_tap = aitw_distance(touch, lift) <= np.float32(TAP_DISTANCE)
    names = np.where(is_tap, "tap", "swipe").astype(object)
    for kind in set(ActionKind) - {ActionKind.DUAL_POINT}:
        names[kinds == kind] = Action(kind).name
    return names


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table
