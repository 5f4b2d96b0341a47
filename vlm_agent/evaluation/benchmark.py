"""A benchmark: episodes and scorers of an evaluation, read from YAML (`eval/*.yaml`) and the command line."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from vlm_agent.datasets.sources import SPLITS
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.scoring.dialects import SCORERS, find_dialect
from vlm_agent.files import read_checked
from vlm_agent.recipe.yaml_file import read_mapping, validated
from vlm_agent.settings import Section

Groups = dict[str, list[str]]
"""Groups of episodes that are scored in addition to the subsets: name → episode ids."""

_PUBLISHED = ("name", "about", "source")


def _split(name: str) -> str:
    if name not in SPLITS:
        raise ValueError(f"split {name!r} is unknown; choose one of {', '.join(SPLITS)}")
    return name


def _dialect(name: str) -> str:
    try:
        find_dialect(name)
    except UserError as error:
        raise ValueError(str(error)) from None  # pydantic reports ValueErrors only
    return name


NOT_STATED = "the benchmark file does not state its published test episodes"


class PublishedSplit(Section):
    """What is published of the test episodes, by subset.

    `episodes`: their number. `steps`: the number of their steps. `ids`: the SHA-256 of their sorted ids, each followed
    by a newline (`ids_digest`). A number of episodes alone does not identify a split, so each subset has `steps` or
    `ids`.
    """

    episodes: dict[str, PositiveInt]
    steps: dict[str, PositiveInt] = {}  # noqa: RUF012 (pydantic copies it)
    ids: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = {}  # noqa: RUF012 (pydantic copies it)

    @model_validator(mode="after")
    def _identifies_each_subset(self) -> Self:
        for subset in self.episodes:
            if subset not in self.steps and subset not in self.ids:
                raise ValueError(f"subset {subset} needs steps or ids beside its number of episodes")
        if unknown := (set(self.steps) | set(self.ids)) - set(self.episodes):
            raise ValueError(f"subset {min(unknown)} has no number of episodes")
        return self

    def difference(self, subset: str, ids: Sequence[str], steps: int) -> str | None:
        """How the scored episodes of a subset, with `steps` steps in all, differ; None if they agree."""
        if subset not in self.episodes:
            return NOT_STATED
        if len(ids) != self.episodes[subset]:
            return f"{len(ids):,} episode(s) here, {self.episodes[subset]:,} published"
        if steps != self.steps.get(subset, steps):
            return f"{steps:,} steps here, {self.steps[subset]:,} published"
        if subset in self.ids and ids_digest(ids) != self.ids[subset]:
            return "other episodes than the published ones"
        return None


def ids_digest(ids: Iterable[str]) -> str:
    return sha256("".join(f"{id_}\n" for id_ in sorted(ids)).encode()).hexdigest()


class Benchmark(Section):
    """`shards` is a converted folder, `split` the part of it that is scored.

    `limit`: maximum number of episodes, spread evenly over the split, because shards hold one subset after the other.
    `per_subset`: maximum number of episodes of each subset, drawn by `seed` and episode id alone: a larger number
    contains every smaller one. `subsets`: the subsets to score; empty for all.
    `groups`: groups scored in addition to the subsets, or a JSON file of them. In a benchmark file, a relative path is
    that of a file in the folder of the shards (`convert --groups` puts it there), or else in the working folder.
    `dialect`: a scorer in addition to the official and the strict one, `further_dialects`: more of them; with a dialect
    of AitZ, a result has its table of metrics. `name`, `about` and `source` describe a published benchmark; every
    benchmark file has them. `published_split` identifies its test episodes; published numbers are marked as comparable
    only where the scored episodes agree with it.
    """

    name: str | None = None
    about: str | None = None
    source: str | None = None
    shards: Path
    split: Annotated[str, AfterValidator(_split)] = "test"
    groups: Path | Groups = {}  # noqa: RUF012 (pydantic copies it)
    limit: PositiveInt | None = None
    per_subset: PositiveInt | None = None
    subsets: list[str] = []  # noqa: RUF012 (pydantic copies it)
    seed: int = 0
    dialect: Annotated[str, AfterValidator(_dialect)] = "official"
    published_split: PublishedSplit | None = None
    further_dialects: list[Annotated[str, AfterValidator(_dialect)]] = []  # noqa: RUF012 (pydantic copies it)

    @property
    def scorers(self) -> tuple[str, ...]:
        """The scorers of a result, each once."""
        return tuple(dict.fromkeys((*SCORERS, self.dialect, *self.further_dialects)))

    @property
    def draw(self) -> dict[str, Any]:
        """The keys that draw episodes; empty if none does."""
        if self.per_subset is None and not self.subsets:
            return {}
        return {"per_subset": self.per_subset, "subsets": self.subsets, "seed": self.seed}

    def episode_indices(self, ids: Sequence[str], subsets: Sequence[str]) -> list[int]:
        """Which of the split's episodes are scored. `ids`, `subsets`: of each episode of the split.

        Raises DatasetError if one of the benchmark's `subsets` has no episode.
        """
        if absent := [name for name in self.subsets if name not in subsets]:
            raise DatasetError(f"{self.shards} has no episode of subset {absent[0]!r} in split {self.split}")
        chosen = [index for index, subset in enumerate(subsets) if not self.subsets or subset in self.subsets]
        if self.per_subset is not None:
            chosen = self._drawn(chosen, ids, subsets)
        count = len(chosen) if self.limit is None else min(self.limit, len(chosen))
        return [chosen[number * len(chosen) // count] for number in range(count)]

    def _drawn(self, indices: Sequence[int], ids: Sequence[str], subsets: Sequence[str]) -> list[int]:
        """The first `per_subset` episodes of each subset in the order of a hash, as indices in ascending order."""
        by_subset: dict[str, list[int]] = {}
        for index in sorted(indices, key=lambda index: sha256(f"{self.seed} {ids[index]}".encode()).digest()):
            by_subset.setdefault(subsets[index], []).append(index)
        return sorted(index for drawn in by_subset.values() for index in drawn[: self.per_subset])

    def episode_groups(self) -> Groups:
        """The groups. Raises DatasetError if `groups` is a file with other content, or a relative path without a
        file."""
        if not isinstance(self.groups, Path):
            return self.groups
        beside = self.shards / self.groups
        path = beside if beside.is_file() else self.groups
        if not path.is_absolute() and not path.is_file():
            raise DatasetError(
                f"groups: neither {beside} nor {path} exists; name the file with --groups, here or when the shards are "
                "converted"
            )
        return read_groups(path)


def selection_in_words(limit: int | None, draw: Mapping[str, Any] | None) -> str:
    """Which episodes of a split are scored; `draw` is `Benchmark.draw`."""
    parts = []
    if draw:
        count, seed = draw["per_subset"], draw["seed"]
        number = "all" if count is None else f"at most {count:,} a subset, drawn with seed {seed},"
        parts.append(f"{number} of {', '.join(draw['subsets']) or 'every subset'}")
    if limit is not None:
        parts.append(f"at most {limit:,}, spread evenly")
    return "; of these ".join(parts) or "all"


def read_benchmark(path: Path | None, overrides: Mapping[str, Any]) -> Benchmark:
    """The benchmark in a YAML file, or from `overrides` alone if `path` is None; `overrides` take precedence.
    A path of groups among them is one of the working folder.

    Raises DatasetError naming the file and every key that is unknown, missing or of the wrong type.
    """
    overrides = dict(overrides)
    if isinstance(overrides.get("groups"), Path):
        overrides["groups"] = overrides["groups"].absolute()
    if path is None:
        return validated(Benchmark, overrides, "the command line", DatasetError)
    content = read_mapping(path, DatasetError)
    if missing := [key for key in _PUBLISHED if key not in content]:
        raise DatasetError("\n".join(f"{path}: {key}: Field required" for key in missing))
    return validated(Benchmark, content | overrides, str(path), DatasetError)


def read_groups(path: Path) -> Groups:
    """Groups from a JSON file. Raises DatasetError naming the file if its content is wrong."""
    remedy = "name a JSON file that maps each group's name to a list of episode ids, as strings or whole numbers"
    groups: dict[str, list[str | int]] = read_checked(path, remedy, dict[str, list[str | int]])
    return {name: [str(id_) for id_ in ids] for name, ids in groups.items()}
