"""The console command `vlm-agent`: one subcommand per stage, from data to a scored agent.

    vlm-agent simulate --output DIR --episodes N       demonstrations on a simulated phone, in AITW's format
    vlm-agent phone --port P                           a simulated phone that adb can operate
    vlm-agent convert --input PATHS --output DIR       convert AITW files into shards
    vlm-agent convert-checkpoint --input DIR --output DIR
                                                       convert a published Qwen-VL (2023) or Auto-UI: no remote code
    vlm-agent features SHARDS --extractor NAME --output DIR
                                                       extract frozen screen features
    vlm-agent annotate SHARDS --endpoint URL --model NAME --output DIR
                                                       write CoAT's four texts for the steps of shards; review them
    vlm-agent inspect DIR                              statistics of shards; draws an episode
    vlm-agent recipes [NAME --output FILE]             list the shipped recipes, copy one
    vlm-agent train --config recipes/X.yaml            train a recipe into a run folder
    vlm-agent status RUN                               progress of a run, from its folder alone
    vlm-agent merge RUN --output DIR                   merge an adapter into its base and verify the result
    vlm-agent card RUN --scores OUT                    put the scores of evaluations into the model card
    vlm-agent serve-check RUN --endpoint URL           a served model, compared with its run
    vlm-agent evaluate --checkpoint RUN --shards DIR   score an agent; writes numbers and pictures
    vlm-agent act --agent RUN --device adb --goal "…"  run an agent on a phone
    vlm-agent record --device adb --goal "…"           record in words what a person does on a phone
    vlm-agent demonstrations STORE                     list, show, remove or import recorded demonstrations
    vlm-agent score PREDICTIONS [--against OTHER]      score predictions again, by other scorers or against another run
    vlm-agent transfer OUT… --output DIR               models of different subsets on every subset
    vlm-agent chats SHARDS --agent FILE --output FILE  an agent's prompts with known replies, to train a text model on
    vlm-agent compare FILE --output DIR                train and score several agents, in one table
    vlm-agent view OUT                                 show an output folder and ask an agent, in a browser
    vlm-agent demo                                     all stages at a small size
    vlm-agent doctor                                   check what works on this machine: GPU, DeepSpeed, adb, Slurm, …

Exit status: 0 on success; 1 on an error, with one message that explains it; 2 for wrong arguments; 3 when a conversion
quarantined records; 75 when a signal stopped training (run the same command again to resume); 130 after Ctrl-C. Every
command imports its dependencies when it runs, so that `--help` does not wait for PyTorch. A new command is one file
here, with `add(commands)`, and one line in `COMMANDS`.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

import vlm_agent
from vlm_agent.cli.parser import FAILED, INTERRUPTED, OK, QUARANTINED, USAGE, Parser
from vlm_agent.console import plain_log, say
from vlm_agent.errors import UserError

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "OK", "QUARANTINED", "USAGE", "main"]

COMMANDS = (
    "simulate",
    "phone",
    "convert",
    "convert_checkpoint",
    "features",
    "annotate",
    "inspect",
    "recipes",
    "train",
    "status",
    "merge",
    "card",
    "serve_check",
    "evaluate",
    "act",
    "record",
    "demonstrations",
    "score",
    "transfer",
    "chats",
    "compare",
    "view",
    "demo",
    "doctor",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Raises SystemExit for wrong arguments.

    `arguments` None means those of the process, which then runs only this command.
    """
    plain_log()
    try:
        options, rest = _parser().parse_known_args(sys.argv[1:] if arguments is None else arguments)
        options.is_program = arguments is None
        if rest and not options.parser.takes_keys:
            options.parser.error(f"unexpected argument {rest[0]!r}")
        options.rest = rest
        return _run(options)
    except KeyboardInterrupt:
        say("interrupted", stderr=True)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    try:
        options.check_options(options)
        status: int = options.run(options)
        return status
    except (UserError, OSError) as error:
        say(f"vlm-agent {options.command}: {_message(error)}", stderr=True)
        return FAILED


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _parser() -> Parser:
    parser = Parser(
        prog="vlm-agent",
        description=f"{vlm_agent.__doc__}\n\nvlm-agent COMMAND --help lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=vlm_agent.__version__)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"vlm_agent.cli.{name}").add(commands)
    return parser
