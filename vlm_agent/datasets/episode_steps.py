"""What a source yields, one at a time: a step that knows its episode, or a record that cannot be used."""

from dataclasses import dataclass
from pathlib import Path

from vlm_agent.episodes import Step


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that is not used: in which file, which one (from 0), where it begins (bytes of the uncompressed file),
    and why.

    `ends_file`: nothing behind it could be read either, and how much that was is not known.
    """

    file: Path
    record: int
    offset: int
    reason: str
    ends_file: bool = False

    def __str__(self) -> str:
        return f"{self.file}: record {self.record} (at byte {self.offset}): {self.reason}"


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One good record: where it stands in its file, which step of which episode it is, and the step.

    `split` is what the source itself says, None where it does not. `fingerprint` tells a record that is there twice
    from two records that claim to be the same step. `step` is None only where the rest is all that is kept of it.
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
