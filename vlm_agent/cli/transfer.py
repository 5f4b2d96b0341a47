"""`vlm-agent transfer`: models by subsets, from finished evaluations."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command
from vlm_agent.errors import UserError
from vlm_agent.files.console import make_console, print_plain

_DESCRIPTION = """\
Reads the evaluation folders of several models and scores their predictions again, by the same scorers on the same
steps. Writes transfer.json and transfer.html, a heat map of models by subsets with 95 % intervals (figure 5 of
Auto-UI):

  vlm-agent train --config RECIPE --data.mixture '{install: 0, google_apps: 0, single: 0, web_shopping: 0}' \\
    --output runs/general
  vlm-agent evaluate --checkpoint runs/general --shards DIR --controls none --output evaluations/general
  …
  vlm-agent transfer evaluations/* --output transfer

A model is named after its folder; NAME=OUT chooses another name. A model with the name of a subset has this subset's
column marked. Evaluations over other shards, splits, episodes or scorers are refused."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "transfer", run, "compare models of different subsets on every subset", _DESCRIPTION)
    parser.add_argument(
        "evaluations", nargs="+", metavar="OUT", help="finished output folders of `evaluate`, or NAME=OUT"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the matrix")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.evaluation.benchmark import selection_in_words
    from vlm_agent.evaluation.offline.plan import recorded_about
    from vlm_agent.evaluation.transfer import read_evaluations, transfer_matrix, transfer_table, write_transfer

    console = make_console()
    evaluations = read_evaluations(_named(options.evaluations))
    matrix = transfer_matrix(evaluations)
    about = {evaluation.name: recorded_about(evaluation.predictions) for evaluation in evaluations}
    data = evaluations[0].data
    facts = {
        "evaluations": ", ".join(f"{evaluation.name}: {evaluation.folder}" for evaluation in evaluations),
        "split": data["split"],
        "episodes": selection_in_words(data["limit"], data["draw"]),
        "shards": f"manifest {data['shards'][:12]}",
        **{f"{model}, failed steps": of.facts()["failed steps"] for model, of in about.items() if of.failed},
    }
    write_transfer(options.output, matrix, facts)
    console.print(transfer_table(matrix))
    for line in (line for one in evaluations for line in about[one.name].warnings(one.predictions)):
        print_plain(console, line)
    print_plain(console, f"Wrote {options.output}")
    return OK


def _named(arguments: list[str]) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for argument in arguments:
        before, mark, after = argument.partition("=")
        is_plain = not mark or Path(argument).exists()
        folder = Path(argument if is_plain else after)
        name = folder.resolve().name if is_plain else before
        if name in folders:
            raise UserError(
                f"{folders[name]} and {folder} are both named {name!r}; name one of them with NAME={folder}"
            )
        folders[name] = folder
    return folders
