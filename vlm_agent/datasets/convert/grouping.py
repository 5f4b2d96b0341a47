"""Grouping of steps into episodes, with the rule for episodes that violate the format.

The records of an episode in AITW are adjacent, in order, and as many as `episode_length`. The exceptions:

- **Gap, wrong `episode_length`.** An episode is discarded if a step is missing, if its records disagree about its
  length, or if it has a step beyond it: a trajectory with a gap would teach a transition that never happened.
- **Repeated step.** Of two equal records (by checksum) one is used. Two different records for the same step, or records
  that disagree about goal, split or phone, discard the episode.
- **Interleaved, out of order.** The steps are sorted, as long as at most `MAX_OPEN` episodes are open.
- **Repeated id.** The first complete episode with an id is kept; later ones are discarded. Steps in the same file of an
  episode that was discarded are discarded too, even if they would be complete.
- **Too large.** The screens of open episodes are in memory. Beyond `MAX_OPEN_BYTES` the oldest episode is discarded,
  unless it is complete.
"""

import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from vlm_agent.datasets.records import BadRecord, EpisodeStep

MAX_OPEN = 8
"""The maximum number of open episodes. When another one starts, the oldest is closed."""

MAX_OPEN_BYTES = 1 << 28
"""The maximum total size of the open episodes; see `EpisodeGroups.add`."""

GAP, LENGTH, REPEATED, CONFLICTING, INTERLEAVED, UNORDERED, SEEN, TOO_LARGE = FAULTS = (
    "gap",
    "wrong_episode_length",
    "repeated_step",
    "conflicting_step",
    "interleaved",
    "out_of_order",
    "id_seen_before",
    "too_large",
)
"""The faults that are counted. Episodes with a repeated step, interleaved or out of order are kept."""

LEFT_OUT_AS_A_WHOLE = "is left out as a whole"
"""In the reason of every record of a discarded episode, also of the good ones."""

_AGREED = ("goal", "split", "device_type", "android_api_level")

T = TypeVar("T")


@dataclass
class WholeEpisode(Generic[T]):
    """`head`: its first record, without the step. `steps`: the kept part of each step, in order."""

    head: EpisodeStep
    steps: list[T]


@dataclass
class _Open(Generic[T]):
    head: EpisodeStep
    steps: dict[int, T] = field(default_factory=dict)
    records: dict[int, EpisodeStep] = field(default_factory=dict)
    size: int = 0
    healed: set[str] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        return len(self.steps) == self.head.episode_length

    def ordered(self) -> list[T]:
        if list(self.steps) != sorted(self.steps):
            self.healed.add(UNORDERED)
        return [self.steps[step_id] for step_id in sorted(self.steps)]

    def missing(self) -> str:
        length = self.head.episode_length
        missing = sorted(set(range(length)) - self.steps.keys())
        named = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        return f"it has only {len(self.steps)} of {length} steps; missing: {named}"


class EpisodeGroups(Generic[T]):
    """Groups the steps of one file into complete episodes, and yields a BadRecord for every other step.

    `duplicate_ids`: ids of episodes of other files. An episode is yielded when a record of another one follows, or at
    `close`. `faults` counts episodes by `FAULTS`.
    """

    def __init__(self, duplicate_ids: Iterable[str] = ()) -> None:
        self.faults: Counter[str] = Counter()
        self._closed_ids = set(duplicate_ids)
        self._seen_again: set[str] = set()
        self._set_aside_because: dict[str, str] = {}
        self._open: dict[str, _Open[T]] = {}
        self._latest: str | None = None

    def add(self, step: EpisodeStep, kept: T, size: int) -> Iterator[WholeEpisode[T] | BadRecord]:
        """Adds a step. `kept` is the part of it to keep, `size` its bytes in memory.

        Nothing happens until the iterator is consumed.
        """
        bare = replace(step, step=None)
        if reason := self._refusal(bare):
            yield _bad(bare, reason)
            return
        yield from self._arrive(bare)
        episode = self._open[step.episode_id]
        if fault := _fault(episode, bare):
            yield from self._set_aside(step.episode_id, *fault)
            yield _bad(bare, self._set_aside_because[step.episode_id])
        elif step.step_id in episode.steps:
            episode.healed.add(REPEATED)
            yield _bad(bare, f"it repeats step {step.step_id} of episode {step.episode_id}, checksum and all")
        else:
            episode.records[step.step_id] = bare
            episode.steps[step.step_id] = kept
            episode.size += size
            yield from self._stay_bounded()

    def close(self) -> Iterator[WholeEpisode[T] | BadRecord]:
        """Closes the open episodes at the end of the file."""
        for episode_id in list(self._open):
            yield from self._finish(episode_id)

    def _arrive(self, step: EpisodeStep) -> Iterator[WholeEpisode[T] | BadRecord]:
        """Opens the step's episode if it is not open. Yields the episode of the step before, if it is complete."""
        before, self._latest = self._latest, step.episode_id
        if before != step.episode_id and before in self._open and self._open[before].is_whole:
            yield from self._finish(before)
        if step.episode_id not in self._open:
            if len(self._open) == MAX_OPEN:
                when = f" when {MAX_OPEN} episodes are open and another begins"
                yield from self._finish(next(iter(self._open)), when)
            self._open[step.episode_id] = _Open(step)
        elif before != step.episode_id:
            self._open[step.episode_id].healed.add(INTERLEAVED)

    def _finish(self, episode_id: str, when: str = "") -> Iterator[WholeEpisode[T] | BadRecord]:
        episode = self._open[episode_id]
        if not episode.is_whole:
            yield from self._set_aside(episode_id, GAP, episode.missing() + when)
            return
        steps = episode.ordered()
        self.faults.update(episode.healed)
        self._closed_ids.add(episode_id)
        del self._open[episode_id]
        yield WholeEpisode(episode.head, steps)

    def _set_aside(self, episode_id: str, fault: str, what: str) -> Iterator[BadRecord]:
        episode = self._open.pop(episode_id)
        self.faults[fault] += 1
        reason = f"episode {episode_id} {LEFT_OUT_AS_A_WHOLE}: {what}"
        self._set_aside_because[episode_id] = reason
        for record in episode.records.values():
            yield _bad(record, reason)

    def _stay_bounded(self) -> Iterator[WholeEpisode[T] | BadRecord]:
        while sum(episode.size for episode in self._open.values()) > MAX_OPEN_BYTES:
            oldest = next(iter(self._open))
            if self._open[oldest].is_whole:
                yield from self._finish(oldest)
            else:
                what = f"with the episodes open beside it, its screens are more than {MAX_OPEN_BYTES >> 20} MiB"
                yield from self._set_aside(oldest, TOO_LARGE, what)

    def _refusal(self, step: EpisodeStep) -> str | None:
        """The reason why a step of a closed episode cannot be used, None for a step of another episode."""
        if step.episode_id in self._closed_ids:
            if step.episode_id not in self._seen_again:
                self._seen_again.add(step.episode_id)
                self.faults[SEEN] += 1
            return f"an episode of id {step.episode_id} was read before"
        return self._set_aside_because.get(step.episode_id)


def _fault(episode: _Open, step: EpisodeStep) -> tuple[str, str] | None:
    """The fault that a step causes in its episode: one of `FAULTS`, and a description."""
    length = episode.head.episode_length
    if step.episode_length != length:
        return LENGTH, f"episode_length is {length} and then {step.episode_length}"
    if step.step_id >= length:
        return LENGTH, f"it has a step {step.step_id}, and episode_length {length}"
    for name in _AGREED:
        if getattr(step, name) != getattr(episode.head, name):
            ours, theirs = getattr(episode.head, name), getattr(step, name)
            return CONFLICTING, f"{name} is {reprlib.repr(ours)} and then {reprlib.repr(theirs)}"
    same = episode.records.get(step.step_id)
    if same is not None and same.fingerprint != step.fingerprint:
        return CONFLICTING, f"records {same.record} and {step.record} both are its step {step.step_id}, and differ"
    return None


def _bad(step: EpisodeStep, reason: str) -> BadRecord:
    return BadRecord(step.file, step.record, step.offset, reason)
