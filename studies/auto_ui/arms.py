"""Arms: training runs that differ from recipes/auto_ui_tiny.yaml in single keys, each trained and evaluated once."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from studies.ablation.figures import FLOOR, floor
from studies.ablation.runs import ROOT, Run, folder_name, recipe_digest, stored_features
from studies.auto_ui.figures import FIGURES
from vlm_agent.datasets.sources.aitw import SUBSETS

RECIPE, DEMO = ROOT / "recipes/auto_ui_tiny.yaml", ROOT / "recipes/phone_vlm_tiny_lora.yaml"


@dataclass(frozen=True)
class Arm:
    """`keys` override the recipe. `form`: the features. `controls`: whether the evaluation also scores the controls.
    `own_steps`: trained for the steps of its own recipe, whose sentences are whole trajectories."""

    keys: tuple[str, ...] = ()
    form: str = "patches"
    controls: bool = False
    recipe: Path = RECIPE
    own_steps: bool = False


ARMS = {
    "full": Arm(controls=True),
    "grey screens": Arm(("--data.control", "grey_screens")),
    "pooled": Arm(form="pooled"),
    "without chains": Arm(("--data.history", "0", "--data.future", "0")),
    "history only": Arm(("--data.future", "0")),
    "plan only": Arm(("--data.history", "0")),
    "unnormalised": Arm(("--action_language.normalised", "false")),
    # A description has 500 tokens here: the paper's limit of 512 would drop half of the earlier actions.
    "screen description": Arm(("--data.elements", "true", "--data.max_source_tokens", "1280")),
    "new word embeddings": Arm(("--model.word_embeddings", "null")),
    "demo's agent": Arm(recipe=DEMO, own_steps=True),
}


SUBSET_ARMS = {
    f"only {subset}": Arm(("--data.mixture", json.dumps({other: 0 for other in SUBSETS if other != subset})))
    for subset in SUBSETS
}
"""Trained on the episodes of one subset; evaluated on all (figure 5)."""


def run_of(name: str, seed: int, options: Namespace) -> Run:
    """An arm with a seed, among the runs of this recipe and number of steps: a change of the recipe starts new ones."""
    arm = (ARMS | SUBSET_ARMS)[name]
    keys = ("--training.steps", options.steps) if options.quick or not arm.own_steps else ()

    def features() -> tuple:
        stored = stored_features(options.demo, RECIPE, arm.form)
        return ("--data.features", stored, "--model.features.form", arm.form)

    return Run(
        name,
        seed,
        budget_folder(options) / f"{folder_name(name)}_{seed}",
        recipe=arm.recipe,
        data=options.demo,
        limit=options.limit,
        keys=(*keys, *arm.keys),
        controls=arm.controls,
        features=tuple if arm.own_steps else features,
        records=options.records,
        kept=tuple(FIGURES.values()),
        derived={FLOOR: floor} if arm.controls else {},
    )


def budget_folder(options: Namespace) -> Path:
    """The runs of one recipe and number of steps."""
    return options.output / f"{recipe_digest(RECIPE)}_{options.steps}_steps"
