"""One input becomes its shard and its entry, in one pass and within bounded memory.

A screen is encoded as soon as its record is read, so at most a few are held raw, whatever the length of an episode. The
entry is written after the shard and means that this input is done.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.convert.hashed_file import HashedFiles, sha256_of
from vlm_agent.datasets.convert.plan import WORK, Options, read_json, write_json
from vlm_agent.datasets.convert.sources import SOURCES, Input
from vlm_agent.datasets.convert.summary import Entry, FileSummary
from vlm_agent.datasets.episode_steps import BadRecord, EpisodeStep
from vlm_agent.datasets.grouping import EpisodeGroups, WholeEpisode
from vlm_agent.datasets.mixture import in_mixture
from vlm_agent.datasets.shard_schema import episode_row, step_struct
from vlm_agent.datasets.shards import ShardWriter
from vlm_agent.datasets.splits import SPLITS, Splits

Report = Callable[[int, int, int], None]
"""Takes how many steps, quarantined records and bytes have come since it was called last."""


class Conversion:
    """Converts the inputs of one source to `output`; `splits` are what the split files of `options` say."""

    def __init__(self, source: str, output: Path, options: Options, splits: Splits | None):
        self._kind, self._output, self._options, self._splits = SOURCES[source], output, options, splits

    def convert(self, given: Input, had: frozenset[str], report: Report) -> Entry:
        """`had`: ids of episodes that earlier inputs have given. Overwrites what an interrupted attempt has left."""
        one = _OneInput(self._options, self._splits, given, had)
        shard = self._output / given.shard
        files = HashedFiles()
        with ShardWriter(shard) as writer:
            position = 0
            for item in self._kind.read(given, files):
                before = one.quarantined
                one.take(item, writer)
                report(1, one.quarantined - before, files.position - position)
                position = files.position
            before = one.quarantined
            one.finish(writer)
            report(0, one.quarantined - before, files.position - position)
        if not one.summary.episodes_written:
            shard.unlink(missing_ok=True)
        entry = one.entry(given, files, shard)
        write_json(entry_path(self._output, given), asdict(entry))
        return entry


def entry_path(output: Path, given: Input) -> Path:
    return output / WORK / f"{given.shard}.json"


def read_entry(output: Path, given: Input, had: frozenset[str]) -> Entry | None:
    """The entry of an input that is done; None where it is not, or was done with other ids in `had`.

    Raises DatasetError where the input's bytes are not those that were converted.
    """
    path = entry_path(output, given)
    if not path.is_file():
        return None
    entry = Entry.read(read_json(path), path)
    if entry.had != sorted(had) or not _shard_is_there(output, entry.summary):
        return None
    _check_unchanged(given, entry.summary, written=path.stat().st_mtime)
    return entry


def _shard_is_there(output: Path, summary: FileSummary) -> bool:
    if summary.shard is None:
        return True
    shard = output / summary.shard
    return shard.is_file() and shard.stat().st_size == summary.shard_size


def _check_unchanged(given: Input, summary: FileSummary, written: float) -> None:
    """Reads a file again only where the file system says that it was touched after its entry was written."""
    if max(path.stat().st_ctime for path in given.files) >= written and sha256_of(given.files) != summary.sha256:
        raise DatasetError(
            f"{given.files[0]} was converted before, and its content has changed since; give another output folder, or "
            "put the old file back"
        )


class _OneInput:
    def __init__(self, options: Options, splits: Splits | None, given: Input, had: frozenset[str]):
        self._options, self._splits, self._had = options, splits, had
        self._groups: EpisodeGroups[dict] = EpisodeGroups(had)
        self._bad: list[BadRecord] = []
        self._left_out: dict[str, str] = {}
        self._split_of: dict[str, str] = {}
        self.summary = FileSummary(given.name, subset=given.subset)

    @property
    def quarantined(self) -> int:
        return len(self._bad)

    def take(self, item: EpisodeStep | BadRecord, writer: ShardWriter) -> None:
        if isinstance(item, BadRecord):
            self._bad.append(item)
            self.summary.cut_short |= item.ends_file
        elif self._is_wanted(item):
            self._write(self._groups.add(item, *self._encoded(item)), writer)
        else:
            self.summary.steps_left_out += 1

    def finish(self, writer: ShardWriter) -> None:
        self._write(self._groups.close(), writer)

    def entry(self, given: Input, files: HashedFiles, shard: Path) -> Entry:
        summary = self.summary
        summary.size, summary.sha256 = files.position, files.hexdigest()
        summary.steps_quarantined = len(self._bad)
        summary.episode_faults = dict(sorted(self._groups.faults.items()))
        for reason in self._left_out.values():
            summary.episodes_left_out[reason] = summary.episodes_left_out.get(reason, 0) + 1
        if summary.episodes_written:
            summary.shard, summary.shard_size = given.shard, shard.stat().st_size
        lines = [
            {"file": str(bad.file), "record": bad.record, "offset": bad.offset, "reason": bad.reason}
            for bad in sorted(self._bad, key=lambda bad: (str(bad.file), bad.record))
        ]
        return Entry(summary, sorted(self._had), lines)

    def _is_wanted(self, step: EpisodeStep) -> bool:
        """Asked before the screen is encoded: 90 % of google_apps may not be wanted."""
        is_new = step.episode_id not in self._split_of and step.episode_id not in self._left_out
        if is_new and (reason := self._why_left_out(step)):
            self._left_out[step.episode_id] = reason
        return step.episode_id not in self._left_out

    def _why_left_out(self, step: EpisodeStep) -> str | None:
        split = SPLITS[0] if step.split is None else step.split
        if self._splits is not None:
            if step.episode_id in self._splits.ambiguous:
                return "in_two_splits"
            split = self._splits.split_of(step.episode_id)
        if split is None:
            return "in_no_split"
        if not in_mixture(step.episode_id, step.subset, self._options.mixture):
            return "outside_mixture"
        self._split_of[step.episode_id] = split
        return None

    def _encoded(self, item: EpisodeStep) -> tuple[dict, int]:
        screens = self._options.screens
        screen = screens.encode(item.step.screenshot)
        struct = step_struct(item.step, screen, screens.name, item.step_id, item.record, item.offset)
        return struct, len(screen.data)

    def _write(self, items: Iterable[WholeEpisode[dict] | BadRecord], writer: ShardWriter) -> None:
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
                    steps=item.steps,
                )
            )
            self.summary.steps_written += len(item.steps)
            self.summary.episodes_written += 1
