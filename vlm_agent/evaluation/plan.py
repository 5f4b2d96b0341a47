"""What an evaluation is, written down so that nothing else can be mixed into its output.

OUT/plan.json    what decides the predictions, which a second run is held to, and what only the report needs
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.datasets import PARTIAL, DatasetError, written_whole
from vlm_agent.datasets.convert.hashed_file import sha256_of
from vlm_agent.datasets.shards import MANIFEST

PLAN = "plan.json"
VERSION = 1


@dataclass(frozen=True)
class Benchmark:
    """What is measured on what: the shards' `split`, extra `groups` of episode ids, and at most `limit` episodes.

    Those are spread evenly over the split, because shards hold one subset after the other. `name` is a published
    benchmark's; `dialect` scores beside the official and the strict score.
    """

    shards: Path
    split: str
    groups: Mapping[str, list[str]] = field(default_factory=dict)
    limit: int | None = None
    name: str | None = None
    dialect: str = "official"

    def chosen(self, available: int) -> list[int]:
        """Which of the split's `available` episodes are scored."""
        count = available if self.limit is None else min(self.limit, available)
        return [number * available // count for number in range(count)]


@dataclass(frozen=True)
class Plan:
    """`agent` is what its source describes, `place` where that was; `language` the keys of a `LanguageRecipe`.

    `passes` are the runs, those together that come out of one pass of the model: [["trained", "constrained"], …].
    """

    agent: dict
    place: str
    language: dict
    benchmark: Benchmark
    passes: list[list[str]]

    @property
    def runs(self) -> list[str]:
        return [run for runs in self.passes for run in runs]

    def described(self) -> dict:
        """What two runs into one output must have in common: not where things lie, which differs between machines."""
        return {
            "version": VERSION,
            "agent": self.agent,
            "language": self.language,
            "shards": sha256_of([self.benchmark.shards / MANIFEST]),
            "split": self.benchmark.split,
            "limit": self.benchmark.limit,
            "runs": self.runs,
        }


def hold_to_plan(output: Path, plan: Plan) -> None:
    """Writes the plan into `output`, or checks that the one that is there predicts the same.

    Raises DatasetError where `output` is a file, holds something else than an evaluation, or one that differs: the
    message names what.
    """
    if (output / PLAN).exists():
        differences = list(_differences("", _read(output)["described"], plan.described()))
        if differences:
            raise DatasetError(
                f"{output} holds an evaluation that was made otherwise; give another folder, or the same arguments:\n"
                + "\n".join(f"  {line}" for line in differences)
            )
        return
    if output.exists() and not output.is_dir():
        raise DatasetError(f"{output} is a file; the results need a folder")
    # A task of the same job array may be writing its plan just now.
    if output.is_dir() and any(not path.name.endswith(PARTIAL) for path in output.iterdir()):
        raise DatasetError(f"{output} holds something that is no evaluation of this program; give an empty folder")
    given = {
        "place": plan.place,
        "shards": str(plan.benchmark.shards),
        "groups": dict(plan.benchmark.groups),
        "benchmark": plan.benchmark.name,
        "dialect": plan.benchmark.dialect,
        "passes": plan.passes,
    }
    with written_whole(output / PLAN) as part:
        text = json.dumps({"described": plan.described(), "given": given}, indent=1, ensure_ascii=False)
        part.write_text(text + "\n", encoding="utf-8")


def read_plan(output: Path) -> Plan:
    """The plan that an evaluation was begun with; DatasetError where `output` has none."""
    content = _read(output)
    described, given = content["described"], content["given"]
    benchmark = Benchmark(
        Path(given["shards"]),
        described["split"],
        given["groups"],
        described["limit"],
        given["benchmark"],
        given["dialect"],
    )
    plan = Plan(described["agent"], given["place"], described["language"], benchmark, given["passes"])
    if differences := list(_differences("", described, plan.described())):
        raise DatasetError(f"{output}: {benchmark.shards} changed since it was begun: {'; '.join(differences)}")
    return plan


def _read(output: Path) -> dict:
    path = output / PLAN
    if not path.is_file():
        raise DatasetError(f"{output} holds no evaluation: there is no {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["described"]["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is damaged ({error}); remove {output} and evaluate again") from None
    if version != VERSION:
        raise DatasetError(f"{path} has version {version}, this program writes {VERSION}; give another folder")
    return content


def _differences(name: str, then: object, now: object) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            yield from _differences(f"{name}.{key}".lstrip("."), then.get(key), now.get(key))
    elif then != now:
        yield f"{name} was {json.dumps(then)}, and is {json.dumps(now)}"
