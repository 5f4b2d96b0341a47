"""The published counts of Android in the Zoo, and those of a download."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.datasets.formats.json_list import read_items
from vlm_agent.datasets.sources import aitz, checks
from vlm_agent.errors import DatasetError

PUBLISHED: Mapping[tuple[str | None, str], tuple[int, int]] = {
    ("train", "general"): (323, 2405),
    ("test", "general"): (156, 1202),
    ("train", "install"): (286, 2519),
    ("test", "install"): (134, 1108),
    ("train", "google_apps"): (166, 1268),
    ("test", "google_apps"): (76, 621),
    ("train", "single"): (844, 2594),
    ("train", "web_shopping"): (379, 5133),
    ("test", "web_shopping"): (140, 1793),
}
"""(split, subset) → episodes and screens of the whole data set (arXiv 2403.02713, table 3)."""

PUBLISHED_GOALS = 2504
"""Distinct instructions of the whole data set (table 2): every episode has its own."""

PUBLISHED_TEST_ACTIONS: Mapping[str, int] = {"CLICK": 2736, "SCROLL": 601, "TYPE": 500, "PRESS": 383, "STOP": 504}
"""Test steps by kind of action. The paper does not print them: SCROLL, TYPE, PRESS and STOP are the smallest counts of
which every cell of their columns in tables 1 and 5 is a share, to the rounding, and CLICK is the rest of 4,724."""

_KINDS = {
    "tap": "CLICK",
    "swipe": "SCROLL",
    "type": "TYPE",
    "back": "PRESS",
    "home": "PRESS",
    "enter": "PRESS",
    "complete": "STOP",
    "impossible": "STOP",
}


@dataclass
class Counts:
    """The contents of a download: episodes and screens by (split, subset), test steps by kind of action, goals."""

    episodes: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    screens: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    test_actions: Counter[str] = field(default_factory=Counter)
    goals: set[str] = field(default_factory=set)
    bad_steps: list[str] = field(default_factory=list)


def count(folder: Path) -> Counts:
    """The counts of all episodes below `folder`. Reads no PNG; a step that cannot be read is in `bad_steps`."""
    counts = Counts()
    for path in sorted(path for path in folder.rglob("*.json") if aitz.is_data(path)):
        place = aitz.split_of(path), aitz.subset_of(path)
        counts.episodes[place] += 1
        for item in read_items(path):
            try:
                fields = aitz._Fields(item.value, aitz._REQUIRED)
                action, _ = checks.read_action(fields, aitz._ACTION)
                counts.goals.add(fields.string("instruction"))
            except DatasetError as error:
                counts.bad_steps.append(f"{path}, step {item.number}: {item.error or error}")
                continue
            counts.screens[place] += 1
            if place[0] == "test":
                counts.test_actions[_KINDS[action.name]] += 1
    return counts


def differences_from_published(
    counts: Counts,
    places: Mapping[tuple[str | None, str], tuple[int, int]] = PUBLISHED,
    test_actions: Mapping[str, int] = PUBLISHED_TEST_ACTIONS,
    goals: int = PUBLISHED_GOALS,
) -> list[str]:
    """A line for each count that differs from the published one, and for each step that cannot be read."""
    lines = list(counts.bad_steps)
    for place in sorted({*counts.episodes, *places}, key=str):
        found, expected = (counts.episodes[place], counts.screens[place]), places.get(place, (0, 0))
        if found != expected:
            lines.append(
                f"{place[0]}, {place[1]}: {found[0]} episodes and {found[1]} screens, expected {expected[0]} and "
                f"{expected[1]}"
            )
    for kind, expected_steps in test_actions.items():
        if counts.test_actions[kind] != expected_steps:
            lines.append(f"{kind}: {counts.test_actions[kind]} test steps, expected {expected_steps}")
    if len(counts.goals) != goals:
        lines.append(f"{len(counts.goals)} different instructions, expected {goals}")
    return lines
