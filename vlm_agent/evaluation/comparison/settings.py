"""A comparison file (eval/comparisons/*.yaml): agents, one benchmark, online tasks, seeds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import NonNegativeInt, PositiveInt, field_validator, model_validator

from vlm_agent.agents.controls import CONTROLS
from vlm_agent.errors import UserError
from vlm_agent.recipe.yaml_file import filled, read_mapping, validated
from vlm_agent.settings import Section

SERVED = "served"
"""The key of the model that the comparison makes, among those of the agents."""

_KEY = re.compile(r"[a-z0-9_]+")


class ComparisonError(UserError):
    """A comparison cannot run, or some of its agents have no result."""


@dataclass(frozen=True)
class Endpoint:
    """A served model. `url`: of its OpenAI-compatible API; `model`: its name there. `command`: serves it on the port of
    this machine that takes the place of {port}, beside each stage that asks it; the `url` is then that of the stage."""

    url: str
    model: str
    command: str = ""


class Sizes(Section):
    """`simulated`: demonstrations to simulate, needed where no shards are named. `episodes`: test episodes to score;
    None: those of the benchmark. `tasks`: on simulated phones; 0: agents are scored on recorded episodes alone.
    `chats`: demonstrations from which the served model learns. `recipe`: in place of the recipe of every trained agent.
    `training`: keys of every recipe, of `reinforcement` where it has that section. `prompted`: settings of agent files.
    """

    simulated: PositiveInt | None = None
    episodes: PositiveInt | None = None
    tasks: NonNegativeInt = 0
    chats: PositiveInt = 1
    recipe: Path | None = None
    training: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)
    prompted: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)


class Contestant(Section):
    """An agent of the comparison: exactly one of a finished `run`, a `recipe` to train first, and an `agent` file.

    `overrides`: keys of the recipe, or settings of the agent file. In their strings, `{output}` is the folder of the
    comparison; in those of a recipe `{seed}` is its seed, and in those of an agent file `{shards}` the demonstrations.
    `served`: the agent file prompts the model of the comparison's `served`, in place of its own endpoint. `scale`:
    screens of simulated phones are rendered at this multiple of their size, so that an agent can read their texts;
    steps and tasks stay the same, and shards of the user are not changed. `reads`: the elements of screens are read
    from their pixels. `controls`: those that the evaluation also scores. `note`: a sentence beside the row.
    """

    name: str
    paper: str = ""
    run: Path | None = None
    recipe: Path | None = None
    agent: Path | None = None
    overrides: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)
    served: bool = False
    scale: PositiveInt = 1
    reads: bool = False
    controls: list[str] = []  # noqa: RUF012 (pydantic copies it)
    note: str = ""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if [self.run, self.recipe, self.agent].count(None) != 2:
            raise ValueError("name exactly one of run, recipe and agent")
        if self.served and self.agent is None:
            raise ValueError("served needs an agent file, whose prompts the served model answers")
        if unknown := set(self.controls) - set(CONTROLS):
            raise ValueError(f"control {min(unknown)!r} is unknown; choose from {', '.join(CONTROLS)}")
        if self.overrides and self.run is not None:
            raise ValueError("a finished run has no overrides")
        return self

    @property
    def is_prompted(self) -> bool:
        return self.agent is not None

    def agent_overrides(self, output: Path, shards: Path, sizes: Sizes) -> dict[str, Any]:
        """The keys of the agent file that differ in the comparison in `output`, by dotted key. Of a served agent, which
        need not name a server, one stands for that of the comparison until it is started."""
        server = {"endpoint": "http://localhost/v1", "model": SERVED} if self.served else {}
        return server | filled(self.overrides | sizes.prompted, {"{output}": output, "{shards}": shards})


class Served(Section):
    """The model that prompted agents ask, made by the comparison: `recipe` is trained on chats of all of them, or on
    the demonstrations if it reads no chats."""

    recipe: Path
    overrides: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)


class Comparison(Section):
    """`agents`: by key, a name for files. `quick`: sizes that only show that every stage runs. `benchmark`: None
    for all episodes of the split test; `simulated_benchmark`: in its place for simulated demonstrations."""

    name: str
    about: str = ""
    benchmark: Path | None = None
    simulated_benchmark: Path | None = None
    seeds: list[int] = [0]  # noqa: RUF012 (pydantic copies it)
    online_seed: int = 0
    sizes: Sizes
    quick: Sizes | None = None
    served: Served | None = None
    agents: dict[str, Contestant]

    @field_validator("seeds")
    @classmethod
    def _different_seeds(cls, seeds: list[int]) -> list[int]:
        if not seeds or len(set(seeds)) != len(seeds):
            raise ValueError("name at least one seed, each once")
        return seeds

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.agents) < 2:
            raise ValueError("agents: a comparison needs at least two agents")
        for key, agent in self.agents.items():
            if not _KEY.fullmatch(key):
                raise ValueError(f"agents: {key!r} names files; use lower-case letters, digits and _")
            if key == SERVED:
                raise ValueError(f"agents: {SERVED} is the name of the model that the comparison makes; choose another")
            if agent.served and self.served is None:
                raise ValueError(f"agents.{key}: served is true, but the file has no section served")
            seed = "{seed}" if agent.recipe is None else str(agent.overrides.get("seed", "{seed}"))
            if len(self.seeds) > 1 and "{seed}" not in seed:
                raise ValueError(f"agents.{key}: overrides.seed {seed} is that of all seeds; write {{seed}} in it")
        return self


def read_comparison(path: Path, overrides: Mapping[str, Any]) -> Comparison:
    """The comparison in a YAML file. Raises ComparisonError naming the file and every wrong key."""
    return validated(Comparison, read_mapping(path, ComparisonError) | dict(overrides), str(path), ComparisonError)
