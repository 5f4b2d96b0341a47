"""The comparison table at the terminal: a row for each run, official over strict partial match in each cell."""

from collections.abc import Mapping

from rich import box
from rich.table import Table

from vlm_agent.evaluation.metrics import headline


def comparison_table(runs: Mapping[str, Mapping], title: str = "") -> Table:
    """A rich Table of the partial match in percent; `runs` maps a run's name to what `metrics.score` returned.

    Columns are those of the first run (overall, subsets, groups); a column that no run has a number for is left out.
    Fits 80 characters with five subsets and one group. Print it with `rich.console.Console().print(table)`.
    """
    shares = {name: headline(scores) for name, scores in runs.items()}
    columns = _columns(shares)
    table = Table(
        title=title or "Partial match, %: official, strict below",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        title_justify="left",
    )
    table.add_column("")
    for column in columns:
        table.add_column(column.replace("_", "\n"), justify="right", header_style="bold" if column == "overall" else "")
    for name, by_scorer in shares.items():
        cells = [f"{_cell(by_scorer['official'], c)}\n[dim]{_cell(by_scorer['strict'], c)}[/dim]" for c in columns]
        table.add_row(name.replace("_", " "), *cells)
    return table


def _columns(shares: dict) -> list[str]:
    first = next(iter(shares.values()), {"official": {}})["official"]
    return [column for column in first if any(s["official"].get(column) is not None for s in shares.values())]


def _cell(by_column: Mapping[str, float | None], column: str) -> str:
    share = by_column.get(column)
    return "–" if share is None else f"{share:.1f}"
