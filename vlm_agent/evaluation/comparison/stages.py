"""The stages of a comparison: commands that a user could type, in their order.

OUT/data/           simulated demonstrations (aitw/) and their shards (shards/), where no shards are named; with screens
                    at N times their size aitw_xN/ and shards_xN/
OUT/features/       stored features of screens, by agent
OUT/agents/         agent files of prompted agents, one for each stage that reads it
OUT/chats/          what the served model learns: a file of chats for each prompted agent
OUT/runs/           training runs, AGENT_SEED
OUT/merged/         the served run with its adapter merged, where it trains one
OUT/offline/        evaluations on recorded episodes, AGENT_SEED
OUT/online/         evaluations on simulated phones, AGENT_SEED
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vlm_agent.evaluation.comparison.settings import SERVED, Comparison, ComparisonError, Contestant, Endpoint, Sizes
from vlm_agent.evaluation.offline.plan import METRICS
from vlm_agent.evaluation.online.evaluate import ONLINE as ONLINE_FILE
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.recipe.yaml_file import filled, find_shipped, read_mapping

TRAIN, OFFLINE, ONLINE = "train", "offline", "online"
"""Kinds of stages that have figures of their own in the table."""

RESULTS = {TRAIN: "run.json", OFFLINE: METRICS, ONLINE: ONLINE_FILE}
"""By kind, the file in the output folder that marks the stage as complete. The first is `run_layout.FINISHED`, whose
import takes seconds."""


def scaled(name: str, scale: int) -> str:
    return name if scale == 1 else f"{name}_x{scale}"


def name_of(kind: str, key: str, seed: int) -> str:
    """The name of a stage of one agent and seed, which is also a file name. Keys have no hyphens, so it is unique."""
    return f"{kind}-{key}-{seed}"


@dataclass(frozen=True)
class Stage:
    """A subcommand and its arguments. `owner`: the agent and seed that it belongs to; None for stages of several.
    `anew`: a folder to remove first if the stage was interrupted. `prompts`: the agent whose agent file it reads.
    `served`: the run that is served while the stage runs, or the command that serves. `gpus`: of the model that runs in
    it or is served beside it. `bf16`: whether it computes in bfloat16 where the machine that runs it gains from it."""

    name: str
    words: tuple[str, ...]
    kind: str = ""
    owner: tuple[str, int] | None = None
    anew: Path | None = None
    prompts: str = ""
    served: Path | str | None = None
    gpus: int = 0
    bf16: bool = False

    @property
    def output(self) -> Path:
        """The file or folder that it writes."""
        return Path(self.words[self.words.index("--output") + 1])

    def needs(self, earlier: "Iterable[Stage]", output: Path, keys: str) -> list["Stage"]:
        """The `earlier` stages whose results it reads: one of its paths in the comparison's `output` equals,
        contains or is inside theirs. `keys`: of its agent file, as JSON."""
        words = (*self.words, *([] if self.served is None else [str(self.served)]), keys)
        strings = (Path(part) for word in words for part in word.split('"'))  # a word may be JSON
        paths = [path for path in strings if path != self.output and output in path.parents]
        return [
            stage
            for stage in earlier
            if any(path.is_relative_to(stage.output) or stage.output.is_relative_to(path) for path in paths)
        ]

    @property
    def result(self) -> Path:
        """What the stage writes last, or its output. A finished stage without it runs again."""
        return self.output / RESULTS.get(self.kind, "")


@dataclass(frozen=True)
class Layout:
    """The folders of a comparison. `user_shards`: existing ones of the user, or None to simulate some.
    `user_benchmark`: the benchmark file of the user's shards, in place of the comparison's."""

    output: Path
    user_shards: Path | None = None
    user_benchmark: Path | None = None

    def simulated(self, name: str, scale: int) -> Path:
        """The folder `name` of simulated demonstrations at a scale of screens."""
        return self.output / "data" / scaled(name, scale)

    @property
    def shards(self) -> Path:
        return self.shards_at(1)

    def shards_at(self, scale: int) -> Path:
        return self.simulated("shards", scale) if self.user_shards is None else self.user_shards

    @property
    def groups(self) -> Path | None:
        return self.simulated("aitw", 1) / "groups.json" if self.user_shards is None else None

    def benchmark(self, comparison: Comparison) -> Path | None:
        own = comparison.simulated_benchmark if self.user_shards is None else self.user_benchmark
        return own or comparison.benchmark

    def of(self, kind: str, key: str, seed: int) -> Path:
        return self.output / kind / f"{key}_{seed}"

    def run(self, key: str, agent: Contestant, seed: int) -> Path:
        """The run of an agent that is trained, here or before."""
        return self.of("runs", key, seed) if agent.run is None else agent.run

    def agent_file(self, stage: str) -> Path:
        """One for each stage: two that run on two machines have two addresses of the served model."""
        return self.output / "agents" / f"{stage}.yaml"


_ONLY_SEED = 0


@dataclass(frozen=True)
class Stages:
    """All stages of a comparison, each after those that it needs. `endpoint`: a server of the user, in place of the
    model that the comparison makes. `gpus`: of each training, and of each stage beside which a command serves."""

    comparison: Comparison
    layout: Layout
    quick: bool = False
    endpoint: Endpoint | None = None
    gpus: int = 1

    @property
    def sizes(self) -> Sizes:
        """Raises ComparisonError for `--quick` with a file that has no such sizes."""
        if not self.quick:
            return self.comparison.sizes
        if self.comparison.quick is None:
            raise ComparisonError("the comparison file has no section quick, the sizes of --quick; add it")
        return self.comparison.quick

    def with_needs(self) -> list[tuple[Stage, list[Stage]]]:
        """Each stage with those whose results it reads."""
        stages = list(self)
        return [
            (stage, stage.needs(stages[:place], self.layout.output, self._keys(stage)))
            for place, stage in enumerate(stages)
        ]

    def _keys(self, stage: Stage) -> str:
        """The keys of its agent file that differ in this comparison, as JSON."""
        agent = self.comparison.agents.get(stage.prompts)
        return "" if agent is None else json.dumps(self.overrides_of(agent), ensure_ascii=False, default=str)

    def __iter__(self) -> Iterator[Stage]:
        """Each stage once: seeds and agents share the features that they read."""
        known: set[str] = set()
        for stage in self._all():
            if stage.name not in known:
                known.add(stage.name)
                yield stage

    def _all(self) -> Iterator[Stage]:
        yield from self._data()
        for key, agent in self.comparison.agents.items():
            for seed in self.seeds_of(agent):
                if agent.recipe is not None:
                    recipe = self.sizes.recipe or agent.recipe
                    yield from self._training(key, recipe, agent.overrides, seed, agent.scale)
                if not agent.is_prompted:
                    yield from self._evaluations(key, agent, seed)
        prompted = {key: agent for key, agent in self.comparison.agents.items() if agent.is_prompted}
        for place, seed in enumerate(self.comparison.seeds):
            if self.is_served_here:
                yield from self._served_model({key: agent for key, agent in prompted.items() if agent.served}, seed)
            for key, agent in prompted.items():
                if self._depends_on_seed(agent):
                    yield from self._evaluations(key, agent, seed)
                elif place == 0:
                    yield from self._evaluations(key, agent, _ONLY_SEED)

    @property
    def is_served_here(self) -> bool:
        return self.endpoint is None and any(agent.served for agent in self.comparison.agents.values())

    def seeds_of(self, agent: Contestant) -> list[int]:
        """The seeds of training; a single one, whatever those of the comparison, for an agent that is not trained
        here: seeds can be added later."""
        return self.comparison.seeds if self._depends_on_seed(agent) else [_ONLY_SEED]

    def _depends_on_seed(self, agent: Contestant) -> bool:
        return agent.recipe is not None or (agent.served and self.endpoint is None)

    def overrides_of(self, agent: Contestant) -> dict[str, Any]:
        """The keys of its agent file that differ in this comparison."""
        return agent.agent_overrides(self.layout.output, self.layout.shards_at(agent.scale), self.sizes)

    def _data(self) -> Iterator[Stage]:
        """The same demonstrations once for each scale of screens. Baselines and the page use scale 1."""
        if self.layout.user_shards is not None:
            return
        if (episodes := self.sizes.simulated) is None:
            raise ComparisonError(
                "sizes.simulated is missing: the number of demonstrations to simulate; or add --shards"
            )
        for scale in sorted({1, *(agent.scale for agent in self.comparison.agents.values())}):
            aitw, shards = self.layout.simulated("aitw", scale), self.layout.shards_at(scale)
            words: tuple[Any, ...] = ("simulate", "--thoughts", "--output", aitw, "--episodes", episodes)
            words += ("--seed", 0, *(() if scale == 1 else ("--scale", scale)))
            yield Stage(scaled("simulate", scale), _text(words), anew=aitw)
            splits = aitw / "splits.json"
            words = ("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", splits)
            yield Stage(scaled("convert", scale), _text(words))

    def _training(
        self, key: str, recipe: Path, overrides: Mapping[str, Any], seed: int, scale: int = 1
    ) -> Iterator[Stage]:
        path, shards = find_shipped(recipe), self.layout.shards_at(scale)
        changes = self._changes(path, overrides, seed)
        extra: list[Any] = []
        settings = read_recipe(path, changes)
        chosen = settings.model.features
        if settings.data.features is not None and chosen is not None:
            name = scaled(f"{Path(chosen.extractor).name}_{chosen.form}", scale)
            stored = self.layout.output / "features" / name
            extractor = ("--extractor", chosen.extractor, "--form", chosen.form)
            words: tuple[Any, ...] = ("features", shards, *extractor, "--output", stored)
            yield Stage(f"features-{name}", _text(words), gpus=1)
            extra = ["--data.features", stored]
        if settings.data.chats is not None:
            extra = ["--data.chats", self.layout.of("chats", key, seed)]
        elif settings.reinforcement is None:
            extra += ["--data.shards", shards]
        keys = [word for name, value in changes.items() for word in (f"--{name}", value)]
        output = self.layout.of("runs", key, seed)
        words = ("train", "--config", path, "--output", output, *extra, *keys)
        yield Stage(name_of(TRAIN, key, seed), _text(words), TRAIN, (key, seed), gpus=self.gpus)

    def _served_model(self, prompted: Mapping[str, Contestant], seed: int) -> Iterator[Stage]:
        served = self.comparison.served
        assert served is not None  # noqa: S101 (a comparison file with agents that are served has the section)
        folder = self.layout.of("chats", SERVED, seed)
        for key, agent in prompted.items() if self._served_recipe.data.chats is not None else ():
            name, shards = name_of("chats", key, seed), self.layout.shards_at(agent.scale)
            words: tuple[Any, ...] = ("chats", shards, "--agent", self.layout.agent_file(name))
            words = (*words, *_elements(agent), "--limit", self.sizes.chats, "--output", folder / f"{key}.jsonl")
            yield Stage(name, _text(words), prompts=key)
        yield from self._training(SERVED, served.recipe, served.overrides, seed)
        if self._served_recipe.model.train.has_adapter:
            words = ("merge", self.layout.of("runs", SERVED, seed), "--output", self._served_run(seed))
            yield Stage(name_of("merge", SERVED, seed), _text(words), anew=self._served_run(seed), gpus=1)

    def _changes(self, recipe: Path, overrides: Mapping[str, Any], seed: int) -> dict[str, str]:
        """The keys of a recipe that differ in this comparison, with their values as JSON."""
        sized, rolls_out = self.sizes.training, "reinforcement" in read_mapping(recipe, ComparisonError)
        sized = {key: value for key, value in sized.items() if rolls_out or not key.startswith("reinforcement.")}
        changes = filled({"seed": seed, **overrides}, {"{output}": self.layout.output, "{seed}": seed}) | sized
        return {key: json.dumps(value, ensure_ascii=False) for key, value in changes.items()}

    def _served_run(self, seed: int) -> Path:
        """The folder that is served. A server reads whole models, so an adapter is merged into its base first."""
        return self.layout.of("merged" if self._served_recipe.model.train.has_adapter else "runs", SERVED, seed)

    @cached_property
    def _served_recipe(self) -> Recipe:
        served = self.comparison.served
        assert served is not None  # noqa: S101 (as above)
        path = find_shipped(served.recipe)
        return read_recipe(path, self._changes(path, served.overrides, self.comparison.seeds[0]))

    def _evaluations(self, key: str, agent: Contestant, seed: int) -> Iterator[Stage]:
        controls = ["--controls", *(agent.controls or ["none"])]
        benchmark = self.layout.benchmark(self.comparison)
        data: list[Any] = [] if benchmark is None else ["--benchmark", find_shipped(benchmark)]
        data += ["--shards", self.layout.shards_at(agent.scale)]
        reads = _elements(agent)
        if self.layout.groups is not None:
            data += ["--groups", self.layout.groups]
        if self.sizes.episodes is not None:
            data += ["--limit", self.sizes.episodes]
        yield self._evaluation(OFFLINE, key, agent, seed, [*data, *reads, *controls])
        if not self.sizes.tasks:
            return
        tasks = [*reads, "--tasks", self.sizes.tasks, "--seed", self.comparison.online_seed, "--controls", "none"]
        if agent.scale != 1:
            tasks += ["--scale", agent.scale]
        yield self._evaluation(ONLINE, key, agent, seed, ["--online", *tasks])

    def _evaluation(self, kind: str, key: str, agent: Contestant, seed: int, options: list[Any]) -> Stage:
        name, served, gpus = name_of(kind, key, seed), self._server(agent, seed), 1
        if agent.is_prompted:
            which: list[Any] = ["--agent", self.layout.agent_file(name)]
            gpus = 0 if served is None else 1 if self.endpoint is None else self.gpus
        else:
            which = ["--checkpoint", self.layout.run(key, agent, seed)]
        words = _text(("evaluate", *options, *which, "--output", self.layout.of(kind, key, seed)))
        return Stage(
            name,
            words,
            kind,
            (key, seed),
            prompts=key if agent.is_prompted else "",
            served=served,
            gpus=gpus,
            bf16=not agent.is_prompted,
        )

    def _server(self, agent: Contestant, seed: int) -> Path | str | None:
        """The run to serve, or the command that serves; None for a server that runs by itself, or for no prompts."""
        if not agent.served:
            return None
        return self._served_run(seed) if self.endpoint is None else self.endpoint.command or None


def _elements(agent: Contestant) -> list[str]:
    return ["--elements", "read"] if agent.reads else []


def _text(words: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(str, words))
