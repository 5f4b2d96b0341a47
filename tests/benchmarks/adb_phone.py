"""Latency of a step over ADB: `python tests/benchmarks/adb_phone.py` (with Debian's adb or that of adbutils).

Medians in milliseconds for simulated phones of 448x208 and 1440x720 pixels behind an ADB server: with AdbPhone, with
the program `adb`, and without ADB for comparison. The adb server is a separate one, stopped at the end.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.adb_servers import PROGRAMS, AdbServer

from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.adb_daemon import Handset, PhoneServer
from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.episodes import Action

TIMES = 50
SIZES = ((448, 208), (1440, 720))


def milliseconds(work: Callable[[], object]) -> float:
    """The median duration of one call."""
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measure(server: AdbServer, size: tuple[int, int]) -> dict[str, float]:
    tap, text = Action.tap(0.5, 0.02), Action.type_text("日本 😀")
    handset = Handset(SimulatedPhone(7, size))
    with PhoneServer(handset) as served, AdbPhone(served.serial, settle_interval=0.0) as phone:
        adb = ("-s", served.serial)
        return {
            "phone itself: screenshot": milliseconds(handset.phone.screenshot),
            "phone itself: tap": milliseconds(lambda: handset.phone.perform(tap)),
            "AdbPhone: one screencap": milliseconds(phone._captured),
            "AdbPhone: settled screenshot": milliseconds(phone.screenshot),
            "AdbPhone: tap": milliseconds(lambda: phone.perform(tap)),
            "AdbPhone: Unicode text": milliseconds(lambda: phone.perform(text)),
            "adb: exec-out screencap -p": milliseconds(lambda: server.run(*adb, "exec-out", "screencap", "-p")),
            "adb: shell input tap": milliseconds(lambda: server.run(*adb, "shell", "input tap 4 200")),
        }


def main() -> None:
    for name, program in PROGRAMS.items():
        if program is None:
            continue
        with tempfile.TemporaryDirectory() as home, AdbServer(program, Path(home)) as server:
            os.environ.update(server.environment)
            for size in SIZES:
                print(f"\nadb of {name}, {size[0]}x{size[1]}, medians of {TIMES} in ms")
                for name, median in measure(server, size).items():
                    print(f"{median:8.1f}  {name}")


if __name__ == "__main__":
    main()
