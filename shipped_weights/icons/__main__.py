"""The command that trains an icon reader. Run it again to resume."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from shipped_weights.icons.clip import ClipTraining
from shipped_weights.icons.tiny import TinyTraining
from vlm_agent.errors import RecipeError, UserError
from vlm_agent.files.console import make_console, say
from vlm_agent.recipe.yaml_file import read_mapping, validated

TRAININGS: dict[str, type[TinyTraining | ClipTraining]] = {"phone_icons_tiny": TinyTraining, "clip": ClipTraining}
"""Value of a recipe's key `reader` → its settings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains. Returns 0, or 1 after an error, whose cause is printed in one line."""
    parser = argparse.ArgumentParser(prog="python -m shipped_weights.icons", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="shipped_weights/icons/*.yaml")
    parser.add_argument("--output", metavar="DIR", help="the run's folder, in place of the recipe's")
    options = parser.parse_args(arguments)
    try:
        content = read_mapping(options.config, RecipeError)
        if options.output is not None:
            content["output"] = options.output
        if content.get("reader") not in TRAININGS:
            raise RecipeError(f"{options.config}: reader must be one of {', '.join(sorted(TRAININGS))}")
        settings = validated(TRAININGS[content["reader"]], content, str(options.config), RecipeError)
        record = settings.run(make_console())
    except (UserError, OSError) as error:
        say(f"{parser.prog}: {error}", stderr=True)
        return 1
    say(f"{settings.output}: {record['steps']:,} steps in {record['seconds'] / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
