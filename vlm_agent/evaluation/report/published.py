"""Published numbers for comparison: a table holds numbers of one set of test episodes and one scorer.

The numbers are in `published.yaml`, whose first lines define its keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources import SIMULATED_DEVICE
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.evaluation.benchmark import NOT_STATED, PublishedSplit

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


@lru_cache(maxsize=1)
def published_tables() -> tuple[PublishedTable, ...]:
    return tuple(_table(content) for content in yaml.safe_load(_FILE.read_text(encoding="utf-8")))


def _table(content: dict) -> PublishedTable:
    rows = tuple(PublishedRow(system, where, tuple(values)) for system, where, *values in content["rows"])
    sequences = {"columns": tuple(content["columns"]), "rows": rows, "notes": tuple(content.get("notes", ()))}
    return PublishedTable(**content | sequences)


def on_the_same_split(tables: Sequence[PublishedTable], about: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """The titles of the tables over the test episodes of a run, each with the subsets in which they are the same; no
    subset where they are the same in all. `about` is the `about` of the run's scores.

    A table with a column for each subset may agree in some of them, another one only as a whole.
    """
    split = about.get("published_split", {"agrees": [], "differs": {}})
    name = about.get("benchmark") if split["agrees"] else None
    of_benchmark = [table for table in tables if name is not None and table.benchmark == name]
    if not split["differs"]:
        return {table.title: () for table in of_benchmark}
    return {table.title: split["agrees"] for table in of_benchmark if set(split["agrees"]) & set(table.columns)}


def has_published_numbers(benchmark: str | None) -> bool:
    return benchmark is not None and any(table.benchmark == benchmark for table in published_tables())


def is_published_data(dataset: ShardDataset) -> bool:
    """Whether papers print numbers on the data set of these episodes. A simulated phone's episodes have AITW's format,
    and are known by their device."""
    source = SOURCES.get(dataset.manifest.get("source", ""))
    if source is None or not source.is_published:
        return False
    devices = dataset.table(["device_type"])["device_type"].unique().to_pylist()
    return not any(device.startswith(SIMULATED_DEVICE) for device in devices)


def compare_split(published: PublishedSplit | None, dataset: ShardDataset, chosen: Iterable[int]) -> dict[str, Any]:
    """`agrees`: the subsets whose scored episodes are known to be the published ones. `differs`: for each other subset,
    of the run or published, the reason. `chosen`: indices of the scored episodes.

    The name of a benchmark does not prove it: `--shards` may name any conversion, and a conversion may lack episodes.
    """
    ids: dict[str, list[str]] = {}
    steps: dict[str, int] = {}
    for index in chosen:
        subset = dataset.subsets[index]
        ids.setdefault(subset, []).append(dataset.ids[index])
        steps[subset] = steps.get(subset, 0) + len(dataset.screen_sizes[index])
    stated: Mapping[str, int] = {} if published is None else published.episodes
    reasons = {
        subset: NOT_STATED
        if published is None
        else published.difference(subset, ids.get(subset, []), steps.get(subset, 0))
        for subset in dict.fromkeys([*ids, *stated])
    }
    return {
        "agrees": [subset for subset, reason in reasons.items() if reason is None],
        "differs": {subset: reason for subset, reason in reasons.items() if reason is not None},
    }


def split_sentences(tables: Sequence[PublishedTable], about: Mapping[str, Any]) -> tuple[str, str]:
    """Which tables are on the split of a run, and the reasons why others are not known to be; "" without reasons."""
    by_subsets: dict[str, list[str]] = {}
    for title, subsets in on_the_same_split(tables, about).items():
        by_subsets.setdefault(in_subsets(subsets), []).append(title)
    same = " ".join(f"On the split of this run{where}: {'; '.join(titles)}." for where, titles in by_subsets.items())
    by_reason: dict[str, list[str]] = {}
    for subset, reason in about.get("published_split", {}).get("differs", {}).items():
        by_reason.setdefault(reason, []).append(subset)
    reasons = "; ".join(f"{', '.join(subsets)} ({reason})" for reason, subsets in by_reason.items())
    none = "No table is known to be on the split of this run."
    return same or none, f"Subsets that differ or are not known: {reasons}." if reasons else ""


def in_subsets(subsets: Sequence[str]) -> str:
    return f" in {', '.join(subsets)}" if subsets else ""
