"""Statistics as one self-contained HTML page: nothing in it is loaded from elsewhere, and every word of a goal is
escaped, because goals are other people's text.
"""

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vlm_agent.datasets import written_whole
from vlm_agent.datasets.charts import HEIGHT, WIDTH, histograms, shades
from vlm_agent.datasets.goals import HELD_OUT, TRAIN
from vlm_agent.datasets.splits import SPLITS
from vlm_agent.datasets.statistics import Statistics, TokenBudget, spread
from vlm_agent.episodes import ACTION_NAMES

_TEMPLATE = "statistics.html.jinja"
_COUNTED = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written")
_SHOWN_SIZES = 12
_COMPASS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def write_page(
    output: Path, statistics: Statistics, manifest: Mapping, tokens: TokenBudget | None, facts: Mapping[str, str]
) -> None:
    """Writes the page to `output`, whole or not at all. `facts` head it: which shards, which part of them.

    The conversion's counts are shown as far as the `manifest` has them.
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
            actions=ACTION_NAMES,
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
    with written_whole(Path(output)) as part:
        page.dump(str(part), encoding="utf-8")


def conversion_counts(manifest: Mapping) -> dict[str, int]:
    """What the conversion counted, of what the manifest has: for the whole, or a file and then added up."""
    files = manifest["files"]
    counts = {}
    for name in _COUNTED:
        if name in manifest:
            counts[name] = manifest[name]
        elif files and all(name in file for file in files):
            counts[name] = sum(file[name] for file in files)
    return counts | {"files": len(files)}


def _arrows(swipes: Mapping[str, int]) -> list[dict]:
    """Of each direction its share of the swipes, and the end of an arrow as long as that share, from (0, 0) to 1."""
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
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = lambda name: name.replace("_", " ")
    environment.filters["number"] = lambda number: f"{number:,}"
    environment.filters["one"] = lambda number: f"{number:,.1f}"
    environment.filters["percent"] = lambda part, whole: f"{100 * part / whole:.1f}" if whole else "–"
    environment.filters["spread"] = spread
    return environment
