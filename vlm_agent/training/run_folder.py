"""A run folder: whose it is, and when it is finished.

RUN/recipe.yaml       the resolved recipe
RUN/checkpoints/      what a stopped or killed run goes on from
RUN/tensorboard/
RUN/stopped           only where the run was told to stop: when, and how to go on
RUN/model/            the trained weights (an adapter where LoRA was used), RUN/tokenizer/ beside them
RUN/base/             the random base under an adapter, where no checkpoint could give it back
RUN/slurm.tsv         only on Slurm: starts and ends; RUN/logs/JOB/ what each rank said
RUN/run.json          versions, commit, data, figures; written last: it means finished
"""

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from vlm_agent.datasets import written_whole
from vlm_agent.models.trained import RECIPE_FILE
from vlm_agent.training.checkpoints import decisive_keys
from vlm_agent.training.recipe import Recipe, RecipeError, read_recipe

FINISHED = "run.json"
TENSORBOARD = "tensorboard"
_RECORDED = ("torch", "transformers", "peft", "accelerate", "deepspeed")


def refuse_other_runs(run: Path, recipe: Recipe) -> None:
    """Raises RecipeError where the folder holds a finished run, or one of another recipe."""
    if (run / FINISHED).exists():
        raise RecipeError(f"{run} holds a finished run; choose another output, or remove it")
    path = run / RECIPE_FILE
    if not path.exists():
        return
    before, now = decisive_keys(read_recipe(path)), decisive_keys(recipe)
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    if changed:
        raise RecipeError(
            f"{run} was begun with another recipe ({path}), which differs in {', '.join(changed)}; take these values "
            "back, choose another output, or remove it"
        )


def claim(run: Path, recipe: Recipe) -> None:
    """Done when data and model are there: a path mistyped must not make the folder refuse the corrected recipe."""
    with written_whole(run / RECIPE_FILE) as temporary:
        temporary.write_text(recipe.to_yaml(), encoding="utf-8")


def finish(run: Path, recipe: Recipe, manifest: dict | None, figures: dict) -> None:
    """Writes what means that the run is finished; `manifest` is that of its shards, None where it drew its data."""
    record = {
        "figures": figures,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _RECORDED},
        "commit": _commit(),
        "command": sys.argv,
        "shards": recipe.data.shards,
        "manifest": manifest,
    }
    with written_whole(run / FINISHED) as temporary:
        temporary.write_text(json.dumps(record, indent=2), encoding="utf-8")


def _commit() -> str | None:
    """The commit of the code that runs, None where it was installed without its repository."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (fixed words, no input)
    return result.stdout.strip() if result.returncode == 0 else None
