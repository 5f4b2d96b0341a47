"""A real browser for tests: Debian's Chromium, headless, controlled over its DevTools pipe.

The pipe needs neither a port nor a driver nor a websocket: JSON, a zero byte behind each message.
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path

EXECUTABLE = shutil.which("chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_ABOVE = 10
"""The browser's pipe ends become descriptors 3 and 4, so these must be free before."""


class Browser:
    """One page; a context manager. `log`: its console output. `requests`: every URL that it requested."""

    def __init__(self, profile: Path, size: tuple[int, int] = (1200, 900), patience: float = 60.0):
        self._profile, self._size, self._patience = profile, size, patience
        self._ids = itertools.count(1)
        self._session = None
        self._events: list[dict] = []
        self._buffer = b""

    def __enter__(self) -> "Browser":
        to_read, self._write = _pipe()
        self._read, to_write = _pipe()
        width, height = self._size
        command = [EXECUTABLE, *_FLAGS, f"--user-data-dir={self._profile}", f"--window-size={width},{height}"]
        silence = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in ((to_read, 3), (to_write, 4))]
        actions += [(os.POSIX_SPAWN_DUP2, silence, number) for number in (0, 1, 2)]
        self._process = os.posix_spawn(EXECUTABLE, command, os.environ, file_actions=actions, setpgroup=0)
        for end in (to_read, to_write, silence):
            os.close(end)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *error) -> None:
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    @property
    def log(self) -> list[str]:
        """All console output, including uncaught exceptions and blocked requests."""
        return [
            json.dumps(event["params"])
            for event in self._events
            if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        ]

    @property
    def requests(self) -> list[str]:
        sent = (event for event in self._events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def open(self, url: str) -> None:
        """Returns when the page is completely loaded."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        self._until(lambda event: event.get("method") == "Page.loadEventFired")

    def run(self, script: str):
        """The value of a JavaScript expression, after awaiting a promise; AssertionError if it throws."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Waits until the expression is true; AssertionError after a time limit."""
        end = time.monotonic() + self._patience
        while not self.run(script):
            assert time.monotonic() < end, f"{script} never came true"
            time.sleep(0.05)

    def without_scripts(self) -> None:
        """Takes effect with the next page."""
        self.call("Emulation.setScriptExecutionDisabled", value=True)

    def picture(self, path: Path) -> None:
        """The window as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **params) -> dict:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        _write_all(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda message: message.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, wanted) -> dict:
        end = time.monotonic() + self._patience
        while True:
            message = self._next(end)
            if "method" in message:
                self._events.append(message)
            if wanted(message):
                return message

    def _next(self, end: float) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in ends)
    for end in ends:
        os.close(end)
    return moved


def _write_all(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]
