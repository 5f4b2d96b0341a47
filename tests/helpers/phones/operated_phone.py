"""A served phone as a program of others sees it: commands by `adb`, and what the screen shows afterwards."""

import io
import subprocess
from dataclasses import dataclass

import numpy as np
from helpers.phones.adb_servers import AdbServer
from PIL import Image

from vlm_agent.simulator.adb_daemon import Handset, PhoneServer


@dataclass
class OperatedPhone:
    """A served phone with the adb that operates it."""

    adb: AdbServer
    server: PhoneServer

    @property
    def handset(self) -> Handset:
        return self.server.handset

    @property
    def front(self) -> str:
        return self.handset.phone.front

    def run(self, *words: str) -> subprocess.CompletedProcess:
        return self.adb.run("-s", self.server.serial, *words, check=False)

    def shell(self, *words: str) -> str:
        """The standard output of a command that must succeed."""
        done = self.run("shell", *words)
        assert (done.returncode, done.stderr) == (0, b""), words
        return done.stdout.decode()

    def refusal(self, *words: str) -> str:
        """The error of a command that must fail and change nothing on the screen."""
        before = self.handset.phone.screenshot()
        done = self.run("shell", *words)
        assert done.returncode != 0, words
        np.testing.assert_array_equal(self.handset.phone.screenshot(), before)
        return done.stderr.decode()

    def screen(self) -> np.ndarray:
        return np.array(Image.open(io.BytesIO(self.run("exec-out", "screencap", "-p").stdout)).convert("RGB"))

    def place(self, text: str) -> tuple[str, str]:
        """(x, y) in pixels of the element with this text."""
        y, x, height, width = next(one.box for one in self.handset.phone.elements() if one.text == text)
        rows, columns = self.handset.phone.size
        return str(int((x + width / 2) * columns)), str(int((y + height / 2) * rows))

    def edit_store_query(self, content: str = "") -> None:
        """Taps the search field of the store, in which `content` is typed already."""
        self.shell("monkey", "-p", "org.store", "1")
        self.shell("input", "tap", *self.place("Search apps"))
        if content:
            self.shell("input", "text", content)

    @property
    def typed(self) -> str:
        """What the search field of the store shows."""
        field = self.handset.phone.app("Store").fields.get("query", "")
        shown = field.strip()
        assert not shown or any(shown == one.text for one in self.handset.phone.elements())
        return field
