"""`vlm-agent features`: extract the screen features of a folder of shards."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, accept_only, add_command, array_task, count, refuse, shipped_file

if TYPE_CHECKING:
    from vlm_agent.cli.check import Earlier
    from vlm_agent.recipe.model import FeatureSettings

_DESCRIPTION = """\
Writes one memory-mapped file of float16 features for each shard, and a manifest at the end. Training of a model that
reads features names the folder with data.features. Prints first how large the output will be.

Run the same command again to resume; the result is the same to the byte. In a job array, each task extracts a part of
the shards, and one command at the end checks and completes the result:

  vlm-agent features SHARDS --extractor phone_vlm_tiny --form patches --output FEATURES
  vlm-agent features SHARDS --extractor blip2 --output FEATURES --shard-index $SLURM_ARRAY_TASK_ID --shard-count 64
  vlm-agent features --finish --output FEATURES"""


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "features", run, "extract the screen features of shards", _DESCRIPTION, check=_check, verify=_verify
    )
    parser.add_argument("shards", type=Path, nargs="?", metavar="SHARDS", help="a converted folder")
    parser.add_argument("--extractor", metavar="NAME", help="a frozen vision model; a wrong NAME lists all")
    parser.add_argument(
        "--config",
        type=shipped_file,
        metavar="FILE",
        help="a recipe whose model.features is extracted, in place of --extractor, --form and --checkpoint",
    )
    parser.add_argument(
        "--form", choices=("pooled", "patches"), help="one vector a screen, or one for each patch (default pooled)"
    )
    parser.add_argument(
        "--checkpoint", metavar="NAME", help="a folder or a name on the hub in place of the extractor's default"
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="a new folder, or one of this extraction to resume"
    )
    parser.add_argument("--batch-size", type=count, metavar="N", default=32, help="screens at a time (default 32)")
    parser.add_argument(
        "--bf16", action="store_true", help="compute in bfloat16 mixed precision: faster on GPUs, rounds to 3 digits"
    )
    parser.add_argument(
        "--workers", type=count, metavar="N", help="threads that decode screens (default: half of the cores, at most 8)"
    )
    parser.add_argument("--shard-index", type=int, metavar="I", help="extract only part I (from 0) of the shards")
    parser.add_argument("--shard-count", type=count, metavar="N", help="number of parts")
    parser.add_argument(
        "--finish", action="store_true", help="check that all parts are there, and write the manifest; needs --output"
    )


def run(options: argparse.Namespace) -> int:
    from vlm_agent.files.console import make_console
    from vlm_agent.models.features.job import default_workers, extract_features, finish
    from vlm_agent.models.weights.precision import describe_device, model_device

    console = make_console()
    if options.finish:
        finish(options.output, console)
        return OK
    device = model_device()
    console.print(describe_device(device), highlight=False)
    extract_features(
        options.shards,
        _settings(options),
        options.output,
        console,
        device,
        batch_size=options.batch_size,
        precision="bfloat16" if options.bf16 else "float32",
        workers=default_workers() if options.workers is None else options.workers,
        task=array_task(options),
    )
    return OK


def _check(options: argparse.Namespace) -> None:
    if options.finish:
        accept_only(options, ("finish", "output"), "--finish reads shards and extractor from --output")
        return
    array_task(options)
    if options.shards is None or (options.extractor is None) == (options.config is None):
        options.parser.error("name a folder of shards, and --extractor or --config")
    if options.config is not None:
        refuse(options, ("form", "checkpoint"), "is part of the recipe in --config; remove one of them")


def _verify(options: argparse.Namespace, earlier: "Earlier") -> None:
    if options.finish:
        return
    from vlm_agent.datasets.shards.dataset import read_manifest
    from vlm_agent.models.features import check_extractor
    from vlm_agent.models.features.job import job_of

    if not earlier.writes(options.shards):
        read_manifest(options.shards)
    check_extractor(_settings(options))
    job_of(options.output).check_folder()


def _settings(options: argparse.Namespace) -> "FeatureSettings":
    from vlm_agent.errors import RecipeError
    from vlm_agent.recipe.model import FeatureSettings
    from vlm_agent.recipe.run import read_recipe

    if options.config is None:
        form = "pooled" if options.form is None else options.form
        return FeatureSettings(extractor=options.extractor, checkpoint=options.checkpoint, form=form)
    settings = read_recipe(options.config).model.features
    if settings is None:
        raise RecipeError(f"{options.config} has no model.features; its model reads no screen features")
    return settings
