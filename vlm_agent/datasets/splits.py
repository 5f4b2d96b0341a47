"""Split files: JSON, label → episode ids.

Both kinds in use are read: AITW's official ones (`train`, `validation`, `test`; google-research,
`android_in_the_wild/splits/`) and Auto-UI's (`val` for `validation`).
"""

import json
from pathlib import Path

from vlm_agent.datasets import DatasetError

SPLITS = ("train", "validation", "test")

_LABELS = {label: label for label in SPLITS} | {"val": "validation"}


def read_splits(path: Path) -> dict[str, str]:
    """The split of each episode id.

    Raises DatasetError for a file that is no such JSON, an unknown label, or an id that has two labels.
    """
    labels: dict[str, str] = {}
    clashes: dict[str, str] = {}
    for label, ids in _read_lists(path).items():
        for id_ in ids:
            other = labels.setdefault(id_, _LABELS[label])
            if other != _LABELS[label]:
                clashes[id_] = f"{id_!r} (in {other} and {_LABELS[label]})"
    if clashes:
        raise DatasetError(
            f"{path}: {len(clashes)} episode(s) in two splits, which would leak from one to the other: "
            f"{', '.join(list(clashes.values())[:5])}{', …' if len(clashes) > 5 else ''}; keep each in one list only"
        )
    return labels


def _read_lists(path: Path) -> dict[str, list[str]]:
    lists = _read_json(path)
    for label, ids in lists.items():
        if label not in _LABELS:
            raise DatasetError(f"{path}: split {label!r} is unknown; use {', '.join(_LABELS)}")
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
