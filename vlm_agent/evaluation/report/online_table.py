"""Tables of an online evaluation for the terminal, with a row for each run."""

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from vlm_agent.evaluation.online.scores import OVERALL
from vlm_agent.files.console import new_table
from vlm_agent.files.pages import words

_COSTS = ("", "steps", "steps /\nexpert", "no\naction", "seconds\n/ task", "tokens\n/ task", "calls\n/ task", "ends")


def online_tables(runs: Mapping[str, Mapping]) -> tuple[Table, Table]:
    """Success with its interval by subset, and the cost; `runs` maps names to results of `online_scores`."""
    first = next(iter(runs.values()))
    columns = [name for name, row in first.items() if row["tasks"]]
    headers = [column.replace("_", "\n") for column in columns]
    success = new_table(f"Success on {first[OVERALL]['tasks']} tasks, % (95 % interval below)", ["", *headers])
    for name, rows in runs.items():
        success.add_row(Text(name), *(_success(rows[column]) for column in columns))
    cost = new_table("Cost", _COSTS, left=("ends",))
    for name, rows in runs.items():
        cost.add_row(Text(name), *_cost_cells(rows[OVERALL]))
    return success, cost


def _success(row: Mapping) -> Text:
    if row["success"] is None:
        return Text("–")
    low, high = row["interval"]
    return Text(f"{row['success']:.1f}").append(f"\n{low:.0f}–{high:.0f}", "dim")


def _cost_cells(row: Mapping) -> list[str]:
    cost = row["cost"]
    tokens = None if cost["tokens_read"] is None else cost["tokens_read"] + cost["tokens_written"]
    ends = ", ".join(f"{count} {words(reason)}" for reason, count in row["ends"].items())
    return [
        _number(row["steps"], ".1f"),
        _number(row["steps_over_expert"], ".2f"),
        str(row["unparsed"]),
        _number(cost["seconds"], ".1f"),
        _number(tokens, ",.0f"),
        _number(cost.get("calls"), ".1f"),
        ends,
    ]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
