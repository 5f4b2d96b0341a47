"""Whether every step of every episode was answered exactly once.

A missing answer must not shrink the denominator: that is how published scorers have flattered their models.
"""

from collections.abc import Collection, Sequence
from itertools import islice

import numpy as np

from vlm_agent.datasets import DatasetError

_NAMED = 10


def check_episodes(
    ids: Sequence[str], episode: np.ndarray, subset: np.ndarray, length: np.ndarray, step: np.ndarray
) -> None:
    """Raises DatasetError naming the first episode that is not whole, or that occurs with two subsets or lengths.

    Of N steps (arrays (N,)): `episode` counts the episodes of `ids` in order of their first step, `subset` is anything
    comparable, `length` the number of steps of the gold episode, `step` counts from 0.
    """
    first = np.unique(episode, return_index=True)[1]
    unlike = (subset != subset[first[episode]]) | (length != length[first[episode]])
    if unlike.any():
        raise DatasetError(f"episode {ids[episode[unlike.argmax()]]} occurs with two subsets or two lengths")
    lengths = length[first]
    whole = np.bincount(episode, minlength=len(ids)) == lengths
    inside = whole[episode] & (step >= 0) & (step < length)
    starts = np.cumsum(np.where(whole, lengths, 0)) - np.where(whole, lengths, 0)
    seen = np.zeros(lengths[whole].sum(), bool)
    seen[starts[episode[inside]] + step[inside]] = True
    owner = np.repeat(np.flatnonzero(whole), lengths[whole])
    whole[owner[~seen]] = False
    if not whole.all():
        number = whole.argmin()
        found = step[episode == number].tolist()
        raise DatasetError(f"episode {ids[number]}, {lengths[number]} steps: {_what_is_wrong(found, lengths[number])}")


def check_present(ids: Collection[str], expected: Collection[str]) -> None:
    """Raises DatasetError where an expected episode is not among `ids`."""
    ids = set(ids)
    absent = [episode_id for episode_id in expected if episode_id not in ids]
    if absent:
        raise DatasetError(f"no prediction of {len(absent)} episodes, the first {absent[0]}; run the evaluation again")


def _what_is_wrong(found: list[int], length: int) -> str:
    known = set(found)
    missing = list(islice((step for step in range(length) if step not in known), _NAMED + 1))
    if missing:
        named = ", ".join(map(str, missing[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
        return f"no prediction of step {named}; run the evaluation again to complete it"
    surplus = next(step for step in sorted(found) if found.count(step) > 1 or not 0 <= step < length)
    return f"step {surplus} is predicted twice or does not exist; were two runs written into one file?"
