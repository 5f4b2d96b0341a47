"""What papers publish, to stand beside a result: only numbers of one set of test episodes and one scorer share a table.

The numbers are in `published.yaml`, whose head tells what its keys mean.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

_FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class PublishedRow:
    """A system, where its numbers are printed, and those numbers in percent, one a column; None is not legible."""

    system: str
    where: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class PublishedTable:
    """`benchmark` is the name of the `eval/*.yaml` over the same test episodes, None where nobody says which they are.

    `dialect` is the scorer here that comes nearest to the paper's `scorer`, None where none does.
    """

    title: str
    scorer: str
    paper: str
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    benchmark: str | None = None
    dialect: str | None = None

    @property
    def decimals(self) -> int:
        """As many as are printed."""
        printed = (repr(value).partition(".")[2] for row in self.rows for value in row.values if value is not None)
        return max(map(len, printed))


def published_tables() -> list[PublishedTable]:
    return [_table(content) for content in yaml.safe_load(_FILE.read_text(encoding="utf-8"))]


def _table(content: dict) -> PublishedTable:
    rows = tuple(PublishedRow(system, where, tuple(values)) for system, where, *values in content["rows"])
    return PublishedTable(**content | {"columns": tuple(content["columns"]), "rows": rows})


def on_the_same_split(tables: list[PublishedTable], about: dict) -> list[PublishedTable]:
    """Those over the test episodes of a run; `about` is what an evaluation notes beside its scores.

    None where the run is on no named benchmark, on another split of it than `test`, or on only some of its episodes.
    """
    name = about.get("benchmark")
    whole = about.get("split") == "test" and about.get("episodes") == about.get("episodes_in_split")
    return [table for table in tables if table.benchmark == name] if name is not None and whole else []
