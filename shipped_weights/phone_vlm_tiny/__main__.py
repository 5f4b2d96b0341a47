"""The command that trains `phone_vlm_tiny`. Run it again to resume; under torchrun every rank runs it.

Any key of the recipe can be overridden: --training.steps 100
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from shipped_weights.phone_vlm_tiny.data import DrawnDataModule
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, read_pretraining
from vlm_agent.cli.parser import keys_in
from vlm_agent.errors import Stopped, UserError
from vlm_agent.files.console import make_console, quiet_libraries, say
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.train import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains. Returns 0, 1 after an error, whose cause is printed in one line, or the status of a stopped run."""
    parser = argparse.ArgumentParser(prog="python -m shipped_weights.phone_vlm_tiny", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="a recipe, such as curriculum.yaml")
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="then save, and exit with status 75; the same command resumes"
    )
    options, rest = parser.parse_known_args(arguments)
    options.parser, options.rest = parser, rest
    quiet_libraries()
    alarm = None
    if options.minutes is not None:
        alarm = threading.Timer(60 * options.minutes, os.kill, (os.getpid(), signal.SIGTERM))
        alarm.daemon = True
    try:
        recipe, lessons = read_pretraining(options.config, keys_in(options))
        train(recipe, make_console(), partial(_data, lessons=lessons, alarm=alarm))
    except Stopped as stopped:
        say(str(stopped))
        return Stopped.STATUS
    except (UserError, OSError) as error:
        say(f"{parser.prog}: {error}", stderr=True)
        return 1
    finally:
        if alarm is not None:
            alarm.cancel()
    return 0


def _data(recipe: Recipe, lessons: DrawnRecipe, alarm: threading.Timer | None) -> DrawnDataModule:
    if alarm is not None:
        alarm.start()  # here, where the run handles the signal already
    return DrawnDataModule(recipe, lessons)


if __name__ == "__main__":
    sys.exit(main())
