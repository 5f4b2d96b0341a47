"""Selection of episodes: split files, subsets and mixtures.

A split file is JSON, label → episode ids. The labels are those of AITW's official files (`train`, `validation`, `test`;
in the folder `splits` of the data set) or Auto-UI's (`val` for `validation`). An id is a string or a whole number, as
in AndroidControl, or the name of the episode's JSON file, as in GUI-Odyssey.

A mixture is a fraction of the episodes for each subset. The paper (Auto-UI) trains on 10 % of google_apps and on all
episodes of the other subsets. Membership depends only on a hash of the episode's id, so it does not change with order,
ranks, workers or other content of the shards. A larger fraction contains every smaller one: converting a tenth and then
training on a tenth of the result keeps all converted episodes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets.sources import LABELS
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked

MIXED_SPLIT = "train"
"""The split that `convert --mixture` reduces: a score on a part of the others is not comparable with published ones."""


@dataclass(frozen=True)
class Splits:
    """`labels`: the split of each episode id. `ambiguous`: ids that the files assign to two splits.

    Auto-UI's published files contain about 270 such ids. An ambiguous episode has no split: in either split it would
    leak into the other.
    """

    labels: dict[str, str]
    ambiguous: frozenset[str]

    def split_of(self, episode_id: str) -> str | None:
        return None if episode_id in self.ambiguous else self.labels.get(episode_id)


def read_splits(paths: Sequence[Path]) -> Splits:
    """The splits of all files together: the official splits are one file, Auto-UI's are one file per subset.

    Raises DatasetError for a file with other content, and for an unknown label.
    """
    labels: dict[str, str] = {}
    ambiguous = set()
    remedy = "name a JSON file that maps each split to a list of episode ids, as strings or whole numbers"
    for path in paths:
        lists: dict[str, list[str | int]] = read_checked(path, remedy, dict[str, list[str | int]])
        for label, ids in lists.items():
            if label not in LABELS:
                raise DatasetError(f"{path}: split {label!r} is unknown; use {', '.join(LABELS)}")
            named = (str(id_).removesuffix(".json") for id_ in ids)
            ambiguous |= {id_ for id_ in named if labels.setdefault(id_, LABELS[label]) != LABELS[label]}
    return Splits(labels, frozenset(ambiguous))


def published_subsets() -> list[str]:
    """The names of the subsets of data sets with fixed subsets. Other data sets define theirs in the manifest."""
    return sorted({subset for source in SOURCES.values() for subset in source.subsets})


def check_subsets(names: Iterable[str], present: Iterable[str], where: str) -> None:
    """Raises DatasetError for a name that is neither a subset in `present` nor one of a registered source.

    `where` is the option or key with the names, for the message.
    """
    known = sorted({*present, *published_subsets()})
    if unknown := sorted(set(names) - set(known)):
        raise DatasetError(f"{where} names {', '.join(unknown)}; subsets are {', '.join(known)}")


def check_mixture(fractions: Mapping[str, float]) -> None:
    """Raises DatasetError for a fraction outside [0, 1]."""
    for subset, share in fractions.items():
        if not 0 <= share <= 1:
            raise DatasetError(f"the mixture's fraction of {subset} is {share}; it must be between 0 and 1")


def in_mixture(episode_id: str, subset: str, fractions: Mapping[str, float]) -> bool:
    """Whether the episode is in the mixture. `fractions`: subset → share in [0, 1]; 1 for a subset without an entry."""
    position = int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], "big")
    return position < fractions.get(subset, 1.0) * 2**64
