"""`vlm-agent act`: runs an agent on a phone, shows every step, and reads the keys of the person who supervises it."""

import argparse
import difflib
import os
import select
import sys
import termios
import time
import tty
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli import agent_options
from vlm_agent.cli.parser import FAILED, INTERRUPTED, OK, Commands, add_command, count, file_name
from vlm_agent.files.console import make_console, only_printable, print_plain, say, stopped_by_signals

if TYPE_CHECKING:
    from vlm_agent.datasets.sources.traces import Heading
    from vlm_agent.devices import Device, DeviceAddress, OpenedDevice
    from vlm_agent.devices.acting.loop import Ending, ProposedStep
    from vlm_agent.episodes import Episode


_DESCRIPTION = """\
Shows every step before its action is executed: the screenshot's file, the agent's answer and the action. Ctrl-C stops
the run immediately, q stops it before the next action. The trace is written step by step:

  vlm-agent act --agent RUN --device adb:SERIAL --goal "Open the settings" --confirm
  vlm-agent act --agent RUN --device simulated:google_apps/test/16115830359770412266 --animation agent.gif
  vlm-agent inspect TRACE
  vlm-agent convert --source trace --input TRACE … --output SHARDS

An action that could spend money needs confirmation; without one it is refused. Such actions are detected by words on
the screen and in the activity's name. This filter gives no guarantee: supervise an agent that can pay.

Exit status 0: the agent declared the goal complete or impossible, and a phone that knows the task agrees; 1 otherwise,
130 after Ctrl-C or q."""

_NO_TEXTS = (
    "This phone does not report the texts on its screen. Until it does, purchases are detected only by the activity's "
    "name and by the goal. With --elements read, texts are read from the pixels."
)
_MOST_SHOWN = 2000  # characters of a reply and of an action at the terminal
_GAVE_UP = ("impossible", "step_limit", "loop", "unparsed")
"""Endings after which an agent that learns from demonstrations asks for one."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "act",
        run,
        "run an agent on a phone",
        _DESCRIPTION,
        keys=agent_options.AGENT_KEYS,
        check=_check,
        more_help=agent_options.agent_keys,
    )
    agent_options.add_agent_options(parser)
    agent_options.add_places(parser)
    parser.add_argument(
        "--device",
        type=_device,
        required=True,
        metavar="WHICH",
        help="the phone: adb, adb:SERIAL, simulated:general/test/7, browser:shop/7 …; a wrong address lists all forms",
    )
    agent_options.add_elements_option(parser)
    parser.add_argument("--goal", metavar="WORDS", help="the goal (default: the task's own)")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="folder of the trace (default: a new one in traces/)")
    parser.add_argument("--steps", type=count, default=30, metavar="N", help="stop after N steps (default 30)")
    parser.add_argument("--confirm", action="store_true", help="ask before each action")
    parser.add_argument(
        "--apps",
        nargs="+",
        metavar="NAME",
        help="packages, or package/activity, in which the agent may act, besides the launcher (default: all)",
    )
    parser.add_argument(
        "--allow-purchases", action="store_true", help="do not ask before actions that could spend money"
    )
    parser.add_argument(
        "--long-screens",
        action="store_true",
        help="show the agent each page as one tall picture, for which the page is scrolled to its end and back",
    )
    parser.add_argument("--animation", type=file_name(".gif"), metavar="FILE", help="write the run as an animated GIF")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.agents.loading import load_agent, reported_spending
    from vlm_agent.agents.read_screens import ScreenReader, in_words
    from vlm_agent.datasets.sources.trace_writer import TraceWriter, check_trace_folder
    from vlm_agent.devices.acting.around import ReadElements, long_screen
    from vlm_agent.devices.acting.guard import Guard
    from vlm_agent.devices.acting.loop import Limits, act

    # A script may start a run for each of several phones in the same second.
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    console, folder = make_console(), Path("traces", name) if options.trace is None else options.trace
    check_trace_folder(folder)
    settings = agent_options.chosen_agent(options).in_output(folder)
    readers = agent_options.chosen_readers(options, settings)
    with stopped_by_signals(), options.device.open() as phone:
        _check_apps(phone, options.apps or ())
        device: Device = phone.device if readers is None else ReadElements(phone.device, ScreenReader.of(readers))
        goal = phone.task.goal if options.goal is None else options.goal
        with agent_options.places(options, agent_options.run_of_agent(settings)):
            agent = load_agent(settings, console, readers)
        name = settings.display_name + ("" if readers is None else f"; elements {in_words(readers)}")
        heading = _heading(phone, goal, name, options.long_screens)
        with TraceWriter(folder, heading) as trace, Keys() as keys:
            print_plain(console, f"Goal: {goal}\nTrace: {trace.folder}")
            if not options.allow_purchases and device.elements() is None:
                print_plain(console, _NO_TEXTS)
            guard = Guard(
                keys.agrees,
                options.confirm,
                options.apps,
                options.allow_purchases,
                phone.launcher,
                reads_pixels=readers is not None,
            )

            if options.long_screens:
                device = long_screen(device, goal, trace, guard, partial(print_plain, console))

            def warn(text: str) -> None:
                print_plain(console, f"     {only_printable(text)}")

            def watch(step: "ProposedStep") -> bool:
                print_plain(console, _step_lines(step))
                return keys.wants_stop()

            with reported_spending(agent, console, lambda: [_one_step(phone, goal)], options.steps):
                ending = act(agent, device, goal, trace, guard, Limits(options.steps), watch, warn)
            reached = None if phone.task is None or options.goal is not None else phone.task.reached(phone.device)
            trace.judged(reached)
        print_plain(console, _summary(ending, reached))
        if ending.reason in _GAVE_UP and (request := settings.asks_to_be_shown(goal)) is not None:
            print_plain(console, request)
    if options.animation is not None:
        from vlm_agent.datasets.sources.traces import read_trace
        from vlm_agent.drawing.animation import animate

        animate(read_trace(trace.folder), options.animation)
        print_plain(console, f"Drew {options.animation}")
    if ending.reason == "stopped" or keys.is_stopped:
        return INTERRUPTED
    return OK if ending.is_declared and reached is not False else FAILED


def _check_apps(phone: "OpenedDevice", names: Sequence[str]) -> None:
    """Raises DeviceError for a name in --apps whose package the phone does not have."""
    from vlm_agent.devices.errors import UnknownAppError

    packages = phone.packages() if names and phone.packages is not None else ()
    for name in names if packages else ():
        if name.partition("/")[0] not in packages:
            nearest = difflib.get_close_matches(name.partition("/")[0], packages, n=3, cutoff=0)
            raise UnknownAppError(f"--apps {name}: not a package on {phone.name}; did you mean {' or '.join(nearest)}?")


def _one_step(phone: "OpenedDevice", goal: str) -> "Episode":
    """An episode of one step with a screen of the phone's size, to estimate the cost of a step."""
    import numpy as np

    from vlm_agent.episodes import Action, Episode, Step

    return Episode("", "", goal, (Step(np.zeros((*phone.device.size, 3), np.uint8), Action.complete()),))


def _heading(phone: "OpenedDevice", goal: str, agent: str, long_screens: bool) -> "Heading":
    from vlm_agent.datasets.sources.traces import Heading

    identity = (uuid.uuid4().hex, goal, agent, phone.name)
    if phone.task is None:
        return Heading(*identity)
    if phone.replay_address is None or long_screens:  # actions on a tall picture cannot be replayed on the phone
        return Heading(*identity, phone.task.subset)
    # With a goal of the user's own it is a different episode, which can still be replayed on the same phone.
    return Heading(*identity, phone.task.subset, phone.replay_address, phone.device.size)


def _step_lines(step: "ProposedStep") -> str:
    from vlm_agent.drawing.actions import describe_with_place

    proposed = step.answer.action
    action = "no action" if proposed is None else describe_with_place(proposed, step.elements or ())
    activity = f"  in {step.activity}" if step.activity else ""
    texts = (repr(step.answer.text), only_printable(action))
    shown = " → ".join(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …" for text in texts)
    return f"{step.number + 1:3d}  {step.picture}{activity}\n     {shown}"


def _summary(ending: "Ending", reached: bool | None) -> str:
    """One line. `reached`: whether the goal is reached; None without a task, and for a goal of the user's own."""
    reason = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
    doubt = f", {ending.in_doubt} of them in doubt" if ending.in_doubt else ""
    doubt += f", {ending.failed} of them failed" if ending.failed else ""
    if ending.black:
        doubt += f", {ending.black} black pictures"
    if ending.beyond_context:
        doubt += f", {ending.beyond_context} answers beyond the model's context"
    verdict = {None: "", True: ". The goal is reached", False: ". The goal is not reached"}[reached]
    return f"{only_printable(reason)} ({ending.steps} steps{doubt}, {sum(ending.seconds.values()):.1f} s){verdict}"


def _check(options: argparse.Namespace) -> None:
    error = options.parser.error
    if options.long_screens and options.confirm:
        error("--long-screens scrolls pages without a question; it cannot be combined with --confirm")
    agent_options.check_agent_options(options)
    if options.goal is None and not options.device.has_task:
        error("--goal is missing; describe what the agent should do")
    if options.goal is not None and (not options.goal.strip() or not options.goal.isprintable()):
        error("--goal must be one line of text")


def _device(text: str) -> "DeviceAddress":
    from vlm_agent.devices import device_address
    from vlm_agent.errors import UserError

    try:
        return device_address(text)
    except UserError as error:  # also a device of another package that cannot be imported
        raise argparse.ArgumentTypeError(str(error)) from None


class Keys:
    """Reads single keys from the terminal; a context manager.

    If standard input is not a terminal, each question reads a line, and only a signal stops the agent. `is_stopped`:
    whether q was the answer to a question.
    """

    is_stopped = False

    def __enter__(self) -> "Keys":
        self._terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        if self._terminal is not None:
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)
        return self

    def __exit__(self, *error) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def wants_stop(self) -> bool:
        """Whether q was pressed since the last call."""
        pressed = b""
        while self._terminal is not None and select.select([self._terminal], [], [], 0)[0]:
            key = os.read(self._terminal, 64)
            if not key:
                break
            pressed += key
        return b"q" in pressed.lower()

    def agrees(self, question: str) -> bool:
        """Asks the question and returns whether the answer is y. Keys typed before the question are discarded."""
        say(f"     {question} [y/N/q] ", end="")
        if self._terminal is None:
            answer = "" if sys.stdin is None else sys.stdin.readline()
            say()
            return self._means_yes(answer.strip())
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        key = os.read(self._terminal, 1).decode(errors="replace")
        say(key if key.isprintable() else "")
        return self._means_yes(key)

    def _means_yes(self, answer: str) -> bool:
        self.is_stopped |= answer.casefold() in ("q", "quit")
        return answer.casefold() in ("y", "yes")
