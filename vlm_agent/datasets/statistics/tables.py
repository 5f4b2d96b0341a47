"""Statistics as tables on the terminal."""

from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from vlm_agent.datasets.sources import SPLITS
from vlm_agent.datasets.statistics.summary import Statistics, TokenBudget, spread
from vlm_agent.files.console import new_table

_SHOWN_SIZES = 8
_SPREAD = ("min", "median", "mean", "max")


def print_statistics(console: Console, statistics: Statistics, tokens: TokenBudget | None = None) -> None:
    console.print(_counts_table(statistics))
    console.print(_actions_table(statistics))
    console.print(_lengths_table(statistics))
    console.print(_sizes_table(statistics))
    if statistics.leaks:
        console.print(_leaks_table(statistics))
    if tokens is not None:
        console.print(_tokens_table(statistics, tokens))


def _counts_table(statistics: Statistics) -> Table:
    table = new_table("Episodes / steps", ("subset", *SPLITS, "all"))
    for name, subset in _rows(statistics):
        cells = [(statistics.episodes(subset, split), statistics.steps(subset, split)) for split in (*SPLITS, None)]
        table.add_row(name, *(f"{episodes:,} / {steps:,}" if episodes else "–" for episodes, steps in cells))
    return table


def _actions_table(statistics: Statistics) -> Table:
    table = new_table("Action mix (% of steps)", ("subset", *statistics.action_names))
    for name, subset in _rows(statistics):
        table.add_row(name, *(f"{statistics.action_share(action, subset):.1f}" for action in statistics.action_names))
    return table


def _lengths_table(statistics: Statistics) -> Table:
    table = new_table("Episode length (steps)", ("subset", *_SPREAD))
    for name, subset in _rows(statistics):
        table.add_row(name, *_spread_cells(statistics.steps_of_episodes(subset)))
    return table


def _sizes_table(statistics: Statistics) -> Table:
    table = new_table("Screen size (height × width)", ("size", "screens", "%"))
    sizes = statistics.screen_sizes
    total = sizes.total()
    for (height, width), count in sizes.most_common(_SHOWN_SIZES):
        table.add_row(f"{height} × {width}", f"{count:,}", f"{100 * count / total:.1f}")
    if others := sizes.most_common()[_SHOWN_SIZES:]:
        rest = sum(count for _, count in others)
        table.add_row(f"{len(others)} other sizes", f"{rest:,}", f"{100 * rest / total:.1f}")
    return table


def _leaks_table(statistics: Statistics) -> Table:
    table = new_table(
        "Goals in train (ignoring case and white space)", ("split", "goals", "seen", "episodes", "seen", "%")
    )
    for split, leak in statistics.leaks.items():
        counts = (leak.goals, leak.goals_seen, leak.episodes, leak.episodes_seen)
        table.add_row(split, *(f"{count:,}" for count in counts), f"{leak.share:.1f}")
    return table


def _tokens_table(statistics: Statistics, tokens: TokenBudget) -> Table:
    over = f"> {tokens.budget:,}"
    table = new_table(f"Tokens of a whole trajectory ({tokens.recipe})", ("subset", *_SPREAD, over, "%"))
    for name, subset in _rows(statistics):
        counts, exceeding = tokens.of(subset), tokens.exceeding(subset)
        table.add_row(name, *_spread_cells(counts), f"{exceeding:,}", f"{100 * exceeding / max(1, len(counts)):.1f}")
    return table


def _rows(statistics: Statistics) -> Iterator[tuple[str, str | None]]:
    yield from ((subset, subset) for subset in statistics.subsets)
    yield "all", None


def _spread_cells(values: np.ndarray) -> list[str]:
    return [f"{round(value, 1):,g}" if value < 1e5 else f"{value:,.0f}" for value in spread(values)]
