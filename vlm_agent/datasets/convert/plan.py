"""The plan of a conversion: its inputs and options. A second run with a different plan is refused (`files/jobs.py`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from vlm_agent.datasets.selection import MIXED_SPLIT, check_mixture
from vlm_agent.datasets.shards.dataset import WORK_FOLDERS
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.shards.schema import VERSION
from vlm_agent.datasets.sources import Input
from vlm_agent.files import sha256_of, write_checked
from vlm_agent.files.jobs import ShardJob

WORK = WORK_FOLDERS["convert"]


@dataclass(frozen=True)
class Options:
    """The options that affect the bytes of the output.

    `splits`: split files. `mixture`: subset → fraction of its training episodes to keep, 1 for subsets without an
    entry; episodes of other splits are kept.
    """

    splits: tuple[Path, ...] = ()
    mixture: Mapping[str, float] = field(default_factory=dict)
    screens: ScreenFormat = field(default_factory=ScreenFormat)

    def __post_init__(self) -> None:
        check_mixture(self.mixture)

    def content(self) -> dict:
        """The options as they are written to the manifest."""
        return {
            "splits": [{"name": path.name, "sha256": sha256_of([path])} for path in self.splits],
            "mixture": dict(sorted(self.mixture.items())),
            **({"mixture_of": MIXED_SPLIT} if self.mixture else {}),
            "screens": self.screens.described(),
        }


@dataclass(frozen=True)
class Plan:
    source: str
    options: Options
    inputs: tuple[Input, ...]

    def identity(self) -> dict:
        """The settings that two runs must share. The inputs' paths are excluded: they differ between machines."""
        return {
            "schema_version": VERSION,
            "source": self.source,
            "options": self.options.content(),
            "inputs": {input_.shard: {"name": input_.name, "size": input_.size()} for input_ in self.inputs},
        }


def job(output: Path) -> ShardJob:
    """The resumable output folder of a conversion."""
    return ShardJob.of(output, "a conversion", WORK)


def write_or_verify_plan(output: Path, plan: Plan, update: bool = False) -> None:
    """Writes the plan to `output`, or compares it with the existing plan.

    Raises DatasetError with the differences if they are not equal. With `update`, inputs may be new or of another size;
    the plan is then written anew.
    """
    paths = {
        "splits": [str(path.absolute()) for path in plan.options.splits],
        "inputs": {input_.shard: [str(path) for path in input_.files] for input_ in plan.inputs},
    }
    content = {"described": plan.identity(), "where": paths}
    job(output).write_or_verify_plan(content, partial(_differences, update=update))
    if update:
        write_checked(job(output).plan_path, content)


def read_plan(output: Path) -> Plan:
    """The plan of the conversion in `output`."""
    content = job(output).read_plan()
    with job(output).parsing_plan():
        identity, paths = content["described"], content["where"]
        options = identity["options"]
        inputs = [
            Input(entry["name"], shard.partition("/")[0], shard, tuple(map(Path, paths["inputs"][shard])))
            for shard, entry in identity["inputs"].items()
        ]
        screens = ScreenFormat(**options["screens"])
        splits = tuple(map(Path, paths["splits"]))
        return Plan(identity["source"], Options(splits, options["mixture"], screens), tuple(inputs))


def _differences(before: dict, now: dict, update: bool = False) -> list[str]:
    """With `update`, those that it does not accept."""
    lines = [
        f"{key}: {before[key]!r} before, {now[key]!r} now"
        for key in ("schema_version", "source")
        if before[key] != now[key]
    ]
    for key, value in now["options"].items():
        old_value = before["options"].get(key)
        if old_value != value:
            lines.append(f"option {key}: {_short(old_value)} before, {_short(value)} now")
    missing = [
        f"input {about['name']} is missing" for shard, about in before["inputs"].items() if shard not in now["inputs"]
    ]
    if update:
        return [*lines, *_shown(missing)]
    updates = _updates(before["inputs"], now["inputs"])
    if not missing and not updates and list(before["inputs"]) != list(now["inputs"]):
        return [*lines, "the inputs are in a different order"]
    remedy = ["add --update to convert new and changed inputs"] if updates and not lines and not missing else []
    return [*lines, *_shown([*missing, *updates]), *remedy]


def _updates(before: dict, now: dict) -> list[str]:
    lines = [f"input {now[shard]['name']} is new" for shard in now if shard not in before]
    return lines + [
        f"input {now[shard]['name']}: {before[shard]['size']:,} bytes before, {now[shard]['size']:,} bytes now"
        for shard in now
        if shard in before and before[shard]["size"] != now[shard]["size"]
    ]


_SHOWN = 10


def _shown(lines: list[str]) -> list[str]:
    return lines[:_SHOWN] + ([f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
