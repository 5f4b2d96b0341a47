"""`vlm-agent train`: trains a recipe into a run folder."""

import argparse
import gc
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vlm_agent.cli.parser import OK, Commands, add_command, keys_in, refuse, shipped_file
from vlm_agent.files.console import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.cli.check import Earlier
    from vlm_agent.recipe.run import Recipe


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "train",
        run,
        "train a recipe",
        "Any key of the recipe can be overridden: --training.steps 100 --data.mixture.google_apps=0.1\n"
        "Run the same command again to resume a stopped run.",
        keys="",
        check=_check,
        verify=_verify,
        more_help=_keys,
    )
    parser.add_argument(
        "--config", type=shipped_file, required=True, metavar="FILE", help="the recipe, e.g. recipes/X.yaml"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the cost of the run; loads no weights")
    parser.add_argument("--gpu", default="H100", metavar="NAME", help="dry run: GPU type (default H100)")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="dry run: number of GPUs (default 1)")
    mfu_help = "dry run: MFU while it computes, recomputation included (default 0.3 on H100 and newer, else 0.4)"
    parser.add_argument("--mfu", type=float, metavar="SHARE", help=mfu_help)
    parser.usage = "vlm-agent train [-h] --config FILE [--dry-run [--gpu NAME] ...] [--KEY.SUBKEY VALUE ...]"


def run(options: argparse.Namespace) -> int:
    overrides = keys_in(options)
    from vlm_agent.errors import Stopped
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.reinforcement.data import data_of
    from vlm_agent.training.train import train

    gc.set_threshold(700)  # Python's default: cycles may hold the tensors of a step
    console, recipe = make_console(), read_recipe(options.config, overrides)
    if options.dry_run:
        _dry_run(recipe, options, console)
        return OK
    try:
        train(recipe, console, data_of)
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":
            console.print(str(stopped))
        return Stopped.STATUS
    return OK


def _keys() -> str:
    from vlm_agent.recipe.run import Recipe
    from vlm_agent.recipe.yaml_file import keys_of

    sections: dict[str, list[str]] = {"": []}
    for key in keys_of(Recipe):
        section, dot, rest = key.partition(".")
        sections.setdefault(section if dot else "", []).append(rest or key)
    head = "recipe keys, as --KEY VALUE or --SECTION.KEY VALUE (docs/training.md explains them):"
    lines = [
        textwrap.fill(", ".join(keys), 110, initial_indent=f"  {section:17}", subsequent_indent=" " * 19)
        for section, keys in sections.items()
    ]
    return "\n".join(["", head, *lines, ""])


def _check(options: argparse.Namespace) -> None:
    if not options.dry_run:
        refuse(options, ("gpu", "gpus", "mfu"), "is for --dry-run; a run uses the GPUs that it finds")
    if options.gpus < 1 or (options.mfu is not None and not 0 < options.mfu <= 1):
        options.parser.error("--gpus must be 1 or greater; --mfu must be greater than 0 and at most 1")


def _verify(options: argparse.Namespace, earlier: "Earlier") -> None:
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.reinforcement.data import RolloutData, recipe_of_base
    from vlm_agent.training.dry_run.start import check_recipe

    recipe = read_recipe(options.config, keys_in(options))
    run = Path(recipe.output).absolute()
    earlier.outputs.append(run)
    earlier.runs[run] = recipe
    if recipe.data.shards is not None:
        earlier.check_subsets(recipe.data.mixture, Path(recipe.data.shards), "data.mixture")
    check_recipe(recipe, earlier.writes)
    if recipe.reinforcement is not None:
        is_written = recipe.model.base is not None and earlier.writes(Path(recipe.model.base))
        RolloutData(recipe).check(earlier.recipe_of if is_written else recipe_of_base)


def _dry_run(recipe: "Recipe", options: argparse.Namespace, console: "Console") -> None:
    from vlm_agent.reinforcement.data import data_of
    from vlm_agent.training.data.shard_data import ShardDataModule
    from vlm_agent.training.dry_run.hardware import find_gpu
    from vlm_agent.training.dry_run.report import Target, dry_run, print_dry_run
    from vlm_agent.training.dry_run.start import check_start

    data = data_of(recipe)
    check_start(data)
    if recipe.reinforcement is not None:  # the lengths of its sentences are known only once they are played
        refuse(options, ["gpu", "gpus", "mfu"], "has no effect on a recipe with reinforcement")
        data.stream()
        console.print(f"{data.reads}; {data.steps} steps of {data.rows_per_step} rows", highlight=False, soft_wrap=True)
        return
    target = Target(find_gpu(options.gpu), options.gpus, options.mfu)
    print_dry_run(console, dry_run(cast(ShardDataModule, data), target))
