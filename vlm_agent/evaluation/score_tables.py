"""Scores of one run, or of two against each other, at the terminal: a row for each scorer, never two in one column."""

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlm_agent.evaluation.shares import SHARES

_WORDS = {"wrong_to_right": "wrong → right", "right_to_wrong": "right → wrong"}


def print_scores(console: Console, scores: Mapping, title: str) -> None:
    """What `metrics.score` returned: the partial match by subset, and every share overall, under each scorer."""
    scorers = list(scores["scorers"])
    columns = [name for name, row in scores[scorers[0]].items() if row["steps"]]
    parts = _table(f"{title}: partial match, % [95 % interval]", columns)
    for scorer in scorers:
        rows = scores[scorer]
        parts.add_row(
            _words(scorer), *(_with_interval(rows[name]["partial_match"], rows[name]["interval"]) for name in columns)
        )
    console.print(parts)
    shares = _table(f"{title}: overall, %", scorers)
    overall = [scores[scorer]["overall"] for scorer in scorers]
    for share in SHARES:
        shares.add_row(share.replace("_", " "), *(_with_interval(row[share], None) for row in overall))
    console.print(shares)


def print_comparison(console: Console, comparison: Mapping, first: str, second: str) -> None:
    """What `comparison.compare` returned, for the runs of these names."""
    scorers = list(comparison["scorers"])
    columns = [name for name, row in comparison[scorers[0]].items() if row["steps"]]
    table = _table(f"{second} less {first}: partial match, points [95 % paired interval]", columns)
    for scorer in scorers:
        cells = (comparison[scorer][name]["partial_match"] for name in columns)
        table.add_row(_words(scorer), *(_with_interval(cell["difference"], cell["interval"], "+.1f") for cell in cells))
    console.print(table)
    changes = _table("Steps that changed", list(_WORDS.values()))
    for scorer in scorers:
        changes.add_row(_words(scorer), *(_count(comparison["changed"][scorer][way]) for way in _WORDS))
    console.print(changes)


def print_rules(console: Console, scorers: Mapping[str, Mapping[str, str]]) -> None:
    """What each scorer in a table counts as right, and who publishes numbers by it; `scores["scorers"]`."""
    for name, about in scorers.items():
        console.print(Text.assemble((name, "bold"), f": {about['rule']} ({about['source']})"))


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(column.replace("_", "\n"), justify="right")
    return table


def _with_interval(value: float | None, interval: list[float] | None, form: str = ".1f") -> Text:
    if value is None:
        return Text("–")
    text = Text(format(value, form))
    if interval is not None:
        text.append(f"\n{interval[0]:{form}} {interval[1]:{form}}", "dim")
    return text


def _count(changed: Mapping[str, list[int]]) -> str:
    return f"{sum(map(len, changed.values()))} in {len(changed)} episodes"


def _words(scorer: str) -> str:
    return scorer.replace("_", " ")  # so that a narrow column can break it
