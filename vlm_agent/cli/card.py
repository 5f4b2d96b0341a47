"""`vlm-agent card`: completes the model card of a run or a merged checkpoint, and prepares the folder to upload."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.files.console import make_console, print_plain

_DESCRIPTION = """\
`train` and `merge` write the model card, README.md and model/README.md. `evaluate` writes to its own output only; this
command copies the scores of its outputs to the card, with intervals, controls and the command that measured them.
Earlier scores of the card are replaced; the rest stays, also what you have added.

  vlm-agent evaluate --checkpoint RUN --shards SHARDS --output OUT
  vlm-agent card RUN --scores OUT --license apache-2.0 --upload DIR
  hf upload ME/NAME DIR/model     for peft, transformers and servers
  hf upload ME/NAME DIR           for vlm-agent

DIR holds no path of this machine. A base that was loaded from a folder is named by --model.vlm.published_as, or by the
same key of the recipe."""

PUBLISHED = {
    "vlm": "model.vlm.published_as",
    "language_model": "model.language_model.published_as",
    "vision": "model.vision.published_as",
    "encoder_decoder": "model.encoder_decoder.published_as",
}
"""Recipe key of a base → the option with its name on the hub."""


def add(commands: Commands) -> None:
    about = "complete the model card of a run, prepare its upload"
    parser = add_command(commands, "card", run, about, _DESCRIPTION, check=_check)
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a finished run, or the output of merge")
    parser.add_argument("--scores", type=Path, nargs="+", metavar="OUT", help="outputs of evaluate with this model")
    parser.add_argument("--license", metavar="ID", help="the licence of the model: apache-2.0, mit, …")
    for option in PUBLISHED.values():
        parser.add_argument(f"--{option}", metavar="OWNER/NAME", help="the base's name on the hub, if it was a folder")
    parser.add_argument("--upload", type=Path, metavar="DIR", help="write a folder to upload")


def _check(options: argparse.Namespace) -> None:
    if not (options.scores or options.license or options.upload or _published(options)):
        options.parser.error("give --scores, --license, --model.KEY.published_as or --upload")


def _published(options: argparse.Namespace) -> dict[str, str]:
    """Recipe key → name on the hub."""
    return {key: name for key, option in PUBLISHED.items() if (name := getattr(options, option)) is not None}


def run(options: argparse.Namespace) -> int:
    names = _published(options)
    from vlm_agent.evaluation.card import card_scores
    from vlm_agent.models.card.card import checked_licence, update_card
    from vlm_agent.models.card.upload import write_upload
    from vlm_agent.models.run_layout import CARD

    folder, console = options.run_folder, make_console()
    scores = card_scores(folder, options.scores) if options.scores else []
    licence = None if options.license is None else checked_licence(options.license)
    if names or scores or licence is not None:
        update_card(folder, scores, licence, names)
        print_plain(console, f"Updated {folder / CARD}{f': {len(scores)} evaluation(s)' if scores else ''}")
    if options.upload is not None:
        write_upload(folder, names, options.upload)
        print_plain(console, f"Wrote {options.upload}, to upload")
    return OK
