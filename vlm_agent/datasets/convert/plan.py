"""What a conversion is: its inputs and its options, written down so that nothing else can be mixed into its output.

DIR/.conversion/plan.json               inputs and options; what a second run is held to
DIR/.conversion/<shard>.json            what became of one input: written when its shard is, and means done
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.convert.hashed_file import sha256_of
from vlm_agent.datasets.convert.sources import Input
from vlm_agent.datasets.images import ScreenFormat
from vlm_agent.datasets.mixture import check_mixture
from vlm_agent.datasets.shard_schema import SCHEMA_VERSION

WORK = ".conversion"
PLAN = "plan.json"


@dataclass(frozen=True)
class Options:
    """What decides the bytes of the output, beside the inputs. `splits` are split files, `mixture` is subset → share
    of its episodes to keep (1 where not named)."""

    splits: tuple[Path, ...] = ()
    mixture: Mapping[str, float] = field(default_factory=dict)
    screens: ScreenFormat = field(default_factory=ScreenFormat)

    def __post_init__(self):
        check_mixture(self.mixture)

    def described(self) -> dict:
        """As the manifest records them."""
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
        """What two runs have to have in common: not where the files lie, which differs between machines."""
        return {
            "schema_version": SCHEMA_VERSION,
            "source": self.source,
            "options": self.options.described(),
            "inputs": {given.shard: {"name": given.name, "size": given.size()} for given in self.inputs},
        }


def check_output(output: Path) -> None:
    """Raises DatasetError where `output` is a file, or holds something else than a conversion."""
    if (output / WORK / PLAN).exists():
        return
    if output.exists() and not output.is_dir():
        raise DatasetError(f"{output} is a file; the shards need a folder")
    if output.is_dir() and any(path.name != WORK for path in output.iterdir()):
        raise DatasetError(f"{output} holds something that is no conversion of this program; give an empty folder")


def hold_to_plan(output: Path, plan: Plan) -> None:
    """Writes the plan into `output`, or checks that the one that is there is the same.

    Raises DatasetError for one that differs: the message names what.
    """
    described = plan.described()
    if (output / WORK / PLAN).exists():
        if differences := list(_differences(read_plan_file(output)["described"], described)):
            raise DatasetError(
                f"{output} holds a conversion that was made otherwise; give another folder, or the same arguments:\n"
                + "\n".join(f"  {line}" for line in differences)
            )
        return
    where = {
        "splits": [str(path.absolute()) for path in plan.options.splits],
        "inputs": {given.shard: [str(path) for path in given.files] for given in plan.inputs},
    }
    write_json(output / WORK / PLAN, {"described": described, "where": where})


def read_plan_file(output: Path) -> dict:
    """`described` (see `Plan`) and `where`: the absolute paths of inputs and split files."""
    path = output / WORK / PLAN
    if not path.is_file():
        raise DatasetError(f"{output} holds no conversion: there is no {path}")
    return read_json(path)


def read_plan(output: Path) -> Plan:
    """The plan that a conversion was begun with, from its output alone."""
    content = read_plan_file(output)
    described, where = content["described"], content["where"]
    options = described["options"]
    inputs = (
        Input(entry["name"], shard.partition("/")[0], shard, tuple(map(Path, where["inputs"][shard])))
        for shard, entry in described["inputs"].items()
    )
    screens = ScreenFormat(**options["screens"])
    splits = tuple(map(Path, where["splits"]))
    return Plan(described["source"], Options(splits, options["mixture"], screens), tuple(inputs))


def write_json(path: Path, content: dict) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(f"{path} is damaged ({error}); remove it, and what it tells of is made again") from None


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
        f"input {now[shard]['name']} had {then[shard]['size']:,} bytes, and has {now[shard]['size']:,}"
        for shard in now
        if shard in then and then[shard]["size"] != now[shard]["size"]
    ]
    if not lines and list(then) != list(now):
        lines.append("the order of the inputs was another one")
    return lines[:_SHOWN] + ([f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])


_SHOWN = 10


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
