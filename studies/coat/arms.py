"""Arms: rows of table 5 of Android in the Zoo as training runs, for two families of models."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from studies.ablation.runs import ROOT, Run, folder_name, overrides, recipe_digest, stored_features

BENCHMARK = Path(__file__).with_name("simulated_phone.yaml")


@dataclass(frozen=True)
class Family:
    """`steps`: of training; with phone_vlm a trajectory each. `has_features`: the recipe reads stored ones."""

    recipe: Path
    steps: int
    has_features: bool = False


FAMILIES = {
    "phone_vlm": Family(ROOT / "recipes/phone_vlm_tiny_lora.yaml", steps=600),
    "auto_ui": Family(ROOT / "recipes/auto_ui_tiny.yaml", steps=700, has_features=True),
}


@dataclass(frozen=True)
class Row:
    """`notes`: the preset of `data.notes`. `keys`: further overrides of the recipe. `controls`: those
    that the evaluation also scores. `steps`: of training; None: those of the family."""

    notes: str = "coat_1"
    keys: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    steps: int | None = None

    @property
    def all_keys(self) -> tuple[str, ...]:
        return ("--data.notes", self.notes, *self.keys)


SHUFFLED = ("--data.control", "shuffled_results")
BINNED = ("--action_language", "{name: binned}")
TEN_EPOCHS = (*BINNED, "--data.limit", "200")
"""With 2,000 steps of one trajectory: the paper's number of epochs, over a sixth of the demonstrations."""

ROWS = {
    "row 1": Row(controls=("grey_screens", "no_history")),
    "row 3": Row("coat_3", controls=("shuffled_results",)),
    "row 9": Row("coat_9", controls=("shuffled_results",)),
    "row 10": Row("coat_10"),
    # The language `named` writes the name of what a tap touches, which is half an action description.
    "row 1, binned": Row(keys=BINNED),
    "row 9, binned": Row("coat_9", BINNED),
    "row 10, binned": Row("coat_10", BINNED),
    "row 1, binned, 10 epochs": Row(keys=TEN_EPOCHS, steps=2000),
    "row 9, binned, 10 epochs": Row("coat_9", TEN_EPOCHS, steps=2000),
    "row 3, shuffled": Row("coat_3", SHUFFLED),
}
"""The language of all other rows is that of the recipe: `named` for phone_vlm, `auto_ui` for auto_ui."""


def arm_of(family: str, row: str) -> str:
    return f"{family}, {row}"


def run_of(family: str, row: str, seed: int, options: Namespace) -> Run:
    """A row of a family with a seed. The folder depends on the whole recipe of the run but for its seed."""
    about, changes = FAMILIES[family], ROWS[row]
    steps = next(steps for steps in (options.steps, changes.steps, about.steps) if steps is not None)
    keys = ("--training.steps", str(steps), *changes.all_keys)
    digest = recipe_digest(about.recipe, overrides(keys))
    name = arm_of(family, row)
    stored = options.data / "features_patches"

    def features() -> tuple:
        return ("--data.features", stored_features(options.data, about.recipe, "patches"))

    return Run(
        name,
        seed,
        options.output / f"{folder_name(name)}_{digest}" / str(seed),
        recipe=about.recipe,
        data=options.data,
        limit=options.limit,
        keys=keys,
        controls=changes.controls,
        scoring=("--benchmark", BENCHMARK, *(("--agent.features", stored) if about.has_features else ())),
        features=features if about.has_features else tuple,
    )
