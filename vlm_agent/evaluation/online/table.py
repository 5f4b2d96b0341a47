"""The tables of an online evaluation at the terminal: a row a run."""

from collections.abc import Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from vlm_agent.evaluation.online.scores import OVERALL


def online_tables(runs: Mapping[str, Mapping]) -> tuple[Table, Table]:
    """Success with its interval by subset, and what it took; `runs` maps names to what `online_scores` returned."""
    first = next(iter(runs.values()))
    columns = [name for name, row in first.items() if row["tasks"]]
    success = _table(f"Success on {first[OVERALL]['tasks']} tasks, %, and its 95 % interval", columns)
    for name, rows in runs.items():
        success.add_row(_words(name), *(_success(rows[column]) for column in columns))
    taken = _table("What it took", ["steps", "of the_expert's", "no_action", "seconds_a task", "tokens_a task", "ends"])
    for name, rows in runs.items():
        taken.add_row(_words(name), *_taken(rows[OVERALL]))
    return success, taken


def _success(row: Mapping) -> Text:
    if row["success"] is None:
        return Text("–")
    low, high = row["interval"]
    return Text(f"{row['success']:.1f}").append(f"\n{low:.0f}–{high:.0f}", "dim")


def _taken(row: Mapping) -> list[str]:
    cost = row["cost"]
    tokens = None if cost["tokens_read"] is None else cost["tokens_read"] + cost["tokens_said"]
    ends = ", ".join(f"{count} {_words(reason)}" for reason, count in row["ends"].items())
    return [
        _number(row["steps"], ".1f"),
        _number(row["steps_over_expert"], ".2f"),
        str(row["unparsed"]),
        _number(cost["seconds"], ".1f"),
        _number(tokens, ",.0f"),
        ends,
    ]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, title_justify="left")
    table.add_column("")
    for column in columns:
        table.add_column(column.replace("_", "\n"), justify="left" if column == "ends" else "right")
    return table


def _words(name: str) -> str:
    return name.replace("_", " ")
