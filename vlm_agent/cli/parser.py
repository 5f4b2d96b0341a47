"""Shared by all commands: exit statuses, a parser that suggests the nearest option, argument types.

argparse is sufficient: jsonargparse and tyro derive options from settings classes, so `vlm-agent --help` would import
the settings of every command. Only `train` overrides settings; its dotted keys take a few lines here and in
`recipe/run.py`.
"""

import argparse
import difflib
import gc
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

OK, FAILED, USAGE, QUARANTINED, INTERRUPTED = 0, 1, 2, 3, 130
"""`USAGE` is argparse's own status for wrong arguments."""


class Parser(argparse.ArgumentParser):
    """Suggests the nearest option for an unknown one.

    Abbreviations are disabled, because `--split` and `--splits` are options of different commands. With `takes_keys`,
    unknown options are accepted: they may be recipe keys.
    """

    def __init__(self, takes_keys: bool = False, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.takes_keys = takes_keys

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Checked before argparse, which would report --input as missing where the user wrote --imput.
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


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    description: str = "",
    takes_keys: bool = False,
) -> Parser:
    """Adds a subcommand. `run` takes the parsed options and returns the exit status."""
    text = f"{summary[0].upper()}{summary[1:]}.\n\n{description}".strip()
    parser = commands.add_parser(name, help=summary, description=text, takes_keys=takes_keys)
    parser.set_defaults(run=run, parser=parser)
    return parser


def count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 1 or greater")
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
    from vlm_agent.recipe.shipped import find_shipped

    return find_shipped(Path(text))


def size(text: str) -> tuple[int, int]:
    """`448x208` is 448 pixels high and 208 wide."""
    match = re.fullmatch(r"([1-9][0-9]*)[x×]([1-9][0-9]*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write height x width, as in 448x208")
    return int(match[1]), int(match[2])


@contextmanager
def without_garbage_collection(is_program: bool) -> Iterator[None]:
    """For the imports of PyTorch and transformers, which leave a million objects and hardly any garbage.

    Collecting garbage among them, during the imports, later and at the exit, takes a fifth of a command's start. In a
    program that runs only this command, none is collected in between, and the collector ignores them from then on.
    """
    if not is_program:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
