"""The plan of a conversion: its inputs and options. A second run with another plan is refused.

DIR/.conversion/plan.json        inputs and options
DIR/.conversion/<shard>.json     the entry of one input, written after its shard
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.datasets.selection import check_mixture
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.shards.schema import FIRST_VERSION
from vlm_agent.datasets.sources import Input
from vlm_agent.files import sha256_of
from vlm_agent.jobs import Job

WORK = ".conversion"


@dataclass(frozen=True)
class Options:
    """The options that affect the bytes of the output.

    `splits`: split files. `mixture`: subset → share of its episodes to keep, 1 for a subset without an entry.
    """

    splits: tuple[Path, ...] = ()
    mixture: Mapping[str, float] = field(default_factory=dict)
    screens: ScreenFormat = field(default_factory=ScreenFormat)

    def __post_init__(self) -> None:
        check_mixture(self.mixture)

    def described(self) -> dict:
        """The options as in the manifest."""
        return {
            "splits": [{"name": path.name, "sha256": sha256_of([path])} for path in self.splits],
            "mixture": dict(sorted(self.mixture.items())),
            "screens": self.screens.described(),
        }


@dataclass(frozen=True)
class Plan:
    source: str
    options: Options
    inputs: tuple[Input, ...]

    def described(self) -> dict:
        """What two runs must have in common. Not the paths of the inputs, which differ between machines."""
        return {
            "schema_version": FIRST_VERSION,
            "source": self.source,
            "options": self.options.described(),
            "inputs": {input_.shard: {"name": input_.name, "size": input_.size()} for input_ in self.inputs},
        }


def job(output: Path) -> Job:
    """The folder that a conversion fills."""
    return Job(output, "a conversion", plan=f"{WORK}/plan.json", lock=f"{WORK}/lock", identity_key="described")


def write_or_verify_plan(output: Path, plan: Plan) -> None:
    """Writes the plan to `output`, or compares it with the plan that is there.

    Raises DatasetError with the differences if they are not equal.
    """
    where = {
        "splits": [str(path.absolute()) for path in plan.options.splits],
        "inputs": {input_.shard: [str(path) for path in input_.files] for input_ in plan.inputs},
    }
    job(output).write_or_verify_plan({"described": plan.described(), "where": where}, _differences)


def read_plan(output: Path) -> Plan:
    """The plan of the conversion in `output`."""
    content = job(output).read_plan()
    described, where = content["described"], content["where"]
    options = described["options"]
    inputs = (
        Input(entry["name"], shard.partition("/")[0], shard, tuple(map(Path, where["inputs"][shard])))
        for shard, entry in described["inputs"].items()
    )
    screens = ScreenFormat(**options["screens"])
    splits = tuple(map(Path, where["splits"]))
    return Plan(described["source"], Options(splits, options["mixture"], screens), tuple(inputs))


def _differences(then: dict, now: dict) -> list[str]:
    lines = [
        f"{key} was {then[key]!r}, and is {now[key]!r}" for key in ("schema_version", "source") if then[key] != now[key]
    ]
    for key, value in now["options"].items():
        before = then["options"].get(key)
        if before != value:
            lines.append(f"option {key} was {_short(before)}, and is {_short(value)}")
    return lines + _input_differences(then["inputs"], now["inputs"])


def _input_differences(then: dict, now: dict) -> list[str]:
    lines = [f"input {then[shard]['name']} was there, and is not" for shard in then if shard not in now]
    lines += [f"input {now[shard]['name']} was not there, and is" for shard in now if shard not in then]
    lines += [
        f"input {now[shard]['name']} has {now[shard]['size']:,} bytes, and {then[shard]['size']:,} before"
        for shard in now
        if shard in then and then[shard]["size"] != now[shard]["size"]
    ]
    if not lines and list(then) != list(now):
        lines.append("the order of the inputs was another one")
    return lines[:_SHOWN] + ([f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])


_SHOWN = 10


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
