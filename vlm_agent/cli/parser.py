"""The command line: `main` runs one command; exit statuses, a parser that suggests the nearest option, argument types.

argparse is sufficient: jsonargparse and tyro derive options from settings classes, so `vlm-agent --help` would import
the settings of every command. The dotted keys of settings take a few lines here and in `recipe/yaml_file.py`.
"""

import argparse
import difflib
import importlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import vlm_agent
from vlm_agent.errors import UserError
from vlm_agent.files.console import neutral, plain_log, quiet_libraries, say
from vlm_agent.files.imports import start_program
from vlm_agent.files.installation import DOCS
from vlm_agent.files.jobs import ArrayTask

OK, FAILED, USAGE, QUARANTINED, INTERRUPTED = 0, 1, 2, 3, 130
"""`USAGE` is argparse's own status for wrong arguments."""


class Parser(argparse.ArgumentParser):
    """Suggests the nearest option for an unknown one.

    Abbreviations are disabled, because `--split` and `--splits` are options of different commands. With `keys`, unknown
    options that begin with this prefix are accepted: they may be keys of settings. The parsed options of a command have
    `chosen`, the names of the options on the command line, so that an option that has no effect is refused also where
    it repeats the default.
    """

    def __init__(self, keys: str | None = None, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.keys = keys
        self.summary = ""
        self.more_help: Callable[[], str] = str

    def format_help(self) -> str:
        return f"{super().format_help()}{self.more_help()}"

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(neutral(message), file)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Checked before argparse, which would report --input as missing where the user wrote --imput.
        leading = args if self._subparsers is None else itertools.takewhile(lambda text: text.startswith("-"), args)
        for argument in leading:
            if argument.startswith("--") and not self.takes(argument):
                self._check_known(argument)
        found, rest = super().parse_known_args(args, namespace)
        if self._subparsers is None:
            found.chosen = self._chosen(args, found)
        return found, rest

    def _chosen(self, arguments: Sequence[str], found: argparse.Namespace) -> frozenset[str]:
        """The names (`dest`) of the options and positional arguments on the command line."""
        known = self._option_string_actions
        options = {known[name].dest for name in (text.partition("=")[0] for text in arguments) if name in known}
        positional = {action.dest for action in self._actions if not action.option_strings}
        return frozenset(options | {name for name in positional if getattr(found, name) not in (None, [])})

    def spelled(self, name: str) -> str:
        """An option as on the command line: `--name`, or `NAME` for a positional argument."""
        action = next(action for action in self._actions if action.dest == name)
        return action.option_strings[-1] if action.option_strings else str(action.metavar)

    def takes(self, argument: str) -> bool:
        """Whether an argument may be a key of settings."""
        return self.keys is not None and argument.startswith(f"--{self.keys}")

    def _check_known(self, argument: str) -> None:
        name = argument.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
            self.error(f"unknown option {name}; did you mean {nearest[0]}?")


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
    quiet_libraries()
    if arguments is None:
        start_program()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        return _run(parse(make_parser(words[0] if words else ""), words))
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
        say(f"vlm-agent {options.command}: {message_of(error)}", stderr=True)
        return FAILED


def _leave_to_rank_0() -> None:
    """Most errors arise on all ranks of a run. A launcher ends the other ranks after rank 0 has printed its own; one
    that is still there afterwards prints its error, too."""
    if os.environ.get("RANK", "0") != "0":
        time.sleep(_RANK_0_SECONDS)


def message_of(error: Exception) -> str:
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


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    description: str = "",
    keys: str | None = None,
    check: Callable[[argparse.Namespace], None] = lambda options: None,
    verify: Callable[[argparse.Namespace, Any], None] = lambda options, earlier: None,
    more_help: Callable[[], str] = str,
) -> Parser:
    """Adds a subcommand. `check` takes the parsed options and exits if they contradict each other, or if one has no
    effect beside the others; it imports nothing heavy. `run` takes them afterwards and returns the exit status.
    `verify`, for `vlm-agent check`, takes them with the `Earlier` commands of a pipeline, and raises those errors of
    `run` that can be known before these have run. `keys` is the prefix of the keys of settings that it takes as
    options; None: it takes none. `more_help` writes the end of the help, from registries that are imported only for it.
    """
    text = f"{summary[0].upper()}{summary[1:]}.\n\n{description}".strip()
    parser = commands.add_parser(name, description=text, keys=keys)
    parser.summary = summary
    parser.more_help = more_help
    parser.set_defaults(run=run, check_options=check, verify=verify, parser=parser)
    return parser


def keys_in(options: argparse.Namespace) -> dict[str, str]:
    """The keys of settings on the command line, `--key.sub value` or `--key.sub=value`, and their texts."""
    found, rest = {}, list(options.rest)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not re.fullmatch(r"--[A-Za-z_][\w.]*", name):
            options.parser.error(f"{name!r} is not a key; write --key.subkey value")
        if not equals:
            if not rest or rest[0].startswith("--"):
                options.parser.error(f"{name} needs a value")
            value = rest.pop(0)
        found[name.removeprefix("--")] = value
    return found


def filled(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The values of those of the options `names` that are not None."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def refuse(options: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Exits with "--name reason" if one of the options `names` is on the command line."""
    for name in names:
        if name in options.chosen:
            options.parser.error(f"{options.parser.spelled(name)} {reason}")


def accept_only(options: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Exits with "reason; remove --other" if an option other than `names` is on the command line."""
    if others := sorted(options.chosen.difference(names)):
        options.parser.error(f"{reason}; remove {', '.join(map(options.parser.spelled, others))}")


def array_task(options: argparse.Namespace) -> ArrayTask | None:
    """The task of --shard-index and --shard-count; exits for one of the two alone. UserError: see `ArrayTask`."""
    if len(options.chosen.intersection(("shard_index", "shard_count"))) == 1:
        options.parser.error("--shard-index and --shard-count must be used together")
    return None if options.shard_index is None else ArrayTask(options.shard_index, options.shard_count)


def count(text: str, least: int = 1) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]*", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, {least} or greater")
    return int(text)


def port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: must be 1 to 65535, or 0 for any free one")
    return int(text)


def file_name(ending: str) -> Callable[[str], Path]:
    """An argument type: a file name that ends in `ending`."""

    def read(text: str) -> Path:
        if not text.lower().endswith(ending):
            raise argparse.ArgumentTypeError(f"{text!r} must end in {ending}")
        return Path(text)

    return read


def shipped_file(text: str) -> Path:
    """A path. If it does not exist, the shipped file with this relative path, if there is one."""
    from vlm_agent.recipe.yaml_file import find_shipped

    return find_shipped(Path(text))


def size(text: str) -> tuple[int, int]:
    """`448x208` is 448 pixels high and 208 wide."""
    match = re.fullmatch(r"([1-9][0-9]*)[x×]([1-9][0-9]*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write height x width, as in 448x208")
    return int(match[1]), int(match[2])
