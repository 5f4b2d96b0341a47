"""Arms: training runs that differ from recipes/auto_ui_tiny.yaml in single keys, each trained and evaluated once."""

import hashlib
import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.run_folder.layout import FINISHED

ROOT = Path(__file__).resolve().parents[3]
RECIPE, DEMO = ROOT / "recipes/auto_ui_tiny.yaml", ROOT / "recipes/phone_vlm_tiny_lora.yaml"
SECONDS = "seconds.json"


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

SUBSETS = ("general", "google_apps", "install", "single", "web_shopping")


def _mixture_of(subset: str) -> str:
    return json.dumps({other: 0 for other in SUBSETS if other != subset})


SUBSET_ARMS = {f"only {subset}": Arm(("--data.mixture", _mixture_of(subset))) for subset in SUBSETS}
"""Trained on the episodes of one subset; evaluated on all (figure 5)."""


@dataclass(frozen=True)
class Run:
    """One arm with one seed."""

    name: str
    seed: int
    options: Namespace

    @property
    def arm(self) -> Arm:
        return (ARMS | SUBSET_ARMS)[self.name]

    @property
    def folder(self) -> Path:
        words = "".join(letter if letter.isalnum() else "_" for letter in self.name)
        return budget_folder(self.options) / f"{words}_{self.seed}"

    @property
    def trained(self) -> Path:
        return self.folder / "run"

    @property
    def evaluation(self) -> Path:
        return self.folder / f"evaluation_{self.options.limit}"

    @property
    def is_done(self) -> bool:
        return (self.evaluation / "metrics.json").is_file()

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of each finished stage, the sum over restarts."""
        path = self.folder / SECONDS
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def complete(self) -> None:
        """Trains and evaluates what is not finished yet; both commands resume."""
        shards = self.options.demo / "shards"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.trained / FINISHED).is_file():
            keys = ("--output", self.trained, "--data.shards", shards, "--seed", self.seed)
            if not self.arm.own_steps:
                features = features_of(self.arm.form, self.options)
                keys += ("--training.steps", self.options.steps, "--data.features", features)
                keys += ("--model.features.form", self.arm.form)
            elif self.options.quick:
                keys += ("--training.steps", self.options.steps)
            self._timed("training", "train", "--config", self.arm.recipe, *keys, *self.arm.keys)
        if not self.is_done:
            scoring = ("--limit", self.options.limit, "--groups", self.options.demo / "aitw/groups.json")
            scoring += () if self.arm.controls else ("--no-controls",)
            scoring += ("--bf16",) if has_bf16() else ()
            keys = ("--checkpoint", self.trained, "--shards", shards, "--output", self.evaluation)
            self._timed("evaluation", "evaluate", *keys, *scoring)

    def _timed(self, stage: str, *words) -> None:
        start = time.monotonic()
        try:
            command(*words)
        finally:
            known = self.seconds
            known[stage] = known.get(stage, 0.0) + time.monotonic() - start
            (self.folder / SECONDS).write_text(json.dumps(known), encoding="utf-8")


def budget_folder(options: Namespace) -> Path:
    """The runs of one recipe and number of steps: a change of the recipe starts new ones."""
    content = read_recipe(RECIPE).model_dump(mode="json", exclude={"output", "seed"})
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return options.output / f"{digest[:8]}_{options.steps}_steps"


def features_of(form: str, options: Namespace) -> Path:
    """The folder of the features of the demo's screens, computed at the first call; killed extraction resumes."""
    extractor = read_recipe(RECIPE).model.features.extractor
    output = options.demo / f"features_{form}"
    command("features", options.demo / "shards", "--extractor", extractor, "--form", form, "--output", output)
    return output


def command(*words) -> None:
    """Runs a subcommand of this checkout."""
    environment = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    arguments = [sys.executable, "-m", "vlm_agent.cli", *map(str, words)]
    subprocess.run(arguments, check=True, env=environment, stdout=sys.stderr)
