"""Tables of figures at the terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 170


def show(arms: Mapping[str, Mapping[str, Mapping]], title: str) -> None:
    """A row for each arm, with a mean and half the width of its interval for each figure."""
    table = Table(title=title, box=None)
    figures = list(next(iter(arms.values())))
    for column in ("", *figures):
        table.add_column(column, justify="right" if column else "left", no_wrap=not column)
    for name, row in arms.items():
        table.add_row(name, *(cell_of(row.get(figure)) for figure in figures))
    Console(width=WIDTH).print(table)


def cell_of(cell: Mapping | None) -> str:
    if cell is None or cell["mean"] is None:
        return "–"
    return f"{cell['mean']:.1f}" + ("" if cell["half"] is None else f" ± {cell['half']:.1f}")


def show_rows(title: str, rows: Sequence[Mapping]) -> None:
    """A row for each mapping; its columns are the keys of the first one."""
    table = Table(title=title, box=None)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*("–" if row.get(column) is None else str(row[column]) for column in rows[0]))
    Console(width=WIDTH).print(table)
