"""Judged steps: the columns from which every metric is computed, without the screens' elements.

Every step of every episode must be answered exactly once. A missing answer must not shrink the denominator: this error
has inflated published scores.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlm_agent.datasets.selection import published_subsets
from vlm_agent.episodes import is_same_text
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.scoring.dialects import SCORERS, find_dialect
from vlm_agent.evaluation.scoring.steps import Actions, Steps, StepTable, step_tables

OVERALL = "overall"
"""The name of the mean over the subsets."""

Groups = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class JudgedSteps:
    """N steps of E episodes, in the order of their source.

    `episode_ids` (E,) are in order of appearance; `subsets` (E,) and `lengths` int (E,) belong to them. `episode` int
    (N,) is each step's index among them, `step` counts from 0. `predicted` and `gold.name` are indices of
    `ACTION_NAMES`, `same_text` is bool (N,), in NFC. `right` has a bool (N,) for each scorer, and `counted` whether the
    scorer counts the step; a step that does not count is not right. `elements` (N,) is the number of elements on each
    screen and `element_sums` float64 (N,) a weighted sum over their boxes: they detect screens with different
    annotations.
    """

    episode_ids: np.ndarray
    subsets: np.ndarray
    lengths: np.ndarray
    episode: np.ndarray
    step: np.ndarray
    gold: Actions
    predicted: np.ndarray
    same_text: np.ndarray
    elements: np.ndarray
    element_sums: np.ndarray
    right: dict[str, np.ndarray]
    counted: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.step)

    def count(self, mask: np.ndarray) -> np.ndarray:
        """The number of steps of each episode under a mask, bool (N,): float64 (E,)."""
        return np.bincount(self.episode[mask], minlength=len(self.lengths)).astype(np.float64)

    def check_episodes(self, expected: Sequence[str], source: Path) -> None:
        """Raises DatasetError if an episode of `expected` is missing in the file `source`, or another one is in it."""
        found = self.episode_ids.tolist()
        for one, other, problem in ((expected, found, "no prediction"), (found, expected, "surplus predictions")):
            known = set(other)
            if wrong := [episode_id for episode_id in one if episode_id not in known]:
                raise DatasetError(
                    f"{source}: {problem} of {len(wrong)} episodes, the first {wrong[0]}; move the file to another "
                    "folder and run the same evaluate command again"
                )

    def row_of(self, episode_id: str, step: int) -> int:
        """The index of a step in the columns. KeyError if the run lacks the episode."""
        starts, order = self._by_episode
        return int(order[starts[episode_id] + step])

    @cached_property
    def _by_episode(self) -> tuple[dict[str, int], np.ndarray]:
        """Rows int (N,) in the order of episodes and steps, and where each episode starts among them."""
        starts = np.cumsum(self.lengths) - self.lengths
        by_id = dict(zip(self.episode_ids.tolist(), starts.tolist(), strict=True))
        return by_id, np.lexsort((self.step, self.episode))


def judge_steps(source: "JudgedSteps | Steps", scorers: Sequence[str] = SCORERS) -> JudgedSteps:
    """Judges every step under each of `scorers`; JudgedSteps are returned unchanged.

    Raises DatasetError naming the file if a step is missing or occurs twice, and every error of `step_tables`. Raises
    ValueError if JudgedSteps lack one of `scorers`.
    """
    if isinstance(source, JudgedSteps):
        if set(scorers) - set(source.right):
            raise ValueError(f"the steps were judged by {', '.join(source.right)} only, not by {', '.join(scorers)}")
        return source
    parts = [_columns(table, scorers) for table in step_tables(source)]
    parts = parts or [_columns(StepTable.of([]), scorers)]
    ids, episode = numbered(part["episode_id"] for part in parts)
    subset_names, subset = numbered(part["subset"] for part in parts)
    length, step = (np.concatenate([part[name] for part in parts]) for name in ("episode_length", "step"))
    try:
        check_steps(ids.tolist(), episode, subset, length, step)
    except DatasetError as error:
        raise DatasetError(f"{source}: {error}" if isinstance(source, Path) else str(error)) from None
    first = np.unique(episode, return_index=True)[1]
    return JudgedSteps(
        episode_ids=ids,
        subsets=subset_names[subset[first]],
        lengths=length[first],
        episode=episode,
        step=step,
        gold=_joined([part["gold"] for part in parts]),
        **{
            name: np.concatenate([part[name] for part in parts])
            for name in ("predicted", "same_text", "elements", "element_sums")
        },
        right={scorer: np.concatenate([part["right"][scorer] for part in parts]) for scorer in scorers},
        counted={scorer: np.concatenate([part["counted"][scorer] for part in parts]) for scorer in scorers},
    )


def members_of(steps: JudgedSteps, groups: Groups | None) -> tuple[dict[str, np.ndarray], list[str]]:
    """Masks bool (E,) of subsets and groups by name, and the names of those that are subsets with episodes.

    Raises DatasetError if a group has a subset's name.
    """
    groups = {} if groups is None else groups
    check_group_names(groups, steps.subsets)
    names = dict.fromkeys((*published_subsets(), *sorted(set(steps.subsets))))
    members = {name: steps.subsets == name for name in names}
    present = [name for name, mask in members.items() if mask.any()]
    for name, ids in groups.items():
        group = set(ids)
        members[name] = np.array([episode_id in group for episode_id in steps.episode_ids], bool)
    return members, present


def check_group_names(groups: Groups, subsets: Iterable[str]) -> None:
    """Raises DatasetError if a group has the name of one of `subsets`, of a published one, or of the mean over them."""
    if duplicates := {OVERALL, *published_subsets(), *subsets} & set(groups):
        raise DatasetError(f"groups named like a subset: {sorted(duplicates)}; choose other names")


_MAX_LISTED_STEPS = 10


def check_steps(
    ids: Sequence[str], episode: np.ndarray, subset: np.ndarray, length: np.ndarray, step: np.ndarray
) -> None:
    """Raises DatasetError naming the first episode that is incomplete, or that occurs with two subsets or lengths.

    Arrays have shape (N,) for N steps: `episode` numbers the episodes of `ids` in order of their first step, `subset`
    is anything comparable, `length` the number of steps of the gold episode, `step` counts from 0.
    """
    first = np.unique(episode, return_index=True)[1]
    conflicts = (subset != subset[first[episode]]) | (length != length[first[episode]])
    if conflicts.any():
        raise DatasetError(f"episode {ids[episode[conflicts.argmax()]]} occurs with two subsets or two lengths")
    lengths = length[first]
    complete = np.bincount(episode, minlength=len(ids)) == lengths
    inside = complete[episode] & (step >= 0) & (step < length)
    starts = np.cumsum(np.where(complete, lengths, 0)) - np.where(complete, lengths, 0)
    present = np.zeros(lengths[complete].sum(), bool)
    present[starts[episode[inside]] + step[inside]] = True
    owner = np.repeat(np.flatnonzero(complete), lengths[complete])
    complete[owner[~present]] = False
    if not complete.all():
        number = complete.argmin()
        found = step[episode == number].tolist()
        raise DatasetError(f"episode {ids[number]}, {lengths[number]} steps: {_gap(found, lengths[number])}")


def _gap(found: list[int], length: int) -> str:
    known = set(found)
    missing = list(islice((step for step in range(length) if step not in known), _MAX_LISTED_STEPS + 1))
    if missing:
        steps = ", ".join(map(str, missing[:_MAX_LISTED_STEPS])) + (" …" if len(missing) > _MAX_LISTED_STEPS else "")
        return f"no prediction of step {steps}; move the file away and run its evaluate command again"
    surplus = next(step for step in sorted(found) if found.count(step) > 1 or not 0 <= step < length)
    return f"step {surplus} is predicted twice or does not exist; were two runs written into one file?"


def _columns(table: StepTable, scorers: Sequence[str]) -> dict:
    gold, predicted = table.gold, table.predicted
    rulings = {scorer: find_dialect(scorer).judge(table) for scorer in scorers}
    return {
        **{name: getattr(table, name) for name in ("episode_id", "subset", "step", "episode_length", "gold")},
        "predicted": predicted.name,
        "same_text": _same_text(gold.text, predicted.text),
        "elements": table.boxes.counts,
        "element_sums": _sums(table),
        "right": {scorer: ruling.right & ruling.counted for scorer, ruling in rulings.items()},
        "counted": {scorer: ruling.counted for scorer, ruling in rulings.items()},
    }


def _same_text(gold: pa.Array, predicted: pa.Array) -> np.ndarray:
    """bool (N,): whether texts are equal up to Unicode normalisation."""
    same = np.array(pc.equal(gold, predicted).to_numpy(zero_copy_only=False))
    is_plain = pc.and_(pc.string_is_ascii(gold), pc.string_is_ascii(predicted)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~same & ~is_plain)
    texts = [text.take(pa.array(rows)).to_pylist() for text in (gold, predicted)]
    same[rows] = [is_same_text(*pair) for pair in zip(*texts, strict=True)]
    return same


def _sums(table: StepTable) -> np.ndarray:
    """The sum over the boxes of each screen; y, x, height and width have different weights to detect swapped values."""
    y, x, height, width = table.boxes.values.T
    index, place = table.boxes.indices(np.arange(len(table)))
    weights = (y + 2 * x + 3 * height + 5 * width).take(index)
    return np.bincount(place, weights=weights, minlength=len(table))


def numbered(columns: Iterable[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Unique strings (U,) in order of appearance, and the index of each string among them, int64 (N,)."""
    encoding = pa.chunked_array(list(columns), pa.string()).combine_chunks().dictionary_encode()
    return encoding.dictionary.to_numpy(zero_copy_only=False), encoding.indices.to_numpy().astype(np.int64)


def _joined(parts: list[Actions]) -> Actions:
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("kind", "touch", "lift")}
    return Actions(**arrays, text=pa.chunked_array([part.text for part in parts], pa.string()).combine_chunks())
