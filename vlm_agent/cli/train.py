"""`vlm-agent train`: a recipe becomes a run folder."""

import os
import re
from pathlib import Path

from vlm_agent.cli.parser import OK, add_command
from vlm_agent.cli.terminal import make_console, quiet_libraries


def add(commands) -> None:
    parser = add_command(
        commands,
        "train",
        run,
        "train what a recipe says",
        "Any key of the recipe can be given another value: --training.steps 100 --data.mixture.google_apps=0.1\n"
        "The same command again resumes a run that was stopped.",
        takes_keys=True,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the recipe, e.g. recipes/X.yaml")
    parser.add_argument("--dry-run", action="store_true", help="say what the run would cost; reads no weight")
    parser.add_argument("--gpu", default="H100", metavar="NAME", help="dry run: on which GPUs (default H100)")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="dry run: on how many (default 1)")
    parser.add_argument("--mfu", type=float, default=0.4, metavar="SHARE", help="dry run: at which share of their peak")
    parser.usage = "vlm-agent train [-h] --config FILE [--dry-run [--gpu NAME] ...] [--KEY.SUBKEY VALUE ...]"


def run(options) -> int:
    overrides = _overrides(options)
    quiet_libraries()

    from vlm_agent.training.errors import Stopped
    from vlm_agent.training.preemption import EXIT_STATUS
    from vlm_agent.training.recipe import read_recipe
    from vlm_agent.training.train import train

    console, recipe = make_console(), read_recipe(options.config, overrides)
    if options.dry_run:
        _dry_run(recipe, options, console)
        return OK
    try:
        train(recipe, console)
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":
            console.print(str(stopped))
        return EXIT_STATUS
    return OK


def _dry_run(recipe, options, console) -> None:
    if options.gpus < 1 or not 0 < options.mfu <= 1:
        options.parser.error("--gpus is 1 or more, --mfu is over 0 and at most 1")

    from vlm_agent.training.dry_run import Target, dry_run
    from vlm_agent.training.dry_run_tables import print_dry_run
    from vlm_agent.training.hardware import find_gpu
    from vlm_agent.training.plan import plan_of

    print_dry_run(console, dry_run(plan_of(recipe), Target(find_gpu(options.gpu), options.gpus, options.mfu)))


def _overrides(options) -> dict[str, str]:
    """What `train` was given beyond its own options: `--key.sub value` or `--key.sub=value`."""
    overrides, rest = {}, list(options.rest)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if not re.fullmatch(r"--[A-Za-z_][\w.]*", name):
            options.parser.error(f"{name!r} is no key of a recipe; write --key.subkey value")
        if not given:
            if not rest or rest[0].startswith("--"):
                options.parser.error(f"{name} needs a value")
            value = rest.pop(0)
        overrides[name.removeprefix("--")] = value
    return overrides
