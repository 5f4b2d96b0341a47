"""Split files: JSON, label → episode ids.

Both kinds in use are read: AITW's official ones (`train`, `validation`, `test`; in the
data set's own folder `splits`) and Auto-UI's (`val` for `validation`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets import DatasetError

SPLITS = ("train", "validation", "test")

LABELS = {label: label for label in SPLITS} | {"val": "validation"}
"""Label in a file (or the name of a folder) → split."""


@dataclass(frozen=True)
class Splits:
    """`labels`: the split of each episode id; `ambiguous`: ids that the files put into two splits.

    Auto-UI's published files hold about 270 such ids. An ambiguous episode belongs to no split: in either it would leak
    into the other.
    """

    labels: dict[str, str]
    ambiguous: frozenset[str]

    def split_of(self, episode_id: str) -> str | None:
        return None if episode_id in self.ambiguous else self.labels.get(episode_id)


def read_splits(paths: Sequence[Path]) -> Splits:
    """What the files say together (the official splits are one file, Auto-UI's one a subset).

    Raises DatasetError for a file that is no such JSON, or an unknown label.
    """
    labels: dict[str, str] = {}
    ambiguous = set()
    for path in paths:
        for label, ids in _read_lists(path).items():
            ambiguous |= {id_ for id_ in ids if labels.setdefault(id_, LABELS[label]) != LABELS[label]}
    return Splits(labels, frozenset(ambiguous))


def _read_lists(path: Path) -> dict[str, list[str]]:
    lists = _read_json(path)
    for label, ids in lists.items():
        if label not in LABELS:
            raise DatasetError(f"{path}: split {label!r} is unknown; use {', '.join(LABELS)}")
        if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
            raise DatasetError(f"{path}: split {label!r} must be a list of episode ids, each a string")
    return lists


def _read_json(path: Path) -> dict:
    try:
        lists = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"{path}: cannot read the splits: {error.strerror}") from None
    except ValueError as error:
        raise DatasetError(f"{path}: the splits are not JSON: {error}") from None
    if not isinstance(lists, dict):
        raise DatasetError(f"{path}: the splits must be an object, label → list of episode ids")
    return lists
