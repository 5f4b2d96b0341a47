"""Published numbers for comparison: a table holds numbers of one set of test episodes and one scorer.

The numbers are in `published.yaml`, whose first lines define its keys.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

_FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class PublishedRow:
    """A system, the place where it is printed, and a number for each column; None if not printed or not legible."""

    system: str
    where: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class PublishedTable:
    """`benchmark` is the name of the `eval/*.yaml` over the same test episodes, None if they are not identified.

    `dialect` is our scorer closest to the paper's `scorer`, None if none is close. `unit` is that of the numbers.
    `notes` are facts about the numbers that the paper does not print.
    """

    title: str
    scorer: str
    paper: str
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    benchmark: str | None = None
    dialect: str | None = None
    unit: str = "%"
    notes: tuple[str, ...] = ()

    @property
    def decimals(self) -> int:
        """The maximum number of decimals in this table of the paper."""
        printed = (repr(value).partition(".")[2] for row in self.rows for value in row.values if value is not None)
        return max(map(len, printed))


def published_tables() -> list[PublishedTable]:
    return [_table(content) for content in yaml.safe_load(_FILE.read_text(encoding="utf-8"))]


def _table(content: dict) -> PublishedTable:
    rows = tuple(PublishedRow(system, where, tuple(values)) for system, where, *values in content["rows"])
    sequences = {"columns": tuple(content["columns"]), "rows": rows, "notes": tuple(content.get("notes", ()))}
    return PublishedTable(**content | sequences)


def on_the_same_split(tables: list[PublishedTable], about: dict) -> list[PublishedTable]:
    """The tables over the test episodes of a run; `about` is the `about` of its scores.

    Empty if the run's benchmark has no name, its split is not `test`, or it scores only a part of the episodes.
    """
    name = about.get("benchmark")
    whole = about.get("split") == "test" and about.get("episodes") == about.get("episodes_in_split")
    return [table for table in tables if table.benchmark == name] if name is not None and whole else []
