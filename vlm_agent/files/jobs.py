"""Jobs: an output folder that one command fills, and that the same command resumes after a kill.

The job's plan, a JSON file in the folder, holds everything that decides the output. A run with another plan is refused,
and the message names each difference, so that results of two settings are never mixed in one folder.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import PARTIAL, UNLOCKED, file_lock, parsing, read_checked, remove_partials, write_once
from vlm_agent.files.console import Progress

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")
Entry = TypeVar("Entry")

Work = Callable[[Item, Callable[[int], None]], object]
"""What a job does with one item. The second argument is to be called with the amount that was done since the last
call."""

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""Errors of the file system that further writes would raise, too."""


def differences(before: object, now: object, name: str = "") -> list[str]:
    """One line per value that differs between two JSON-like values, with its dotted key; empty where they are equal."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [
            line
            for key in dict.fromkeys((*before, *now))
            for line in differences(before.get(key), now.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [] if before == now else [f"{name} was {_shortened(before)}, and is {_shortened(now)}"]


_LONGEST = 200


def _shortened(value: object) -> str:
    """The value as JSON; a long value, such as a list of episode ids, is cut."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


@dataclass(frozen=True)
class ArrayTask:
    """Task `index`, from 0, of a job array of `count` tasks. Raises UserError if `index` is not below `count`."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UserError(
                f"--shard-index must be 0 to {self.count - 1} with --shard-count {self.count}, and is {self.index}"
            )

    def items(self, of_all: Sequence[Item]) -> Sequence[Item]:
        """Every `count`-th item from `index`: the share of this task."""
        return of_all[self.index :: self.count]

    def report(self, console: "Console", missing: int, parts: str) -> None:
        """Prints that this task is complete, and how many of `parts` ("4 shard(s)") wait for other tasks."""
        text = f"Task {self.index} of {self.count} is complete; {missing} {parts} of all tasks are missing"
        console.print(text, highlight=False)


@dataclass(frozen=True)
class Job:
    """`noun` names the job with its article ("an evaluation"). `plan` and `lock` are paths inside `folder`.

    With `identity_key`, only the plan's value of that key decides the output and is compared; the rest is for reading
    (where the inputs are on this machine, for example).
    """

    folder: Path
    noun: str
    plan: str = "plan.json"
    lock: str = "lock"
    identity_key: str | None = None

    @property
    def plan_path(self) -> Path:
        return self.folder / self.plan

    def check_folder(self) -> None:
        """Raises DatasetError where `folder` is a file, or holds files but no plan of such a job."""
        if self.plan_path.exists() or not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise DatasetError(f"{self.folder} is a file; {self.noun} needs a folder")
        own = Path(self.plan).parts[0]
        # Another process of the same job may be writing the plan, or have written it and more since the first check.
        foreign = [path for path in self.folder.iterdir() if path.name != own and not path.name.endswith(PARTIAL)]
        if foreign and not self.plan_path.exists():
            raise DatasetError(f"{self.folder} is not empty and does not hold {self.noun}; choose an empty folder")

    def write_or_verify_plan(self, plan: dict, compare: Callable[[dict, dict], list[str]] = differences) -> None:
        """Writes the plan, or checks that the one in the folder decides the same output.

        Raises DatasetError as `check_folder` does, where the plan is of another command, and where `compare` (plan in
        the folder, this plan) returns lines.
        """
        self.check_folder()
        if not self.plan_path.exists() and write_once(self.plan_path, plan):
            return
        before = self.read_plan()
        if plan and before.keys().isdisjoint(plan):
            raise self._foreign()
        with self.parsing_plan():
            changed = compare(self._identity(before), self._identity(plan))
        if changed:
            raise DatasetError(
                f"{self.folder} holds {self.noun} with other settings; choose another folder, or use the same "
                "arguments:\n" + "\n".join(f"  {line}" for line in changed)
            )

    def read_plan(self) -> dict:
        """The plan in the folder. Raises DatasetError where it is missing, damaged, or of another command."""
        if not self.plan_path.is_file():
            raise DatasetError(f"{self.folder} does not hold {self.noun}: {self.plan_path} is missing")
        plan = read_checked(self.plan_path, self._remedy, dict[str, Any])
        if plan and self.identity_key is not None and self.identity_key not in plan:
            raise self._foreign()
        if not isinstance(self._identity(plan), dict):
            raise DatasetError(f"{self.plan_path} is damaged; {self._remedy}")
        return plan

    def forget_unused(self) -> None:
        """Removes the plan of a command that failed before it wrote anything else: another one may use the folder. An
        empty file, such as a lock or the marker of a request without a reply, holds nothing."""
        if not self.plan_path.exists():
            return
        with suppress(DatasetError), file_lock(self.folder / self.lock, self.refusal) as held:
            paths = sorted(self.folder.rglob("*"), reverse=True)
            is_unused = all(path.is_dir() or path == self.plan_path or not path.stat().st_size for path in paths)
            if is_unused and held not in UNLOCKED:  # without locks, tasks that still run would lose their plan
                for path in paths:
                    path.rmdir() if path.is_dir() else path.unlink()

    def parsing_plan(self) -> AbstractContextManager[None]:
        """A block that parses the plan (`files.parsing`)."""
        return parsing(self.plan_path, self._remedy)

    def _foreign(self) -> DatasetError:
        return DatasetError(
            f"{self.folder} does not hold {self.noun}: {self.plan_path} is of another command; choose another folder"
        )

    @property
    def _remedy(self) -> str:
        return f"remove {self.folder} and start again"

    @contextmanager
    def locked(self, shared: bool = False) -> Iterator[None]:
        """Holds the folder for one process, or `shared` among the tasks of a job array.

        Without `shared`, files that a killed process left half written are removed before and after the block. Raises
        DatasetError where another process holds the folder, and in place of an OSError of `NO_ROOM` in the block.
        """
        try:
            with file_lock(self.folder / self.lock, self.refusal, shared) as held, ExitStack() as stack:
                if not shared and held not in UNLOCKED:
                    remove_partials(self.folder)
                    stack.callback(remove_partials, self.folder)
                yield
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise DatasetError(
                f"cannot write to {self.folder}: {os.strerror(error.errno)}; fix this, then run the same command again "
                "to resume"
            ) from None

    @property
    def refusal(self) -> str:
        """The message for a folder that another process holds."""
        return f"another process is writing {self.noun} to {self.folder}; wait for it, or stop it"

    def _identity(self, plan: dict) -> Any:
        return plan if self.identity_key is None else plan.get(self.identity_key)


class ShardJob(Job):
    """A job that makes a shard and an entry of each item, resumed item by item.

    FOLDER/WORK/plan.json       `described` decides the output; other keys say where the input is on this machine
    FOLDER/WORK/<shard>.json    the entry of an item, written after its shard: the item is done
    FOLDER/manifest.json        written last: the job is complete

    A job is a plan, and a `work` function that writes shard and entry of one item. Each task of a job array fills its
    share of the items; one command without a task, or with `--finish`, writes the manifest.
    """

    @classmethod
    def of(cls, folder: Path, noun: str, work: str) -> "ShardJob":
        """The job in `folder`, which keeps plan, lock and entries in the folder `work` inside."""
        return cls(folder, noun, f"{work}/plan.json", f"{work}/lock", identity_key="described")

    def entry_path(self, shard: str) -> Path:
        return self.plan_path.parent / f"{shard}.json"

    @contextmanager
    def started(self, plan: dict, task: ArrayTask | None) -> Iterator[None]:
        """Holds the folder, alone or as a `task` of a job array, with `plan` written or verified."""
        self.check_folder()
        with free_after_errors(self), self.locked(shared=task is not None):
            self.write_or_verify_plan(plan)
            yield

    def begin(self) -> None:
        """To be called before shards are written or replaced: a folder with a manifest is complete."""
        (self.folder / "manifest.json").unlink(missing_ok=True)

    def fill(self, sizes: Mapping[Item, int], work: Work[Item], unit: str, console: "Console") -> None:
        """Calls `work` with each of the items that are not done, and shows progress. `sizes`: how many of `unit` each
        item has."""
        if not sizes:
            return
        self.begin()
        progress = Progress(console, sum(sizes.values()), unit)
        with progress.shown():
            for number, item in enumerate(sizes, 1):
                label = f"shard {number} of {len(sizes)}"
                work(item, lambda count, label=label: progress.advance(count, label))  # type: ignore[misc]
                progress.advance(0, label, is_stage_end=True)


def all_done(entries: Mapping[str, Entry | None], participle: str) -> dict[str, Entry]:
    """The entries, by name. Raises DatasetError that names the first ones that are None: not `participle` yet."""
    missing = [name for name, entry in entries.items() if entry is None]
    if missing:
        examples = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
        raise DatasetError(
            f"{len(missing)} of {len(entries)} shards are not {participle} yet ({examples}); run their part of the "
            "job array again, or the same command without --shard-index"
        )
    return {name: entry for name, entry in entries.items() if entry is not None}


_NAMED = 5


_PAUSE = 3600
"""Seconds between two entries, after which the speed before is not counted."""


def time_left(written: Sequence[tuple[float, int]], left: int) -> timedelta | None:
    """The time for `left` more at the speed since the first of `written`, (seconds, size) in order, after the last
    pause (`_PAUSE`).

    The size of the first does not count, because its start is unknown. None with fewer than two, and with 0 left.
    """
    gaps = [place for place, (before, now) in enumerate(pairwise(written), 1) if now[0] - before[0] > _PAUSE]
    since = written[gaps[-1] :] if gaps else written
    if not left or len(since) < 2 or since[-1][0] == since[0][0]:
        return None
    done = max(sum(size for _, size in since[1:]), 1)
    with suppress(OverflowError):
        return timedelta(seconds=left / done * (since[-1][0] - since[0][0]))
    return None


@contextmanager
def free_after_errors(job: Job) -> Iterator[None]:
    """After an error in the block, the folder of a job that wrote nothing is free for other settings
    (`Job.forget_unused`)."""
    try:
        yield
    except (UserError, OSError):
        job.forget_unused()
        raise
