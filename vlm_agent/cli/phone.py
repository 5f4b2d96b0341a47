"""`vlm-agent phone`: serves a simulated phone to adb, and therefore to any agent, or to clients of OpenEnv."""

import argparse
import threading
from contextlib import suppress

from vlm_agent.cli.parser import OK, Commands, add_command, port, refuse, size
from vlm_agent.files.console import say

_DESCRIPTION = """\
Serves the phone on this machine only, until Ctrl-C:

  vlm-agent phone --port 5600 --task general/test/7
  adb connect 127.0.0.1:5600
  adb -s 127.0.0.1:5600 exec-out screencap -p > screen.png
  adb -s 127.0.0.1:5600 shell input tap 100 200

With --task the phone starts at a task; the command prints the goal, and at the end whether it is reached.

With --openenv clients of OpenEnv connect by WebSocket, each to a phone of its own (docs/environments.md):

  vlm-agent phone --openenv --port 8000"""

_SIZE = (448, 208)


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "phone", run, "serve a simulated phone to adb or to clients of OpenEnv", _DESCRIPTION, check=_check
    )
    parser.add_argument("--port", type=port, default=5600, metavar="P", help="TCP port (default 5600; 0: any free one)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the phone (default 0)")
    parser.add_argument(
        "--task", type=_task, metavar="SUBSET/SPLIT/S", help="a task with its phone, for example general/test/7"
    )
    parser.add_argument(
        "--size", type=size, default=_SIZE, metavar="HxW", help="size of the screen in pixels (default 448x208)"
    )
    parser.add_argument("--openenv", action="store_true", help="serve tasks by OpenEnv's protocol instead of ADB")
    parser.add_argument("--language", default="named", metavar="NAME", help="the action language of --openenv (named)")
    parser.add_argument(
        "--allow-test", action="store_true", help="let clients of --openenv evaluate on tasks of split test"
    )


def _check(options: argparse.Namespace) -> None:
    if options.openenv:
        refuse(options, ["seed", "task", "size"], "has no effect with --openenv; a client's reset names the task")
    else:
        refuse(options, ["language", "allow_test"], "needs --openenv")
    if options.task is not None:
        refuse(options, ["seed"], f"is part of --task: {'/'.join(map(str, options.task))} has seed {options.task[2]}")


def run(options: argparse.Namespace) -> int:
    return _serve_openenv(options) if options.openenv else _serve_adb(options)


def _serve_openenv(options: argparse.Namespace) -> int:
    from vlm_agent.environments.openenv import served

    with served(options.port, options.language, options.allow_test) as address, suppress(KeyboardInterrupt):
        say(f"OpenEnv at {address}")
        threading.Event().wait()
    return OK


def _serve_adb(options: argparse.Namespace) -> int:
    from vlm_agent.simulator import SimulatedPhone, sample_task
    from vlm_agent.simulator.adb_daemon import Handset, PhoneServer

    task = None if options.task is None else sample_task(*options.task)
    phone = SimulatedPhone(options.seed if task is None else task.seed, options.size)
    if task is not None:
        task.set_up(phone)
    with PhoneServer(Handset(phone), options.port) as server, suppress(KeyboardInterrupt):
        say(f"adb connect {server.serial}")  # from here on Ctrl-C is the normal end
        if task is not None:
            say(f"goal: {task.goal}")
        threading.Event().wait()
    say()  # ends the line in which the terminal shows ^C
    if task is not None:
        say("reached" if task.reached(phone) else "not reached")
    return OK


def _task(text: str) -> tuple[str, str, int]:
    from vlm_agent.simulator.opening import SimulatedTask

    if (task := SimulatedTask.at(text)) is None:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a task; write SUBSET/SPLIT/SEED, as in general/test/7")
    return task.subset, task.split, task.seed
