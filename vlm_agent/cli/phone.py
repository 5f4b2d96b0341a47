"""`vlm-agent phone`: a simulated phone that adb, and so any agent, can operate."""

import argparse
import re
import threading
from contextlib import suppress

from vlm_agent.cli.parser import OK, add_command, size

_DESCRIPTION = """\
Serves it on this machine only, until Ctrl-C:

  vlm-agent phone --port 5600 --task general/test/7
  adb connect 127.0.0.1:5600
  adb -s 127.0.0.1:5600 exec-out screencap -p > screen.png
  adb -s 127.0.0.1:5600 shell input tap 100 200

With --task it stands where the task begins; its goal is told here, and at the end whether it was reached."""

_SIZE = (448, 208)


def add(commands) -> None:
    parser = add_command(commands, "phone", run, "serve a simulated phone that adb can operate", _DESCRIPTION)
    parser.add_argument("--port", type=_port, default=5600, metavar="P", help="where (default 5600; 0: any free one)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which phone (default 0)")
    parser.add_argument(
        "--task", type=_task, metavar="SUBSET/SPLIT/S", help="a task to do, and with it the phone: general/test/7"
    )
    parser.add_argument(
        "--size", type=size, default=_SIZE, metavar="HxW", help="of the screen in pixels (default 448x208)"
    )


def run(options) -> int:
    from vlm_agent.devices.adb_daemon import Handset, PhoneServer
    from vlm_agent.devices.simulated_phone import SimulatedPhone, sample_task

    task = None if options.task is None else sample_task(*options.task)
    phone = SimulatedPhone(options.seed if task is None else task.seed, options.size)
    if task is not None:
        task.set_up(phone)
    with PhoneServer(Handset(phone), options.port) as server, suppress(KeyboardInterrupt):
        print(f"adb connect {server.serial}", flush=True)  # from here on whoever reads it may press Ctrl-C
        if task is not None:
            print(f"goal: {task.goal}", flush=True)
        threading.Event().wait()
    print()  # behind the terminal's ^C
    if task is not None:
        print("reached" if task.reached(phone) else "not reached")
    return OK


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; those are 1 to 65535, and 0 for any free one")
    return int(text)


def _task(text: str) -> tuple[str, str, int]:
    match = re.fullmatch(r"([a-z_]+)/([a-z]+)/([0-9]+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a task; write subset, split and number: general/test/7")
    return match[1], match[2], int(match[3])
