"""`vlm-agent act`: an agent does a goal on a phone, in front of whoever watches."""

import argparse
import re
import time
from pathlib import Path

from vlm_agent.cli.keys import Keys
from vlm_agent.cli.opened_phone import OpenedPhone, opened_phone
from vlm_agent.cli.parser import FAILED, INTERRUPTED, OK, add_command, count, file_name
from vlm_agent.cli.terminal import make_console, quiet_libraries

_DESCRIPTION = """\
Every step is shown before it is done: the picture of the screen, what the agent says, the action that is. Ctrl-C stops
it at once, q before the next action. The trace is written as it goes:

  vlm-agent act --agent RUN --device adb:SERIAL --goal "Open the settings" --confirm
  vlm-agent act --agent RUN --device simulated:general/test/7 --animation agent.gif
  vlm-agent inspect TRACE
  vlm-agent convert --source trace --input TRACE … --output SHARDS

What could spend money is asked for first, and not done where nobody answers. That is told by words: by those on the
screen and in the name of what is in front. It is a net and no proof; watch an agent that has a card to pay with.

Exit status 0: the agent said that it is done, or that the goal is impossible."""

_DEVICE = re.compile(
    r"adb(?::(?P<serial>\S+))?"
    r"|simulated(?::(?P<subset>[a-z_]+)/(?P<split>[a-z]+)/(?P<seed>[0-9]+))?"
    r"|browser(?::(?P<site>shop|settings)(?:/(?P<number>[0-9]+))?)?"
)


def add(commands) -> None:
    parser = add_command(commands, "act", run, "have an agent do a goal on a phone", _DESCRIPTION)
    parser.add_argument("--agent", type=Path, metavar="RUN", help="a run's folder, or one of its checkpoints")
    parser.add_argument("--endpoint", metavar="URL", help="instead of --agent: http://localhost:8000/v1, say")
    parser.add_argument("--model", metavar="NAME", help="what the endpoint calls the model")
    parser.add_argument(
        "--device",
        type=_device,
        required=True,
        metavar="WHICH",
        help="adb (the only phone there is), adb:SERIAL, adb:HOST:PORT, simulated, or simulated:SUBSET/SPLIT/S, "
        "a simulated phone at the start of a task; browser, browser:shop or browser:settings, a phone in Chromium, "
        "browser:shop/S at the start of a task",
    )
    parser.add_argument("--goal", metavar="WORDS", help="what to do (of a task: its own goal)")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="where it is written (default: a new one in traces/)")
    parser.add_argument("--steps", type=count, default=30, metavar="N", help="stop after so many (default 30)")
    parser.add_argument("--confirm", action="store_true", help="ask before each action")
    parser.add_argument(
        "--apps",
        nargs="+",
        metavar="NAME",
        help="packages, or package/activity, in which it may act, beside the launcher (default: all)",
    )
    parser.add_argument("--allow-purchases", action="store_true", help="do not ask before what could spend money")
    parser.add_argument("--animation", type=file_name(".gif"), metavar="FILE", help="draw the run as a moving picture")


def run(options) -> int:
    _check(options)
    quiet_libraries()

    from vlm_agent.agents.acting import Limits, act
    from vlm_agent.agents.guard import Guard
    from vlm_agent.datasets.trace_writer import TraceWriter

    console = make_console()
    with opened_phone(options) as phone:
        agent, name = _agent(options)
        with TraceWriter(_folder(options), phone.heading(name)) as trace, Keys() as keys:
            _say(console, f"Goal: {phone.goal}\nTrace: {trace.folder}")
            _warn(console, phone, options)
            guard = Guard(keys.agrees, options.confirm, options.apps, options.allow_purchases)

            def watch(shown) -> bool:
                _say(console, _told(shown))
                return keys.wants_stop()

            ending = act(agent, phone.device, phone.goal, trace, guard, Limits(options.steps), watch)
        _say(console, _summary(ending, phone))
    if options.animation is not None:
        _animate(trace.folder, options.animation)
        _say(console, f"Drew {options.animation}")
    if ending.reason == "stopped":
        return INTERRUPTED
    return OK if ending.is_declared else FAILED


def _agent(options):
    """The agent, and what to call it."""
    if options.agent is not None:
        from vlm_agent.agents.vlm import VlmAgent

        return VlmAgent.from_run(options.agent), str(options.agent)

    from vlm_agent.agents.chat import ChatEndpoint
    from vlm_agent.agents.endpoint import EndpointAgent
    from vlm_agent.training.recipe import LanguageRecipe

    chat = ChatEndpoint(options.endpoint, options.model)
    return EndpointAgent(chat, LanguageRecipe().build()), f"{options.model} at {options.endpoint}"


def _folder(options) -> Path:
    return Path("traces", time.strftime("%Y%m%d-%H%M%S")) if options.trace is None else options.trace


def _warn(console, phone: OpenedPhone, options) -> None:
    if not options.allow_purchases and phone.device.elements() is None:
        _say(
            console,
            "This phone does not tell the texts on its screen now; while it does not, purchases are recognised by the "
            "names of its screens and by the goal only.",
        )


def _told(shown) -> str:
    from vlm_agent.screens.drawing import describe

    action = "no action" if shown.answer.action is None else describe(shown.answer.action)
    where = f"  in {shown.activity}" if shown.activity else ""
    return f"{shown.number + 1:3d}  {shown.screen}{where}\n     {shown.answer.text!r} → {_printable(action)}"


def _printable(text: str) -> str:
    """Model output is data: nothing in it may move the cursor or turn the line around."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _summary(ending, phone: OpenedPhone) -> str:
    why = f"{ending.reason}: {ending.message}" if ending.message else ending.reason
    doubt = f", {ending.in_doubt} of them in doubt" if ending.in_doubt else ""
    reached = ""
    if phone.task is not None:
        reached = ". The task is reached" if phone.task.reached(phone.device) else ". The task is not reached"
    return f"{_printable(why)} ({ending.steps} steps{doubt}, {sum(ending.seconds.values()):.1f} s){reached}"


def _animate(folder: Path, output: Path) -> None:
    from vlm_agent.datasets.traces import read_trace
    from vlm_agent.screens.animation import animate

    animate(read_trace(folder), output)


def _say(console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _check(options) -> None:
    error = options.parser.error
    if (options.agent is None) == (options.endpoint is None):
        error("give either --agent, a finished run, or --endpoint and --model")
    if (options.endpoint is None) != (options.model is None):
        error("--endpoint and --model go together")
    if options.goal is None and options.device["subset"] is None and options.device["number"] is None:
        error("--goal is missing: what the agent is to do, in words")
    if options.goal is not None and (not options.goal.strip() or not options.goal.isprintable()):
        error("--goal is to be one line of words")


def _device(text: str) -> dict[str, str | None]:
    match = _DEVICE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no device; write adb, adb:SERIAL, simulated, simulated:general/test/7, browser or "
            "browser:shop/7"
        )
    return {"kind": text.partition(":")[0], **match.groupdict()}
