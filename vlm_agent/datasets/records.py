"""The items that a source yields: a step with its position in its episode, an unusable record, or an exclusion."""

from dataclasses import dataclass
from pathlib import Path

from vlm_agent.episodes import Step

SIMULATED_DEVICE = "simulated_"
"""The `device_type` of an episode on the simulated phone begins with this; all else has AITW's format."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An unusable record and the reason.

    `record` is its number in the file, from 0; `offset` its first byte in the uncompressed file. `ends_file`: the rest
    of the file could not be read either, and its number of records is unknown.
    """

    file: Path
    record: int
    offset: int
    reason: str
    ends_file: bool = False

    def __str__(self) -> str:
        return f"{self.file}: record {self.record} (at byte {self.offset}): {self.reason}"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Readable steps, or episodes, that are no training data. They are counted by `reason`, and are no errors.

    `reason` is part of the sentence "3 step(s) excluded: withheld".
    """

    reason: str
    steps: int = 0
    episodes: int = 0


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One usable record: its position in its file, its position in its episode, and the step.

    `episode_id` is unique in the data set, not only in its file. `split` is the split in the source, or None: such
    episodes are in `train` unless `convert --splits` assigns a split. `fingerprint` distinguishes a repeated record
    from two different records for the same step: a checksum of the record's bytes, the same in every process. `step`
    is None in copies that need only the other fields. `moved_points`: see `sources.checks.ReadAction`.
    """

    file: Path
    record: int
    offset: int
    fingerprint: int
    episode_id: str
    subset: str
    step_id: int
    episode_length: int
    goal: str
    device_type: str
    android_api_level: int
    step: Step | None
    split: str | None = None
    moved_points: int = 0
