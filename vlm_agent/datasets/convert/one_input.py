"""Conversion of one input into its shard and its entry, in one pass with bounded memory.

A screen is encoded as soon as its record is read, so only a few raw screens are in memory at any episode length. The
entry is written after the shard; its existence means that the input is converted.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from vlm_agent.datasets.convert.folder import Options, job, last_change_ns, stamp
from vlm_agent.datasets.convert.grouping import CompleteEpisode, EpisodeGroups
from vlm_agent.datasets.convert.summary import Entry, FileSummary, QuarantinedRecord
from vlm_agent.datasets.selection import MIXED_SPLIT, Splits, in_mixture
from vlm_agent.datasets.shards.images import EncodedScreen
from vlm_agent.datasets.shards.schema import decode_screen, episode_row, step_struct
from vlm_agent.datasets.shards.writer import ShardWriter
from vlm_agent.datasets.sources import SPLITS, BadRecord, EpisodeStep, Exclusion, Input, Source
from vlm_agent.errors import DatasetError
from vlm_agent.files import remove_stale, write_checked
from vlm_agent.files.hashing import HashedFiles

Report = Callable[[int, int, int], None]
"""Called with the numbers of steps, quarantined steps and bytes since the last call."""


@dataclass(frozen=True)
class Conversion:
    """Converts inputs of one source to `output`. `splits` is the content of the split files in `options`."""

    source: Source
    output: Path
    options: Options
    splits: Splits | None

    def convert(self, input_: Input, duplicate_ids: frozenset[str], report: Report) -> Entry:
        """Writes the shard and the entry of an input, replacing those of an interrupted attempt.

        `duplicate_ids`: its episodes that an earlier input contains, too; they are skipped.
        """
        one = _OneInput(self.options, self.splits, input_, duplicate_ids)
        shard = self.output / input_.shard
        remove_stale(shard)
        files, changed_ns = HashedFiles(), last_change_ns(input_)
        with ShardWriter(shard) as writer:
            position = 0
            for item in self.source.read(input_, files):
                before = one.quarantined
                one.take(item, writer)
                steps = 1 if isinstance(item, EpisodeStep) else item.steps
                report(steps, one.quarantined - before, files.position - position)
                position = files.position
            before = one.quarantined
            one.finish(writer)
            report(0, one.quarantined - before, files.position - position)
        if not one.summary.episodes_written:
            shard.unlink(missing_ok=True)
        entry = one.entry(input_, files, shard)
        path = job(self.output).entry_path(input_.shard)
        write_checked(path, asdict(entry))
        stamp(path, changed_ns)
        return entry


class _Stored(NamedTuple):
    """What is kept of a step until its episode is complete: its row in the shard, and how many points were moved."""

    row: dict
    moved_points: int


_DICT_BYTES = 400
"""Bytes in memory of an element beside its texts: its dict and its box."""


def _size(struct: dict, goal: str) -> int:
    """Bytes in memory of a step of `step_struct`: its screen, texts and elements."""
    dicts = [struct, *struct["elements"], *struct["notes"]]
    texts = [goal, *(value for one in dicts for value in one.values() if isinstance(value, str))]
    return len(struct["screenshot"]["bytes"]) + sum(map(sys.getsizeof, texts)) + _DICT_BYTES * len(dicts)


class _OneInput:
    def __init__(self, options: Options, splits: Splits | None, input_: Input, duplicate_ids: frozenset[str]) -> None:
        self._options, self._splits, self._duplicate_ids = options, splits, duplicate_ids
        self._groups: EpisodeGroups[_Stored] = EpisodeGroups(duplicate_ids)
        self._bad: list[BadRecord] = []
        self._excluded: dict[str, str] = {}
        self._split_of: dict[str, str] = {}
        self.summary = FileSummary(input_.name, subset=input_.subset)

    @property
    def quarantined(self) -> int:
        return sum(bad.steps for bad in self._bad)

    def take(self, item: EpisodeStep | BadRecord | Exclusion, writer: ShardWriter) -> None:
        if isinstance(item, BadRecord):
            self._bad.append(item)
            if item.ends_file:
                self.summary.cut_short = True
                self.summary.size_cut_short += item.file.stat().st_size
        elif isinstance(item, Exclusion):
            self.summary.exclude(item)
        elif self._is_selected(item):
            try:
                stored = self._encode(item)
            except DatasetError as error:
                self._bad.append(BadRecord(item.file, item.record, item.offset, f"step {item.step_id}: {error}"))
            else:
                self._write(self._groups.add(item, *stored), writer)
        else:
            self.summary.steps_left_out += 1

    def finish(self, writer: ShardWriter) -> None:
        self._write(self._groups.close(), writer)

    def entry(self, input_: Input, files: HashedFiles, shard: Path) -> Entry:
        summary = self.summary
        summary.size, summary.sha256 = files.position, files.hexdigest()
        summary.steps_quarantined = self.quarantined
        summary.episode_faults = dict(sorted(self._groups.faults.items()))
        for reason in self._excluded.values():
            summary.exclude(Exclusion(reason, episodes=1))
        if summary.episodes_written:
            summary.shard, summary.shard_size = input_.shard, shard.stat().st_size
        lines = [
            QuarantinedRecord(str(bad.file), bad.record, bad.offset, bad.reason, bad.steps)
            for bad in sorted(self._bad, key=lambda bad: (str(bad.file), bad.record))
        ]
        return Entry(summary, sorted(self._duplicate_ids), lines)

    def _is_selected(self, step: EpisodeStep) -> bool:
        """Whether to convert the step's episode.

        Decided before the screen is encoded, because a mixture may exclude 90 % of google_apps.
        """
        is_new = step.episode_id not in self._split_of and step.episode_id not in self._excluded
        if is_new and (reason := self._reason_to_exclude(step)):
            self._excluded[step.episode_id] = reason
        return step.episode_id not in self._excluded

    def _reason_to_exclude(self, step: EpisodeStep) -> str | None:
        split: str | None = SPLITS[0] if step.split is None else step.split
        if self._splits is not None:
            if step.episode_id in self._splits.ambiguous:
                return "in_two_splits"
            split = self._splits.split_of(step.episode_id)
        if split is None:
            return "in_no_split"
        if split == MIXED_SPLIT and not in_mixture(step.episode_id, step.subset, self._options.mixture):
            return "outside_mixture"
        self._split_of[step.episode_id] = split
        return None

    def _encode(self, item: EpisodeStep) -> tuple[_Stored, int]:
        step, screens, png = item.step, self._options.screens, item.png
        if step is not None and png is not None:
            data = bytes(png)
            pixels = decode_screen(data)  # also of a PNG that is kept: its checksums do not say that it can be decoded
            screen = EncodedScreen(data, *step.size) if screens.keeps(step.size) else screens.encode(pixels)
        elif step is not None and step.screenshot is not None:
            screen = screens.encode(step.screenshot)
        else:
            raise ValueError(f"{item.file}: record {item.record} has no screen to write")
        struct = step_struct(step, screen, screens.name, item.step_id, item.record, item.offset)
        return _Stored(struct, item.moved_points), _size(struct, item.goal)

    def _write(self, items: Iterable[CompleteEpisode[_Stored] | BadRecord], writer: ShardWriter) -> None:
        for item in items:
            if isinstance(item, BadRecord):
                self._bad.append(item)
                continue
            head = item.head
            writer.write_row(
                episode_row(
                    episode_id=head.episode_id,
                    subset=head.subset,
                    split=self._split_of[head.episode_id],
                    goal=head.goal,
                    device_type=head.device_type,
                    android_api_level=head.android_api_level,
                    steps=[step.row for step in item.steps],
                )
            )
            self.summary.points_moved += sum(step.moved_points for step in item.steps)
            self.summary.steps_written += len(item.steps)
            self.summary.episodes_written += 1
