"""Latency of a step over ADB: `python -m benchmarks.adb_phone` (with Debian's adb or that of adbutils).

Simulated phones of 448x208, 1440x720 and 2400x1080 pixels behind an ADB server: with AdbPhone, with the program `adb`,
with adb-shell (TCP, without a server of adb), and without ADB, where the parts of a screenshot are apart: drawing, PNG,
and the PNG that Pillow would write. Every screenshot is drawn anew. Phone, clients and adb's server share one core; the
server is a separate one, stopped at the end. The median time depends on other work on that core, the processor time
hardly does: 1000 divided by it is the rate of one free core.
"""

import io
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import numpy as np
import psutil
from adb_shell.adb_device import AdbDeviceTcp
from helpers.phones.adb_servers import PROGRAMS, AdbServer
from PIL import Image

from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.episodes import Action
from vlm_agent.files.png import encode_png
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.shell.tools import screen as screencap

TIMES = 50
SIZES = ((448, 208), (1440, 720), (2400, 1080))


class Cost(NamedTuple):
    """Milliseconds of a call: the median time, and the mean processor time of phone, client and adb's server."""

    wall: float
    processor: float


class Meter:
    """Measures calls. `server`: the process of adb's server."""

    def __init__(self, server: int) -> None:
        self._server = psutil.Process(server)

    def __call__(self, work: Callable[[], object]) -> Cost:
        seconds, before = [], self._processor_seconds()
        for _ in range(TIMES):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        return Cost(1000 * statistics.median(seconds), 1000 * (self._processor_seconds() - before) / TIMES)

    def _processor_seconds(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        server = self._server.cpu_times()
        return sum(one.ru_utime + one.ru_stime for one in used) + server.user + server.system


def draw(phone: SimulatedPhone) -> np.ndarray:
    phone.changed()
    return phone.screenshot()


def pillow_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def with_pillow(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with patch.object(screencap, "encode_png", pillow_png):
            work()

    return run


def measure(server: AdbServer, size: tuple[int, int]) -> dict[str, Cost]:
    cost = Meter(server.process_id)
    tap, text = Action.tap(0.5, 0.02), Action.type_text("日本 😀")
    screencap, touch = ("exec-out", "screencap", "-p"), ("shell", "input tap 4 200")
    handset = Handset(SimulatedPhone(7, size))
    screen = handset.phone
    pixels = screen.screenshot()
    with PhoneServer(handset) as served, AdbPhone(served.serial, settle_interval=0.0) as phone:

        def adb(*words: str) -> None:
            screen.changed()
            server.run("-s", served.serial, *words)

        def captured() -> None:
            screen.changed()
            phone._display.capture()

        direct = AdbDeviceTcp("127.0.0.1", served.port, default_transport_timeout_s=9)
        direct.connect()

        def by_adb_shell(line: str) -> None:
            screen.changed()
            direct.exec_out(line, decode=False)

        results = {
            "phone itself: drawing": cost(lambda: draw(screen)),
            "phone itself: PNG": cost(lambda: encode_png(pixels)),
            "PNG by Pillow, for comparison": cost(lambda: pillow_png(pixels)),
            "phone itself: tap": cost(lambda: screen.perform(tap)),
            "AdbPhone: one screencap": cost(captured),
            "AdbPhone: settled screenshot": cost(phone.screenshot),
            "AdbPhone: tap": cost(lambda: phone.perform(tap)),
            "AdbPhone: Unicode text": cost(lambda: phone.perform(text)),
            "adb: exec-out screencap -p": cost(lambda: adb(*screencap)),
            "adb: the same with Pillow's PNG": cost(with_pillow(lambda: adb(*screencap))),
            "adb: shell input tap": cost(lambda: adb(*touch)),
            "adb-shell: screencap -p": cost(lambda: by_adb_shell("screencap -p")),
            "adb-shell: input tap": cost(lambda: by_adb_shell("input tap 4 200")),
        }
        direct.close()
        return results


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for label, program in PROGRAMS.items():
        if program is None:
            continue
        with tempfile.TemporaryDirectory() as home, AdbServer(program, Path(home)) as server:
            os.environ.update(server.environment)
            for size in SIZES:
                print(f"\nadb of {label}, {size[0]}x{size[1]}, {TIMES} calls each\n  median ms   processor ms")
                for name, cost in measure(server, size).items():
                    print(f"{cost.wall:11.1f}{cost.processor:15.1f}   {name}")


if __name__ == "__main__":
    main()
