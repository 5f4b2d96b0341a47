"""Figures and a table from the runs."""

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.training.rounds import ROADS
from benchmarks.training.stopwatch import PARTS

RATIOS = (
    ("packed", "step_samples", 4.0),
    ("packed", "padded", 1.3),
    ("packed", "trl", 1.2),
    ("packed", "trl_labels_only", None),
)
"""(one road, over another, the target of supervised actions a second)"""

LESS_MEMORY_THAN = ("step_samples", "padded")
"""What ours is to stay below."""


def figures_of(runs: dict[str, list[dict]], apart: dict) -> dict:
    """`roads`: each one's figures in its best round; `ratios` of their actions a second by the wall, and by processor
    time; `memory_ratios`: the peak of ours as a share of theirs; `apart`: relative differences of gradients.
    """
    roads = {name: _best(each) for name, each in runs.items()}
    known = [(over, under) for over, under, _ in RATIOS if over in roads and under in roads]

    def ratios(figure: str) -> dict[str, float]:
        return {f"{a}/{b}": round(roads[a][figure] / roads[b][figure], 3) for a, b in known}

    return {
        "roads": roads,
        "ratios": ratios("actions_per_second"),
        "ratios_by_cpu": ratios("actions_per_cpu_second"),
        "memory_ratios": ratios("peak_mb"),
        "apart": apart,
    }


def show(console: Console, title: str, figures: dict, judged: bool) -> None:
    """Prints the tables and the ratios; with `judged`, whether these meet their targets.

    worst: of the rounds; CPU ms: processor time of an action; padding: share of positions.
    """
    roads = [road for road in ROADS if road.name in figures["roads"]]
    speeds = _table(title, "road", "actions/s", "worst", "CPU ms", "peak MB", "padding")
    parts = _table("Where an action's milliseconds go", "road", *PARTS)
    for road in roads:
        found = figures["roads"][road.name]
        shown = [f"{found[name]:,.2f}" for name in ("actions_per_second", "slowest_round")]
        shown += [f"{1000 / found['actions_per_cpu_second']:,.0f}", f"{found['peak_mb']:,.0f}"]
        shown.append("" if found["padding"] is None else f"{found['padding']:.0%}")
        speeds.add_row(f"({road.letter}) {road.about}", *shown)
        parts.add_row(road.name, *(f"{found['parts_ms_an_action'][part]:,.1f}" for part in PARTS))
    console.print(speeds)
    console.print(parts)
    for over, under, target in RATIOS:
        name = f"{over}/{under}"
        if name not in figures["ratios"]:
            continue
        ratio, memory = figures["ratios"][name], figures["memory_ratios"][name]
        wanted = f" (target ≥ {target}: {'met' if ratio >= target else 'MISSED'})" if target and judged else ""
        less = f" (target < 1: {'met' if memory < 1 else 'MISSED'})" if under in LESS_MEMORY_THAN and judged else ""
        by_cpu = figures["ratios_by_cpu"][name]
        line = f"  {name}: {ratio:.2f}{wanted}, by processor time {by_cpu:.2f}; peak memory {memory:.2f}{less}"
        console.print(line, highlight=False, soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name == "road" else "right", no_wrap=name == "road")
    return table


def _best(runs: list[dict]) -> dict:
    best = min(runs, key=lambda run: run["seconds"] / run["actions"])
    positions = best.get("positions")  # a peer does not count them
    return {
        "actions_per_second": round(best["actions"] / best["seconds"], 3),
        "slowest_round": round(min(run["actions"] / run["seconds"] for run in runs), 3),
        "actions_per_cpu_second": round(best["actions"] / best["cpu_seconds"], 3),
        "tokens_per_second": None if positions is None else round(best["tokens"] / best["seconds"]),
        "peak_mb": round(min(run["peak_bytes"] for run in runs) / 1e6),
        "model_mb": round(best["model_bytes"] / 1e6),
        "padding": None if positions is None else round(1 - best["tokens"] / positions, 4),
        "parts_ms_an_action": {part: round(1000 * best["parts"].get(part, 0) / best["actions"], 2) for part in PARTS},
        "first_loss": best["losses"][0],
        "actions": best["actions"],
    }
