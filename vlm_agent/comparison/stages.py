"""The stages of a comparison: commands that a user could type, in their order.

OUT/data/           simulated demonstrations (aitw/) and their shards (shards/), where no shards are named
OUT/features/       stored features of screens, by agent
OUT/agents/         agent files of prompted agents, with the address of the served model
OUT/chats/          what the served model learns: a file of chats for each prompted agent
OUT/runs/           training runs, AGENT_SEED
OUT/offline/        evaluations on recorded episodes, AGENT_SEED
OUT/online/         evaluations on simulated phones, AGENT_SEED
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlm_agent.comparison.settings import SERVED, Comparison, Contestant, Sizes
from vlm_agent.evaluation.offline.run import METRICS
from vlm_agent.evaluation.online.evaluate import ONLINE as ONLINE_FILE
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.run import read_recipe
from vlm_agent.recipe.shipped import find_shipped
from vlm_agent.training.run_folder.layout import FINISHED

TRAIN, OFFLINE, ONLINE = "train", "offline", "online"
"""Kinds of stages that have figures of their own in the table."""

_RESULTS = {TRAIN: FINISHED, OFFLINE: METRICS, ONLINE: ONLINE_FILE}
"""By kind, the file in the output folder that marks the stage as complete."""


@dataclass(frozen=True)
class Stage:
    """A subcommand and its arguments. `owner`: the agent and seed that it belongs to; None for all of them, so that a
    comparison ends if it fails. `anew`: a folder to remove first if the stage was interrupted. `served`: the run that
    is served while the stage runs."""

    name: str
    words: tuple[str, ...]
    kind: str = ""
    owner: tuple[str, int] | None = None
    anew: Path | None = None
    served: Path | None = None

    @property
    def result(self) -> Path:
        """What the stage writes last, or its output. A finished stage without it runs again."""
        return Path(self.words[self.words.index("--output") + 1]) / _RESULTS.get(self.kind, "")


@dataclass(frozen=True)
class Layout:
    """The folders of a comparison. `shards`: existing ones of the user, or None to simulate some."""

    output: Path
    user_shards: Path | None = None

    @property
    def shards(self) -> Path:
        return self.output / "data/shards" if self.user_shards is None else self.user_shards

    @property
    def groups(self) -> Path | None:
        return self.output / "data/aitw/groups.json" if self.user_shards is None else None

    def of(self, kind: str, key: str, seed: int) -> Path:
        return self.output / kind / f"{key}_{seed}"

    def run(self, key: str, agent: Contestant, seed: int) -> Path:
        """The run of an agent that is trained, here or before."""
        return self.of("runs", key, seed) if agent.run is None else agent.run

    def agent_file(self, key: str, seed: int) -> Path:
        return self.output / "agents" / f"{key}_{seed}.yaml"


@dataclass(frozen=True)
class Stages:
    """All stages of a comparison at one of its `sizes`."""

    comparison: Comparison
    sizes: Sizes
    layout: Layout
    endpoint: str | None = None

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
                    yield from self._training(key, agent.recipe, agent.overrides, seed)
                if not agent.is_prompted:
                    yield from self._evaluations(key, agent, seed)
        prompted = {key: agent for key, agent in self.comparison.agents.items() if agent.is_prompted}
        for seed in self.comparison.seeds:
            if self.is_served_here:
                yield from self._served_model([key for key, agent in prompted.items() if agent.served], seed)
            for key, agent in prompted.items():
                if seed in self.seeds_of(agent):
                    yield from self._evaluations(key, agent, seed)

    @property
    def is_served_here(self) -> bool:
        return self.endpoint is None and any(agent.served for agent in self.comparison.agents.values())

    def seeds_of(self, agent: Contestant) -> list[int]:
        """The seeds of training; a single one for an agent that is not trained here."""
        depends = agent.recipe is not None or (agent.served and self.endpoint is None)
        return self.comparison.seeds if depends else self.comparison.seeds[:1]

    def _data(self) -> Iterator[Stage]:
        if self.layout.user_shards is not None:
            return
        aitw, shards = self.layout.output / "data/aitw", self.layout.shards
        words = ("simulate", "--thoughts", "--output", aitw, "--episodes", self.sizes.simulated, "--seed", 0)
        yield _stage("simulate", words, anew=aitw)
        yield _stage(
            "convert",
            ("convert", "--source", "aitw", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json"),
        )

    def _training(self, key: str, recipe: Path, overrides: Mapping[str, Any], seed: int) -> Iterator[Stage]:
        path, shards = find_shipped(recipe), self.layout.shards
        changes = [*(dict(overrides) | self.sizes.training).items()]
        extra: list[Any] = []
        settings = read_recipe(path, {name: json.dumps(value) for name, value in changes})
        chosen = settings.model.features
        if settings.data.features is not None and chosen is not None:
            name = f"{Path(chosen.extractor).name}_{chosen.form}"
            stored = self.layout.output / "features" / name
            words: tuple[Any, ...] = (
                "features",
                shards,
                "--extractor",
                chosen.extractor,
                "--form",
                chosen.form,
                "--output",
                stored,
            )
            yield _stage(f"features {name}", words, owner=(key, seed))
            extra = ["--data.features", stored]
        if settings.data.chats is not None:
            extra = ["--data.chats", self.layout.of("chats", key, seed)]
        else:
            extra += ["--data.shards", shards]
        keys = [word for name, value in changes for word in (f"--{name}", json.dumps(value))]
        output = self.layout.of("runs", key, seed)
        words = ("train", "--config", path, "--output", output, "--seed", seed, *extra, *keys)
        yield _stage(f"train {key}, seed {seed}", words, TRAIN, (key, seed))

    def _served_model(self, prompted: list[str], seed: int) -> Iterator[Stage]:
        served = self.comparison.served
        if served is None:
            raise AssertionError("a comparison file with agents that are served has the section served")
        folder = self.layout.of("chats", SERVED, seed)
        for key in prompted:
            words: tuple[Any, ...] = ("chats", self.layout.shards, "--agent", self.layout.agent_file(key, seed))
            words = (*words, "--limit", self.sizes.chats, "--output", folder / f"{key}.jsonl")
            yield _stage(f"chats {key}, seed {seed}", words, owner=(SERVED, seed))
        yield from self._training(SERVED, served.recipe, served.overrides, seed)

    def _evaluations(self, key: str, agent: Contestant, seed: int) -> Iterator[Stage]:
        owner, served = (key, seed), None
        if agent.is_prompted:
            which: list[Any] = ["--agent", self.layout.agent_file(key, seed)]
            served = self.layout.of("runs", SERVED, seed) if agent.served and self.endpoint is None else None
        else:
            which = ["--checkpoint", self.layout.run(key, agent, seed), *(["--bf16"] if has_bf16() else [])]
        controls = ["--controls", *agent.controls] if agent.controls else ["--no-controls"]
        data: list[Any] = ["--benchmark", find_shipped(self.comparison.benchmark), "--shards", self.layout.shards]
        if self.layout.groups is not None:
            data += ["--groups", self.layout.groups]
        output = self.layout.of(OFFLINE, key, seed)
        words = ("evaluate", *which, *data, "--limit", self.sizes.episodes, *controls, "--output", output)
        yield _stage(f"evaluate {key}, seed {seed}", words, OFFLINE, owner, served)
        tasks = ("--tasks", self.sizes.tasks, "--seed", self.comparison.online_seed, "--no-controls")
        words = ("evaluate", "--online", *which, *tasks, "--output", self.layout.of(ONLINE, key, seed))
        yield _stage(f"evaluate {key} online, seed {seed}", words, ONLINE, owner, served)


def _stage(
    name: str,
    words: tuple[Any, ...],
    kind: str = "",
    owner: tuple[str, int] | None = None,
    served: Path | None = None,
    anew: Path | None = None,
) -> Stage:
    return Stage(name, tuple(map(str, words)), kind, owner, anew, served)
