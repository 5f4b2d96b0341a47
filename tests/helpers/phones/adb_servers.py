"""An adb server for tests, separate from any other on the machine: its own port, keys and process.

Debian's adb (`apt-get install adb`) and the one inside adbutils; continuous integration has both and refuses to skip.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from importlib import resources
from pathlib import Path

PROGRAMS = {"debian": shutil.which("adb"), "adbutils": str(resources.files("adbutils.binaries") / "adb")}
MISSING = "adb is not installed: apt-get install adb"

PATIENCE = 30.0


class AdbServer:
    """A context manager. `home`: an empty folder. `environment`: what clients need to use this server."""

    def __init__(self, program: str, home: Path):
        self.program, self.home = program, home
        self.port = free_port()
        self.environment = {
            "ADBUTILS_ADB_PATH": program,
            "ANDROID_ADB_SERVER_PORT": str(self.port),
            "HOME": str(home),
            "PATH": os.environ["PATH"],
        }

    def __enter__(self) -> "AdbServer":
        with (self.home / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self.program, "nodaemon", "server"], env=self.environment, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE
        while not _listens(self.port):
            assert time.monotonic() < end, (self.home / "server.log").read_text(errors="replace")
            time.sleep(0.02)
        return self

    def __exit__(self, *error) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        """Runs the program `adb` as a client; stdout and stderr are bytes."""
        command = [self.program, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=PATIENCE, check=check)


def free_port() -> int:
    """A free ephemeral port, outside of the range that adb scans for emulators."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
