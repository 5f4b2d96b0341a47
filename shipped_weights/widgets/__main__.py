"""The command that trains `phone_widgets_tiny`. Run it again to resume."""

import argparse
import sys
from functools import partial
from pathlib import Path

from shipped_weights.screens.samples import sample
from shipped_weights.widgets.run import train
from shipped_weights.widgets.settings import read_settings
from vlm_agent.errors import UserError
from vlm_agent.files.console import make_console, say


def main(arguments: list[str] | None = None) -> int:
    """Trains; returns 0, or 1 after an error that one message explains."""
    parser = argparse.ArgumentParser(prog="python -m shipped_weights.widgets", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="shipped_weights/widgets/*.yaml")
    parser.add_argument("--output", metavar="DIR", help="the run's folder, in place of the recipe's")
    parser.add_argument("--steps", type=int, metavar="N", help="in place of the recipe's")
    options = parser.parse_args(arguments)
    changes = {key: value for key in ("output", "steps") if (value := getattr(options, key)) is not None}
    try:
        settings = read_settings(options.config, changes)
        train(settings, partial(sample, settings.seed), make_console())
    except (UserError, OSError) as error:
        say(f"{parser.prog}: {error}", stderr=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
