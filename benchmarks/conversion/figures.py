"""Figures and a table from the runs."""

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.conversion.rounds import ROADS

AITW_SCREENS = 5_700_000
CORES = 16

RATIOS = (
    ("png", "tensorflow", 6.0),
    ("png", "protobuf", None),
    ("png", "inflate", 0.35),
    ("webp", "inflate", None),
    ("jpeg", "inflate", None),
    ("png_2", "png", 1.8),
    ("inflate_2", "inflate", None),
)
"""(method, baseline, target of the ratio of screens per second)"""


def figures_of(runs: dict[str, list[dict]]) -> dict:
    """`roads`: the figures of each method's best round. `ratios`: of screens per second. `ratios_by_cpu`: of screens
    per second of processor time. `aitw_hours`: hours to convert all of AITW on 16 cores.
    """
    roads = {name: _best(each) for name, each in runs.items()}
    rates = {name: road["screens_per_second"] for name, road in roads.items()}
    by_cpu = {name: 1 / road["cpu_ms_a_screen"] for name, road in roads.items() if not name.endswith("_2")}
    hours = {name: AITW_SCREENS / rates[name] / CORES / 3600 for name in by_cpu}
    return {
        "roads": roads,
        "ratios": _ratios(rates),
        "ratios_by_cpu": _ratios(by_cpu),
        "aitw_hours": {name: round(value, 2) for name, value in hours.items()},
    }


def _ratios(rates: dict[str, float]) -> dict[str, float]:
    known = [(over, under) for over, under, _ in RATIOS if over in rates and under in rates]
    return {f"{over}/{under}": round(rates[over] / rates[under], 3) for over, under in known}


def show(console: Console, title: str, figures: dict, judged: bool) -> None:
    """Prints the table and the ratios; with `judged`, whether these meet their targets."""
    table = Table(box=box.SIMPLE_HEAD, title=f"Screens: {title}", title_justify="left")
    table.caption = f"worst: of the rounds; CPU ms, kB: of one screen; hours: {AITW_SCREENS:,} screens on {CORES} cores"
    table.add_column("road", no_wrap=True)
    for name in ("screens/s", "worst", "CPU ms", "kB", "hours"):
        table.add_column(name, justify="right")
    for road in (road for road in ROADS if road.name in figures["roads"]):
        found, hours = figures["roads"][road.name], figures["aitw_hours"].get(road.name)
        shown = [f"{found[name]:,.1f}" for name in ("screens_per_second", "slowest_round", "cpu_ms_a_screen")]
        shown.append(f"{found['bytes_a_screen'] / 1000:,.0f}" if found["bytes_a_screen"] else "")
        shown.append("" if hours is None else f"{hours:.1f}")
        table.add_row(f"({road.letter}) {road.about}", *shown)
    console.print(table)
    for over, under, target in RATIOS:
        if (ratio := figures["ratios"].get(f"{over}/{under}")) is not None:
            wanted = f"  (target ≥ {target}: {'met' if ratio >= target else 'MISSED'})" if target and judged else ""
            by_cpu = figures["ratios_by_cpu"].get(f"{over}/{under}")
            also = "" if by_cpu is None else f", by processor time {by_cpu:.2f}"
            console.print(f"  {over} / {under}: {ratio:.2f}{also}{wanted}", highlight=False)


def _best(runs: list[dict]) -> dict:
    best = min(runs, key=lambda run: run["seconds"])
    slowest = max(run["seconds"] for run in runs)
    return {
        "screens_per_second": round(best["screens"] / best["seconds"], 2),
        "slowest_round": round(best["screens"] / slowest, 2),
        "cpu_ms_a_screen": round(1000 * best["cpu_seconds"] / best["screens"], 3),
        "bytes_a_screen": round(best["bytes"] / best["screens"]),
        "seconds": round(best["seconds"], 3),
        "cpu_seconds": round(best["cpu_seconds"], 3),
        "screens": best["screens"],
    }
