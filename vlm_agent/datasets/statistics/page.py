"""Statistics as one self-contained HTML page, which loads nothing from elsewhere.

Goals are text from the data set, so they are escaped.
"""

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment

from vlm_agent.datasets.sources import SPLITS
from vlm_agent.datasets.statistics.charts import HEIGHT, WIDTH, histograms, shades
from vlm_agent.datasets.statistics.leakage import HELD_OUT, TRAIN
from vlm_agent.datasets.statistics.summary import Statistics, TokenBudget, spread
from vlm_agent.files import atomic_write
from vlm_agent.files.pages import page_environment

_TEMPLATE = "statistics.html.jinja"
_COUNTED = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written", "points_moved")
_SHOWN_SIZES = 12
_COMPASS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def write_page(
    output: Path, statistics: Statistics, manifest: Mapping, tokens: TokenBudget | None, facts: Mapping[str, str]
) -> None:
    """Writes the page to `output`, atomically.

    `facts` are shown in the heading: the shards and the selected part of them. The counts of the conversion are shown
    if the `manifest` contains them.
    """
    page = (
        _environment()
        .get_template(_TEMPLATE)
        .stream(
            facts=facts,
            conversion=conversion_counts(manifest),
            statistics=statistics,
            rows=[(subset, subset) for subset in statistics.subsets] + [("all", None)],
            splits=SPLITS,
            held_out=HELD_OUT,
            train=TRAIN,
            actions=statistics.action_names,
            plot=(WIDTH, HEIGHT),
            lengths=histograms({subset: statistics.steps_of_episodes(subset) for subset in statistics.subsets}),
            typed=histograms(statistics.typed),
            heat_maps={subset: shades(gestures.taps) for subset, gestures in statistics.gestures.items()},
            swipes={subset: _arrows(gestures.swipes) for subset, gestures in statistics.gestures.items()},
            sizes=statistics.screen_sizes.most_common(_SHOWN_SIZES),
            tokens=tokens,
            token_charts=None if tokens is None else histograms(tokens.counts, tokens.budget),
        )
    )
    with atomic_write(Path(output)) as part:
        page.dump(str(part), encoding="utf-8")


def conversion_counts(manifest: Mapping) -> dict[str, int]:
    """The counts of the conversion that the manifest has, in total or as the sum over its files."""
    files = manifest["files"]
    counts = {}
    for name in _COUNTED:
        if name in manifest:
            counts[name] = manifest[name]
        elif files and all(name in file for file in files):
            counts[name] = sum(file[name] for file in files)
    return counts | {"files": len(files)}


def _arrows(swipes: Mapping[str, int]) -> list[dict]:
    """For each direction, its share of the swipes in percent, and an arrow (dx, dy); the longest has length 1."""
    total = sum(swipes.values())
    if not total:
        return []
    shares = {direction: count / total for direction, count in swipes.items()}
    longest = max(shares.values())
    return [
        {"direction": direction, "share": 100 * share, "dx": dx * share / longest, "dy": dy * share / longest}
        for direction, share in shares.items()
        for dx, dy in [_COMPASS[direction]]
    ]


def _environment() -> Environment:
    environment = page_environment(Path(__file__).parent)
    environment.filters["number"] = lambda number: f"{number:,}"
    environment.filters["one"] = lambda number: f"{number:,.1f}"
    environment.filters["percent"] = lambda part, total: f"{100 * part / total:.1f}" if total else "–"
    environment.filters["spread"] = spread
    return environment
