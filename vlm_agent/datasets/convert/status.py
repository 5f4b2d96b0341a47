"""The state of a conversion, from its folder: no input is read, and any machine that sees the folder can ask.

Entries of killed and of running tasks count alike; the age of the newest one shows whether anything still runs.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vlm_agent.datasets.convert.finish import entries_of
from vlm_agent.datasets.convert.one_input import entry_path
from vlm_agent.datasets.convert.plan import job, read_plan
from vlm_agent.datasets.convert.summary import ConversionSummary
from vlm_agent.datasets.shards.dataset import MANIFEST


@dataclass(frozen=True)
class ConversionStatus:
    """`size`, `converted_size`: bytes of the inputs. `waiting`: names of inputs that are not converted, by their place
    in the list of inputs, from 0. `written`: when the newest entry was. `eta`: at the speed between the first and the
    newest entry; None with fewer than two."""

    summary: ConversionSummary
    files: int
    size: int
    converted_size: int
    waiting: dict[int, str]
    is_complete: bool
    written: datetime | None
    eta: timedelta | None

    @property
    def state(self) -> str:
        if self.is_complete:
            return "complete"
        return "in progress" if self.waiting else "all files are converted; run vlm-agent convert --finish"


def read_status(output: Path) -> ConversionStatus:
    """Raises DatasetError where the folder holds no conversion, or a file of it is damaged."""
    plan, sizes = read_plan(output), _sizes(output)
    entries = entries_of(plan, output)
    converted = [(input_, entry) for input_ in plan.inputs if (entry := entries[input_.shard]) is not None]
    stamps = sorted((_written(entry_path(output, input_)), sizes[input_.shard]) for input_, _ in converted)
    size, converted_size = sum(sizes.values()), sum(size for _, size in stamps)
    return ConversionStatus(
        ConversionSummary.of(output, [entry for _, entry in converted]),
        len(plan.inputs),
        size,
        converted_size,
        {place: input_.name for place, input_ in enumerate(plan.inputs) if entries[input_.shard] is None},
        (output / MANIFEST).is_file(),
        datetime.fromtimestamp(stamps[-1][0], UTC) if stamps else None,
        _eta(stamps, size - converted_size),
    )


def _written(entry: Path) -> float:
    return entry.stat().st_ctime  # its mtime is that of its inputs


def _sizes(output: Path) -> dict[str, int]:
    """Bytes by shard, as the plan recorded them: the inputs may lie on another machine."""
    content = job(output).read_plan()
    with job(output).parsing_plan():
        return {shard: int(about["size"]) for shard, about in content["described"]["inputs"].items()}


def _eta(stamps: list[tuple[float, int]], left: int) -> timedelta | None:
    """`stamps`: (when an input was converted, its bytes), in order."""
    if not left or len(stamps) < 2 or stamps[-1][0] == stamps[0][0]:
        return None
    done = sum(size for _, size in stamps[1:])  # the start of the first is unknown
    return timedelta(seconds=left / max(done, 1) * (stamps[-1][0] - stamps[0][0]))
