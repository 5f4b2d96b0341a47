"""`vlm-agent record`: writes in words what a person does on a phone, for agents that are shown how."""

import argparse
import select
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.agent_options import add_elements_option
from vlm_agent.cli.parser import FAILED, OK, Commands, add_command, port, refuse
from vlm_agent.files.console import make_console, only_printable, print_plain, stopped_by_signals

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.devices.acting.demonstrating.lines import Lines
    from vlm_agent.devices.acting.demonstrating.observed import Observed

_DESCRIPTION = """\
Do the task on the phone, then press Enter or Ctrl-C here. The touches become lines such as "tap 'Settings'":

  vlm-agent record --device adb:SERIAL --goal "Turn on the wifi" --app Settings --output shown.sqlite
  vlm-agent record --device simulated:general/test/7 --output shown.sqlite
  vlm-agent record --trace traces/20260101-120000-3f09 --output shown.sqlite
  vlm-agent demonstrations shown.sqlite

On a real phone, touch after each line "ready": the screen is read between two touches. A simulated phone is served
over ADB; every command of a client counts. A trace counts with the actions that were performed.

What is typed into a password field, and card numbers, are masked before anything is stored (docs/phones.md)."""

_TICK_SECONDS = 0.1


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "record", run, "record in words what a person does on a phone", _DESCRIPTION, check=_check
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--device", metavar="WHICH", help="adb, adb:SERIAL, simulated or simulated:general/test/7")
    source.add_argument("--trace", type=Path, metavar="DIR", help="the trace of an agent in place of a phone")
    parser.add_argument("--goal", metavar="WORDS", help="what is shown (default: the goal of the task or trace)")
    parser.add_argument("--app", default="", metavar="NAME", help="the app in which it is shown")
    parser.add_argument("--output", type=Path, required=True, metavar="STORE", help="the file of demonstrations")
    add_elements_option(parser)
    parser.add_argument(
        "--port", type=port, default=0, metavar="P", help="TCP port of a simulated phone (default: any free one)"
    )


def run(options: argparse.Namespace) -> int:
    from vlm_agent.agents.examples.store import Demonstrations
    from vlm_agent.devices.acting.demonstrating.lines import lines_of
    from vlm_agent.devices.acting.demonstrating.observed import with_read_elements

    console, store = make_console(), Demonstrations(options.output)
    store.all()  # a file that is not a store is reported before anything is shown
    goal, observed = _of_trace(options, console) if options.device is None else _of_device(options, console)
    if options.elements == "read":
        from vlm_agent.agents.read_screens import ScreenReader
        from vlm_agent.screens.understand import Readers

        print_plain(console, "Reading the screens …")
        observed = with_read_elements(observed, ScreenReader.of(Readers()).read)
    found = lines_of(observed)
    goal, app = found.secrets.mask(goal), found.secrets.mask(options.app)
    print_plain(console, _summary(goal, observed, found))
    if not found.lines:
        print_plain(console, "Nothing was recorded, and nothing is stored.")
        return FAILED
    stored = store.add(goal, app, found.lines)
    print_plain(console, f"Demonstration {stored.number} of {options.output}")
    return OK


def _check(options: argparse.Namespace) -> None:
    from vlm_agent.devices import DEVICES

    error = options.parser.error
    if options.goal is not None and (not options.goal.strip() or not options.goal.isprintable()):
        error("--goal must be one line of text")
    kind = "" if options.device is None else options.device.partition(":")[0]
    if kind not in DEVICES or not DEVICES[kind].is_served:
        refuse(options, ["port"], "is for a simulated phone")


def _of_trace(options: argparse.Namespace, console: "Console") -> "tuple[str, Observed]":
    from vlm_agent.devices.acting.demonstrating.observed import of_trace

    trace, observed = of_trace(options.trace, options.elements == "read")
    unknown = "The trace does not state whether its goal was reached. " if trace.heading.reached is None else ""
    print_plain(console, f"{unknown}{only_printable(trace.ending)}")
    return trace.heading.goal if options.goal is None else options.goal, observed


def _of_device(options: argparse.Namespace, console: "Console") -> "tuple[str, Observed]":
    from vlm_agent.devices import device_address
    from vlm_agent.devices.acting.demonstrating.observed import Watching, recorder_of

    address, recorder = device_address(options.device), recorder_of(options.device)
    if options.goal is None and not address.has_task:
        options.parser.error("--goal is missing; describe what you are going to show")
    which = options.device.partition(":")[2] or None
    say = partial(print_plain, console)
    with (
        stopped_by_signals(),
        recorder(Watching(address, which, options.goal, options.elements == "read", options.port, say)) as recording,
    ):
        say("\n".join(filter(None, (f"Goal: {recording.goal}", recording.opening))))
        wait_for_end(console, recording.tick)
        return recording.goal, recording.stop()


def wait_for_end(console: "Console", tick: Callable[[], None]) -> None:
    """Calls `tick` again and again until Enter or Ctrl-C. The end of standard input does not count as Enter. Raises
    KeyboardInterrupt for other signals."""
    waits = [sys.stdin] if sys.stdin is not None else []
    try:
        print_plain(console, "Do the task on the phone, then press Enter or Ctrl-C here.")
        while True:
            if select.select(waits, [], [], _TICK_SECONDS)[0]:
                if sys.stdin.readline():
                    return
                waits = []
            tick()
    except KeyboardInterrupt as stop:
        if stop.args:
            raise


def _summary(goal: str, observed: "Observed", found: "Lines") -> str:
    lines = [goal, *(f"{number:3d}. {line}" for number, line in enumerate(found.lines, 1))]
    notes = {
        "typed secrets masked": found.masked,
        "touches whose screen was not read, stored without their points": found.unread,
        **{f"left out: {reason}": count for reason, count in observed.left_out.items()},
    }
    lines += [f"{count} {what}" for what, count in notes.items() if count]
    return "\n".join(only_printable(line) for line in lines)
