"""`vlm-agent card`: puts the scores of evaluations into the model card of a run or a merged checkpoint."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.console import make_console, quiet_libraries

_DESCRIPTION = """\
`train` and `merge` write the model card, README.md and model/README.md. `evaluate` writes to its own output only; this
command copies the scores of its outputs to the card, with intervals, controls and the command that measured them.
Earlier scores of the card are replaced; the rest stays, also what you have added.

  vlm-agent evaluate --checkpoint RUN --shards SHARDS --output OUT
  vlm-agent card RUN --scores OUT
  hf upload ME/NAME RUN/model"""


def add(commands: Commands) -> None:
    parser = add_command(commands, "card", run, "put scores into the model card of a run", _DESCRIPTION)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a finished run, or the output of merge")
    parser.add_argument(
        "--scores", type=Path, nargs="+", required=True, metavar="OUT", help="outputs of evaluate with this model"
    )


def run(options: argparse.Namespace) -> int:
    quiet_libraries()

    from vlm_agent.evaluation.card_scores import card_scores
    from vlm_agent.models.card.card import CARD, write_scores

    scores = card_scores(options.run_folder, options.scores)
    write_scores(options.run_folder, scores)
    make_console().print(
        f"{options.run_folder / CARD}: {len(scores)} evaluation(s)", highlight=False, markup=False, soft_wrap=True
    )
    return OK
