"""What the commands share before they run: exit statuses, a parser that names the nearest option, argument types."""

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

OK, FAILED, QUARANTINED, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """Refuses with status 1, because 2 means quarantined records; takes no abbreviation, because `--split` of one
    command is not `--splits` of another; names the option nearest to an unknown one.

    With `takes_keys` an unknown option is not refused: it may be a key of a recipe.
    """

    def __init__(self, takes_keys: bool = False, **options):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.takes_keys = takes_keys

    def parse_known_args(self, args=None, namespace=None):
        # Before argparse, which would say that --input is missing where somebody wrote --imput.
        leading = args if self._subparsers is None else itertools.takewhile(lambda text: text.startswith("-"), args)
        for argument in leading:
            if argument.startswith("--") and not self.takes_keys:
                self._check_known(argument)
        return super().parse_known_args(args, namespace)

    def _check_known(self, argument: str) -> None:
        name = argument.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
            self.error(f"unknown option {name}; did you mean {nearest[0]}?")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(FAILED, f"{self.prog}: {message}\n")


def add_command(
    commands, name: str, run: Callable[[argparse.Namespace], int], summary: str, description: str = "", takes_keys=False
) -> Parser:
    """A subcommand: `run` gets the parsed options and gives the exit status."""
    text = f"{summary[0].upper()}{summary[1:]}.\n\n{description}".strip()
    parser = commands.add_parser(name, help=summary, description=text, takes_keys=takes_keys)
    parser.set_defaults(run=run, parser=parser)
    return parser


def count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def file_name(ending: str) -> Callable[[str], Path]:
    """A type of arguments: the name of a file that ends in `ending`."""

    def read(text: str) -> Path:
        if not text.lower().endswith(ending):
            raise argparse.ArgumentTypeError(f"{text!r} must end in {ending}")
        return Path(text)

    return read


def size(text: str) -> tuple[int, int]:
    """`448x208` is 448 pixels high and 208 wide."""
    match = re.fullmatch(r"([1-9][0-9]*)[x×]([1-9][0-9]*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write height x width, as in 448x208")
    return int(match[1]), int(match[2])
