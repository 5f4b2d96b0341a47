"""Whether the inputs are still the files that were converted.

An entry has the time of the last change of its inputs as its own (`stamp`), exactly, whatever the clock says. A file is
hashed only if its status changed since. A copy to another disk changes the status of all files, 2.6 TB of AITW, so
hashing shows progress, and no file is hashed twice.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from vlm_agent.datasets.convert.one_input import entry_path, last_change_ns, stamp
from vlm_agent.datasets.convert.summary import Entry
from vlm_agent.datasets.sources import Input
from vlm_agent.errors import DatasetError
from vlm_agent.files import sha256_of
from vlm_agent.files.console import Progress


def without_changed(
    entries: Mapping[str, Entry | None],
    inputs: Sequence[Input],
    output: Path,
    console: Console,
    update: bool = False,
) -> dict[str, Entry | None]:
    """`entries`, by shard, with None for each of `inputs` whose files have changed since they were converted.

    Raises DatasetError for the first of them without `update`.
    """
    checked = dict(entries)
    converted = [(input_, entry) for input_ in inputs if (entry := entries[input_.shard]) is not None]
    touched = [(input_, entry) for input_, entry in converted if _is_touched(input_, output)]
    size, done = sum(input_.size() for input_, _ in touched), 0
    progress = Progress(console, size, "bytes")
    with progress.shown():
        for number, (input_, entry) in enumerate(touched, 1):
            changed_ns = last_change_ns(input_)
            if sha256_of(input_.files) == entry.summary.sha256:
                stamp(entry_path(output, input_), changed_ns)
            elif update:
                checked[input_.shard] = None
            else:
                raise DatasetError(
                    f"{input_.files[0]} has changed since it was converted; restore the old file, or add --update to "
                    "convert changed files again"
                )
            done += input_.size()
            line = f"checked {number:,} of {len(touched):,} files that were copied or changed"
            progress.update(done, f"{line}, {decimal(done)} of {decimal(size)}")
    return checked


def _is_touched(input_: Input, output: Path) -> bool:
    return entry_path(output, input_).stat().st_mtime_ns != last_change_ns(input_)
