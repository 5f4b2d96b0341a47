"""`vlm-agent check`: check the commands of a pipeline before its first one runs."""

import argparse
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, Parser, add_command, make_parser, message_of, parse

if TYPE_CHECKING:
    from vlm_agent.recipe.run import Recipe

_DESCRIPTION = """\
Options, recipes, benchmarks, inputs, split files, DeepSpeed files, and checkpoints without a connection to the hub
(HF_HUB_OFFLINE=1). What an earlier command of the line will write may be missing. Writes nothing, reads no weights, and
prints the first problem of each command. slurm/pipeline.sh runs it before it submits a job.

  vlm-agent check convert --input AITW --splits FILE --output SHARDS then train --config FILE --data.shards SHARDS"""

THEN = "then"
_OUTPUT = "--output"


@dataclass
class Earlier:
    """What earlier commands of a pipeline will have written.

    `outputs`: files and folders. `runs`: run folder → recipe. `subsets`: folder of shards → its subsets. All paths are
    absolute: one command may name a folder by its full path, another in the working folder.
    """

    outputs: list[Path] = field(default_factory=list)
    runs: dict[Path, "Recipe"] = field(default_factory=dict)
    subsets: dict[Path, set[str]] = field(default_factory=dict)

    def writes(self, path: Path) -> bool:
        return not {path.absolute(), *path.absolute().parents}.isdisjoint(self.outputs)

    def check_subsets(self, names: Iterable[str], shards: Path, where: str) -> None:
        """Raises DatasetError for subsets that shards of an earlier conversion will not have; `where` names them."""
        from vlm_agent.datasets.selection import check_subsets

        if (folder := shards.absolute()) in self.subsets:
            check_subsets(names, self.subsets[folder], where)

    def recipe_of(self, run: Path) -> "Recipe | None":
        """The recipe of a run or of one of its checkpoints."""
        there = run.absolute()
        return next((self.runs[path] for path in (there, *there.parents) if path in self.runs), None)


def add(commands: Commands) -> None:
    summary = "check the commands of a pipeline before the first one runs"
    parser = add_command(commands, "check", run, summary, _DESCRIPTION, keys="", check=_check)
    help_ = "commands with their arguments, separated by `then`"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND …", help=help_)
    parser.usage = "vlm-agent check COMMAND ... [then COMMAND ...]"


def _check(options: argparse.Namespace) -> None:
    if not _commands(options.words):
        options.parser.error("name a command to check, such as train --config FILE")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.errors import UserError

    if problems := list(problems_of(_commands(options.words), Earlier())):
        raise UserError("\n".join(["these commands would fail:", *(f"  {problem}" for problem in problems)]))
    return OK


def problems_of(commands: Sequence[Sequence[str]], earlier: Earlier) -> Iterator[str]:
    """The first problem of each command, if it has one. `earlier` then also holds what they write."""
    parser = make_parser()
    for words in commands:
        if (problem := _problem(parser, words, earlier)) is not None:
            yield f"{words[0]}: {problem}"
        ends = [word.partition("=")[2] for word in words if word.startswith(f"{_OUTPUT}=")]
        ends += [word for option, word in itertools.pairwise(words) if option == _OUTPUT]
        earlier.outputs.extend(Path(end).absolute() for end in ends)


def _problem(parser: Parser, words: Sequence[str], earlier: Earlier) -> str | None:
    from vlm_agent.errors import UserError

    usage = io.StringIO()
    try:
        with redirect_stderr(usage):
            options = parse(parser, words)
            options.check_options(options)
            options.verify(options, earlier)
    except SystemExit as end:
        return usage.getvalue().strip().rpartition(": error: ")[2] if end.code else None
    except (UserError, OSError) as error:
        return message_of(error)
    return None


def _commands(words: Sequence[str]) -> list[list[str]]:
    groups = itertools.groupby(words, lambda word: word == THEN)
    return [list(group) for is_then, group in groups if not is_then]
