"""The console command `vlm-agent`: one subcommand per stage, from data to a scored agent.

`vlm-agent --help` lists them by group.

Exit status: 0 on success; 1 on an error, with one message that explains it; 2 for wrong arguments; 3 when a conversion
quarantined records; 75 when a signal stopped training (run the same command again to resume); 130 after Ctrl-C. Every
command imports its dependencies when it runs, so that `--help` does not wait for PyTorch. A new command is one file
here, with `add(commands)`, and its name in `GROUPS`.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Mapping, Sequence

import vlm_agent
from vlm_agent.cli.parser import FAILED, INTERRUPTED, OK, QUARANTINED, USAGE, Parser
from vlm_agent.errors import UserError
from vlm_agent.files.console import plain_log, say
from vlm_agent.files.installation import DOCS

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "OK", "QUARANTINED", "USAGE", "main"]

_RANK_0_SECONDS = 10.0
"""Longer than ranks need one after the other to notice the same error."""

GROUPS = {
    "data": ("simulate", "convert", "features", "annotate", "inspect"),
    "training": ("recipes", "train", "check", "status", "merge", "card", "convert_checkpoint", "chats"),
    "evaluation": ("evaluate", "score", "transfer", "compare", "serve_check"),
    "phones": ("act", "record", "demonstrations", "phone"),
    "tools": ("demo", "view", "doctor"),
}
"""Module names of commands, as `--help` groups them."""

COMMANDS = tuple(name for names in GROUPS.values() for name in names)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Raises SystemExit for wrong arguments.

    `arguments` None means those of the process, which then runs only this command.
    """
    plain_log()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        options = parse(make_parser(words[0] if words else ""), words)
        options.is_program = arguments is None
        return _run(options)
    except KeyboardInterrupt:
        say("interrupted", stderr=True)
        return INTERRUPTED


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command. Exits for unknown ones and wrong values, and without a command."""
    options, rest = parser.parse_known_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        raise SystemExit(USAGE)
    if rest and options.parser.keys is None:
        options.parser.error(f"unexpected argument {rest[0]!r}")
    options.rest = rest
    return options


def _run(options: argparse.Namespace) -> int:
    try:
        options.check_options(options)
        status: int = options.run(options)
        return status
    except (UserError, OSError) as error:
        _leave_to_rank_0()
        say(f"vlm-agent {options.command}: {_message(error)}", stderr=True)
        return FAILED


def _leave_to_rank_0() -> None:
    """Most errors arise on all ranks of a run. A launcher ends the other ranks after rank 0 has printed its own; one
    that is still there afterwards prints its error, too."""
    if os.environ.get("RANK", "0") != "0":
        time.sleep(_RANK_0_SECONDS)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def make_parser(word: str = "") -> Parser:
    """The parser of all commands, or of one alone if `word` is its name: the others would only delay its start."""
    parser = Parser(
        prog="vlm-agent",
        usage="vlm-agent [-h] [--version] COMMAND …",
        description=f"{vlm_agent.__doc__}\n\nvlm-agent COMMAND --help lists the options of a command.\n"
        f"The pages docs/….md are in {DOCS}",
    )
    parser.add_argument("--version", action="version", version=vlm_agent.__version__)
    # argparse cannot group subcommands: `_grouped` lists them.
    commands = parser.add_subparsers(prog="vlm-agent", dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    names = {name.replace("_", "-"): name for name in COMMANDS}
    for name in (names[word],) if word in names else COMMANDS:
        importlib.import_module(f"vlm_agent.cli.{name}").add(commands)
    parser.more_help = lambda: _grouped({name: one.summary for name, one in commands.choices.items()})
    return parser


def _grouped(summaries: Mapping[str, str]) -> str:
    lines = []
    for group, modules in GROUPS.items():
        names = [name.replace("_", "-") for name in modules]
        lines += ["", f"{group}:", *(f"  {name:19} {summaries[name]}" for name in names)]
    return "\n".join(lines) + "\n"
