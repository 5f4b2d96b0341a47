"""Grouping of steps into episodes, and the rules for episodes that violate the format.

In AITW the records of an episode are adjacent and in order, and their number is `episode_length`. The exceptions:

- **Gap, wrong `episode_length`.** An episode is discarded if a step is missing, if its records disagree about its
  length, or if it has a step beyond its length: a trajectory with a gap would teach a transition that never happened.
- **Repeated step.** One of two equal records (by checksum) is used. Two different records for the same step, or records
  that disagree about goal, split or phone, discard the episode.
- **Interleaved, out of order.** The steps are sorted, as long as at most `MAX_OPEN` episodes are open.
- **Repeated id.** The first complete episode with an id is kept; later ones are discarded. Later steps of a discarded
  episode in the same file are discarded too, even if they would be complete.
- **Too large.** Open episodes are in memory. Beyond `MAX_OPEN_BYTES` the oldest episode is discarded if it is
  incomplete.
"""

import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from vlm_agent.datasets.sources import BadRecord, EpisodeStep

MAX_OPEN = 8
"""The maximum number of open episodes. When one more starts, the oldest is closed."""

MAX_OPEN_BYTES = 1 << 28
"""The maximum total size of the open episodes; see `EpisodeGroups.add`."""

FAULTS = {
    "gap": "discarded: a step is missing",
    "wrong_episode_length": "discarded: episode_length is wrong",
    "conflicting_step": "discarded: different records for the same step",
    "id_seen_before": "discarded: another episode has the same id",
    "too_large": "discarded: they exceed the memory limit",
    "repeated_step": "kept, with a repeated record removed",
    "interleaved": "kept, with records that were interleaved with those of other episodes",
    "out_of_order": "kept, with steps that were out of order",
}
"""The counted faults, and what becomes of an episode with each."""

GAP, LENGTH, CONFLICTING, SEEN, TOO_LARGE, REPEATED, INTERLEAVED, UNORDERED = FAULTS

DISCARDED = "is discarded"
"""In the reason of every record of a discarded episode, also of the good ones."""

_EQUAL_FIELDS = ("goal", "split", "device_type", "android_api_level")

T = TypeVar("T")


@dataclass
class CompleteEpisode(Generic[T]):
    """`head`: the first record, without its step. `steps`: the stored part of each step, in order."""

    head: EpisodeStep
    steps: list[T]


@dataclass
class _Open(Generic[T]):
    head: EpisodeStep
    steps: dict[int, T] = field(default_factory=dict)
    records: dict[int, EpisodeStep] = field(default_factory=dict)
    size: int = 0
    repairs: set[str] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        return len(self.steps) == self.head.episode_length

    def missing(self) -> str:
        length = self.head.episode_length
        missing = sorted(set(range(length)) - self.steps.keys())
        examples = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        return f"it has only {len(self.steps)} of {length} steps; missing: {examples}"


class EpisodeGroups(Generic[T]):
    """Groups the steps of one file into complete episodes, and yields a BadRecord for every other step.

    `duplicate_ids`: ids of episodes in earlier files. An episode is yielded when a record of a different episode
    follows, or at `close`. `faults` counts episodes by `FAULTS`.
    """

    def __init__(self, duplicate_ids: Iterable[str] = ()) -> None:
        self.faults: Counter[str] = Counter()
        self._closed_ids = set(duplicate_ids)
        self._repeated_ids: set[str] = set()
        self._discard_reasons: dict[str, str] = {}
        self._open: dict[str, _Open[T]] = {}
        self._latest: str | None = None

    def add(self, step: EpisodeStep, content: T, size: int) -> Iterator[CompleteEpisode[T] | BadRecord]:
        """Adds a step. `content` is the part of it to store, `size` its bytes in memory.

        Nothing happens until the iterator is consumed.
        """
        record = replace(step, step=None, png=None)
        if reason := self._refusal(record):
            yield _bad(record, reason)
            return
        yield from self._open_episode(record)
        episode = self._open[step.episode_id]
        if fault := _fault(episode, record):
            yield from self._discard(step.episode_id, *fault)
            yield _bad(record, self._discard_reasons[step.episode_id])
        elif step.step_id in episode.steps:
            episode.repairs.add(REPEATED)
            yield _bad(record, f"it repeats step {step.step_id} of episode {step.episode_id} with the same checksum")
        else:
            episode.records[step.step_id] = record
            episode.steps[step.step_id] = content
            episode.size += size
            yield from self._limit_memory()

    def close(self) -> Iterator[CompleteEpisode[T] | BadRecord]:
        """Closes the open episodes at the end of the file."""
        for episode_id in list(self._open):
            yield from self._finish(episode_id)

    def _open_episode(self, step: EpisodeStep) -> Iterator[CompleteEpisode[T] | BadRecord]:
        """Opens the step's episode if it is not open. Yields the episode of the previous step if it is complete."""
        previous, self._latest = self._latest, step.episode_id
        if previous != step.episode_id and previous in self._open and self._open[previous].is_complete:
            yield from self._finish(previous)
        if step.episode_id not in self._open:
            if len(self._open) == MAX_OPEN:
                when = f" when {MAX_OPEN} episodes are open and one more begins"
                yield from self._finish(next(iter(self._open)), when)
            self._open[step.episode_id] = _Open(step)
        elif previous != step.episode_id:
            self._open[step.episode_id].repairs.add(INTERLEAVED)

    def _finish(self, episode_id: str, when: str = "") -> Iterator[CompleteEpisode[T] | BadRecord]:
        episode = self._open[episode_id]
        if not episode.is_complete:
            yield from self._discard(episode_id, GAP, episode.missing() + when)
            return
        if list(episode.steps) != sorted(episode.steps):
            episode.repairs.add(UNORDERED)
        steps = [episode.steps[step_id] for step_id in sorted(episode.steps)]
        self.faults.update(episode.repairs)
        self._closed_ids.add(episode_id)
        del self._open[episode_id]
        yield CompleteEpisode(episode.head, steps)

    def _discard(self, episode_id: str, fault: str, description: str) -> Iterator[BadRecord]:
        episode = self._open.pop(episode_id)
        self.faults[fault] += 1
        reason = f"episode {episode_id} {DISCARDED}: {description}"
        self._discard_reasons[episode_id] = reason
        for record in episode.records.values():
            yield _bad(record, reason)

    def _limit_memory(self) -> Iterator[CompleteEpisode[T] | BadRecord]:
        while sum(episode.size for episode in self._open.values()) > MAX_OPEN_BYTES:
            oldest = next(iter(self._open))
            if self._open[oldest].is_complete:
                yield from self._finish(oldest)
            else:
                description = f"it and the other open episodes exceed {MAX_OPEN_BYTES >> 20} MiB in memory"
                yield from self._discard(oldest, TOO_LARGE, description)

    def _refusal(self, step: EpisodeStep) -> str | None:
        """The reason why a step of a closed episode cannot be used; None for a step of other episodes."""
        if step.episode_id in self._closed_ids:
            if step.episode_id not in self._repeated_ids:
                self._repeated_ids.add(step.episode_id)
                self.faults[SEEN] += 1
            return f"an episode with id {step.episode_id} was read before"
        return self._discard_reasons.get(step.episode_id)


def _fault(episode: _Open, step: EpisodeStep) -> tuple[str, str] | None:
    """The fault that a step causes in its episode: one of `FAULTS`, and a description."""
    length = episode.head.episode_length
    if step.episode_length != length:
        return LENGTH, f"episode_length changes from {length} to {step.episode_length}"
    if step.step_id >= length:
        return LENGTH, f"it has a step {step.step_id}, but episode_length {length}"
    for name in _EQUAL_FIELDS:
        if getattr(step, name) != getattr(episode.head, name):
            before, now = getattr(episode.head, name), getattr(step, name)
            return CONFLICTING, f"{name} changes from {reprlib.repr(before)} to {reprlib.repr(now)}"
    same = episode.records.get(step.step_id)
    if same is not None and same.fingerprint != step.fingerprint:
        return CONFLICTING, f"records {same.record} and {step.record} for step {step.step_id} differ"
    return None


def _bad(step: EpisodeStep, reason: str) -> BadRecord:
    return BadRecord(step.file, step.record, step.offset, reason)
