"""The command that trains one part of `phone_vlm_tiny`. Run it again to resume; under torchrun every rank runs it."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from shipped_weights.phone_vlm_tiny.data import DrawnDataModule
from shipped_weights.phone_vlm_tiny.settings import read_pretraining
from vlm_agent.errors import Stopped, UserError
from vlm_agent.files.console import make_console, quiet_libraries, say
from vlm_agent.training.train import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains. Returns 0, 1 after an error, whose cause is printed in one line, or the status of a stopped run."""
    parser = argparse.ArgumentParser(prog="python -m shipped_weights.phone_vlm_tiny", description=__doc__)
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="pretrain.yaml, walks.yaml or practice.yaml"
    )
    parser.add_argument("--output", metavar="DIR", help="the run's folder, in place of the recipe's")
    options = parser.parse_args(arguments)
    quiet_libraries()
    try:
        recipe, lessons = read_pretraining(options.config, {} if options.output is None else {"output": options.output})
        train(recipe, make_console(), partial(DrawnDataModule, lessons=lessons))
    except Stopped as stopped:
        say(str(stopped))
        return Stopped.STATUS
    except (UserError, OSError) as error:
        say(f"{parser.prog}: {error}", stderr=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
