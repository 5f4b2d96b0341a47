"""The modes of the planner as agents of a comparison, and the two models that answer them."""

import hashlib
import json
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from studies.ablation.runs import ROOT, recipe_digest
from studies.d_pot.chats import LANGUAGE, REACT
from vlm_agent.agents.dynamic_planning.prompts import EXAMPLES, PROMPTS
from vlm_agent.evaluation.comparison.settings import SERVED, Comparison, Contestant
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, TRAIN, Layout, Stage, Stages
from vlm_agent.files import sha256_of

RECIPE = ROOT / "recipes/comparison/text_chats_tiny.yaml"
BENCHMARK = ROOT / "studies/d_pot/simulated_phone.yaml"
D_POT, NONE = "d_pot", "none"
PLAYED = (NONE, D_POT)
"""Modes that also do online tasks, and that SmolLM2 answers."""

SMOLLM2 = "smollm2"


@dataclass(frozen=True)
class Mode:
    """`file`: of eval/agents. `calls`: an episode's requests by the number of its steps, about, for the time left."""

    name: str
    file: str
    calls: float = 1.0
    settings: tuple[tuple[str, Any], ...] = ()


MODES = {
    NONE: Mode("none (NP)", "planner_none"),
    "few_shot": Mode("few_shot, 4", "planner_few_shot", 1.2),
    "seeact": Mode("seeact", "planner_seeact", 2.0),
    **{
        key: Mode(
            f"react, k = {rounds}",
            "planner_react",
            2.0 + (4.0 if rounds == "all" else rounds) / 2,
            (("rounds", rounds),),
        )
        for key, rounds in REACT.items()
    },
    "static": Mode("static (SP)", "planner_static", 1.4),
    "dynamic": Mode("dynamic (DP)", "planner_dynamic", 3.0),
    D_POT: Mode("d_pot", "planner_d_pot", 3.0),
    "d_pot_references": Mode("d_pot, references", "planner_d_pot_references", 4.0),
    "reflexion": Mode("reflexion, own feedback", "planner_reflexion", 2.0),
}


AGENT_FILES = sorted({ROOT / f"eval/agents/{mode.file}.yaml" for mode in MODES.values()})
CHATS = ROOT / "studies/d_pot/chats.py"


def stages_of(options: Namespace) -> Stages:
    """Data, the model that all modes prompt, and an evaluation of each mode."""
    return Stages(_comparison(options, {key: key for key in MODES}, options.episodes), Layout(options.output))


def of_smollm2(options: Namespace) -> Stages:
    """Evaluations of `PLAYED` with SmolLM2-135M-Instruct in place of the trained model."""
    agents = {f"{SMOLLM2}_{key}": key for key in PLAYED}
    shorter = Namespace(**vars(options) | {"max_tokens": options.smollm2_max_tokens})
    return Stages(_comparison(shorter, agents, options.smollm2_episodes), Layout(options.output))


def _comparison(options: Namespace, modes: dict[str, str], episodes: int) -> Comparison:
    """`modes`: name of an agent → its mode."""
    sizes = {
        "simulated": options.simulated,
        "episodes": episodes,
        "tasks": options.tasks,
        "chats": options.chats,
        "training": {"training.steps": options.steps, "training.save_steps": max(options.steps // 10, 1)},
    }
    return Comparison(
        name="One served model, all modes",
        benchmark=BENCHMARK,
        sizes=sizes,
        quick=sizes,
        served={"recipe": options.recipe},
        agents={name: _contestant(MODES[key], key, options) for name, key in modes.items()},
    )


def _contestant(mode: Mode, key: str, options: Namespace) -> Contestant:
    # One request at a time, so that the server's seconds are of that request alone.
    settings: dict[str, Any] = {"screen": "html", "concurrency": 1, "timeout": 600.0, "max_tokens": options.max_tokens}
    settings["action_language"] = LANGUAGE
    settings |= dict(mode.settings)
    if key == "d_pot_references":
        shards = options.output / "data/shards"
        settings["references"] = {"shards": str(shards), "encoder": options.encoder, "count": 2}
    return Contestant(name=mode.name, agent=ROOT / f"eval/agents/{mode.file}.yaml", overrides=settings, served=True)


def chats_stage(stages: Stages, options: Namespace) -> Stage:
    """`chats.py`, in place of a stage of chats for each mode. All modes have the same number, so that figures
    do not compare how much of a mode the model has learned."""
    folder = stages.layout.of("chats", SERVED, 0)
    words = ("--shards", stages.layout.shards, "--limit", stages.sizes.chats, "--output", folder)
    words = (*words, "--per-mode", options.chats_per_mode, "--encoder", options.encoder)
    return Stage("chats", tuple(map(str, words)))


def data(stages: Stages) -> list[Stage]:
    return [stage for stage in stages if stage.name in ("simulate", "convert")]


def preparation(stages: Stages, options: Namespace) -> list[Stage]:
    """Data, chats and training."""
    return [*data(stages), chats_stage(stages, options), *(stage for stage in stages if stage.kind == TRAIN)]


def agent_of(stage: Stage) -> str:
    """The agent that an evaluation is of."""
    if stage.owner is None:
        raise AssertionError(f"{stage.name} is of several agents")
    return stage.owner[0]


def evaluations(stages: Stages, modes: list[str], kinds: tuple[str, ...]) -> list[Stage]:
    """d_pot first, because the differences of the others are to it."""
    order = sorted(modes, key=lambda mode: mode != D_POT)
    found = {(stage.kind, agent_of(stage)): stage for stage in stages if stage.kind in (OFFLINE, ONLINE)}
    wanted = [(kind, mode) for kind in kinds for mode in order if kind == OFFLINE or mode in PLAYED]
    return [found[one] for one in wanted]


def smollm2_evaluations(stages: Stages, folder: Path) -> list[Stage]:
    return [replace(stage, served=folder) for stage in stages if stage.kind == OFFLINE]


def plan_of(options: Namespace) -> dict[str, Any]:
    """What decides the figures, beside the code."""
    overrides = {"training.steps": str(options.steps)}
    return {
        "recipe": recipe_digest(options.recipe, overrides),
        "sizes": {
            name: getattr(options, name) for name in ("simulated", "chats", "chats_per_mode", "steps", "max_tokens")
        },
        "encoder": options.encoder,
        "sources": sha256_of([*AGENT_FILES, PROMPTS, EXAMPLES, CHATS]),
    }


def digest_of(options: Namespace) -> str:
    return hashlib.sha256(json.dumps(plan_of(options), sort_keys=True).encode()).hexdigest()[:8]
