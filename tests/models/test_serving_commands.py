"""A command that serves a model runs for as long as a block, on a port of its own."""

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from vlm_agent.models.serving import ServingError, is_ready, served_by

SERVER = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[2], "w").write(str(child.pid))
HTTPServer(("127.0.0.1", int(sys.argv[1].removeprefix("--port="))), Healthy).serve_forever()
"""


def command(tmp_path) -> str:
    script = tmp_path / "a server.py"
    script.write_text(SERVER)
    return shlex.join([sys.executable, str(script), "--port={port}", str(tmp_path / "child")])


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def has_ended(process: int) -> bool:
    end = time.monotonic() + 10
    while is_running(process) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(process)


def test_it_answers_during_the_block_and_ends_with_it_and_its_children(tmp_path):
    with served_by(command(tmp_path), tmp_path / "log") as url:
        assert is_ready(url)
        child = int((tmp_path / "child").read_text())
        assert is_running(child)
    assert not is_ready(url)
    assert has_ended(child)


def test_the_children_of_one_that_ended_by_itself_end_too(tmp_path):
    words = shlex.join(["sh", "-c", f"sleep 60 & echo $! > {tmp_path / 'child'}; exit 3", "{port}"])
    with pytest.raises(ServingError), served_by(words, tmp_path / "log"):
        pass
    assert has_ended(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize(
    ("words", "reason"),
    [("no-such-program --port {port}", "No such file"), (f"{sys.executable} -c exit('no_GPU')", "no_GPU")],
)
def test_one_that_does_not_start_is_an_error_with_its_last_line(tmp_path, words, reason):
    with pytest.raises(ServingError, match=reason) as error, served_by(words, tmp_path / "log"):
        pass
    assert f"`{words}` did not start" in str(error.value)
