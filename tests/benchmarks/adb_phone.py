"""Latency of a step over ADB: `python tests/benchmarks/adb_phone.py` (with Debian's adb or that of adbutils).

Medians in milliseconds for simulated phones of 448x208, 1440x720 and 2400x1080 pixels behind an ADB server: with
AdbPhone, with the program `adb`, with adb-shell (TCP, without a server of adb), and without ADB, where the parts of a
screenshot are apart: drawing, PNG, and the PNG that Pillow would write. Every screenshot is drawn anew. Phone, clients
and adb's server share one core; the server is a separate one, stopped at the end.
"""

import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from adb_shell.adb_device import AdbDeviceTcp
from helpers.adb_servers import PROGRAMS, AdbServer
from PIL import Image

from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.adb_daemon import Handset, PhoneServer
from vlm_agent.devices.adb_daemon.shell import commands
from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.episodes import Action
from vlm_agent.png import encode_png

TIMES = 50
SIZES = ((448, 208), (1440, 720), (2400, 1080))


def milliseconds(work: Callable[[], object]) -> float:
    """The median duration of one call."""
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def draw(phone: SimulatedPhone) -> np.ndarray:
    phone.changed()
    return phone.screenshot()


def pillow_png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def milliseconds_with_pillow(work: Callable[[], object]) -> float:
    with patch.object(commands, "encode_png", pillow_png):
        return milliseconds(work)


def measure(server: AdbServer, size: tuple[int, int]) -> dict[str, float]:
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
            phone._capture()

        direct = AdbDeviceTcp("127.0.0.1", served.port, default_transport_timeout_s=9)
        direct.connect()

        def by_adb_shell(line: str) -> None:
            screen.changed()
            direct.exec_out(line, decode=False)

        results = {
            "phone itself: drawing": milliseconds(lambda: draw(screen)),
            "phone itself: PNG": milliseconds(lambda: encode_png(pixels)),
            "PNG by Pillow, for comparison": milliseconds(lambda: pillow_png(pixels)),
            "phone itself: tap": milliseconds(lambda: screen.perform(tap)),
            "AdbPhone: one screencap": milliseconds(captured),
            "AdbPhone: settled screenshot": milliseconds(phone.screenshot),
            "AdbPhone: tap": milliseconds(lambda: phone.perform(tap)),
            "AdbPhone: Unicode text": milliseconds(lambda: phone.perform(text)),
            "adb: exec-out screencap -p": milliseconds(lambda: adb(*screencap)),
            "adb: the same with Pillow's PNG": milliseconds_with_pillow(lambda: adb(*screencap)),
            "adb: shell input tap": milliseconds(lambda: adb(*touch)),
            "adb-shell: screencap -p": milliseconds(lambda: by_adb_shell("screencap -p")),
            "adb-shell: input tap": milliseconds(lambda: by_adb_shell("input tap 4 200")),
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
                print(f"\nadb of {label}, {size[0]}x{size[1]}, medians of {TIMES} in ms")
                for name, median in measure(server, size).items():
                    print(f"{median:8.1f}  {name}")


if __name__ == "__main__":
    main()
