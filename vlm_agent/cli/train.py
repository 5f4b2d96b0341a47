"""`vlm-agent train`: a recipe becomes a run folder."""

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
    parser.usage = "vlm-agent train [-h] --config FILE [--KEY.SUBKEY VALUE ...]"


def run(options) -> int:
    overrides = _overrides(options)
    quiet_libraries()

    from vlm_agent.training.errors import Stopped
    from vlm_agent.training.preemption import EXIT_STATUS
    from vlm_agent.training.recipe import read_recipe
    from vlm_agent.training.train import train

    console = make_console()
    try:
        train(read_recipe(options.config, overrides), console)
    except Stopped as stopped:
        console.print(str(stopped))
        return EXIT_STATUS
    return OK


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
