"""A trained text model behind `transformers serve`, or a command that serves a model, for as long as a block runs."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vlm_agent.errors import UserError
from vlm_agent.files.installation import install_line
from vlm_agent.models.run_layout import MODEL_FOLDER

START_SECONDS = 300
"""Time for the server to import its libraries and to load the model."""

START_SECONDS_OF_A_COMMAND = 3600
"""The same for a command, whose model may have to be read from a slow disk, compiled and captured."""

PORT = "{port}"
"""The place of the port in a command that serves."""

# torchvision's wheel for CUDA cannot be imported beside PyTorch for CPUs without the operators that vlm_agent
# declares. The log has the time at which each request was received and answered, which the server does not report.
# Standard input ends with the process that serves, also where that one is killed: a server alone would keep its GPU.
_TRANSFORMERS = """\
import os
import threading

threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()

import vlm_agent
from transformers.cli.transformers import main
from transformers.utils import logging
from uvicorn.config import LOGGING_CONFIG

logging.enable_explicit_format()
access = LOGGING_CONFIG["formatters"]["access"]
access["fmt"] = "%(asctime)s " + access["fmt"]
main()
"""


class ServingError(UserError):
    """The server does not start; the message names its log."""


@contextmanager
def served_model(run: Path, log: Path) -> Iterator[tuple[str, str]]:
    """Serves the model of a finished run; yields (base URL, name of the model on the server).

    The extra `serving` is needed. Output of the server is appended to `log`, with the times of requests and responses.
    The server ends with the block, or with this process. Raises ServingError if it does not answer within
    `START_SECONDS`.
    """
    model = str(run / MODEL_FOLDER)
    command = [sys.executable, "-c", _TRANSFORMERS, "serve", model, "--host", "127.0.0.1", "--port", PORT]
    failure = f"`transformers serve` did not start; it is part of the extra serving: {install_line('serving')}"
    with _running(command, log, START_SECONDS, failure, HF_HUB_OFFLINE="1") as url:
        yield url, model


@contextmanager
def served_by(command: str, log: Path) -> Iterator[str]:
    """Runs a command that serves on a port of this machine, in place of {port}; yields the base URL.

    The command is split like a shell's words, and no shell reads it. Its output is appended to `log`. At the end of the
    block it gets SIGTERM, with the processes that it started. Raises ServingError if its /health does not answer within
    `START_SECONDS_OF_A_COMMAND`.
    """
    failure = f"`{command}` did not start; try it alone"
    with _running(shlex.split(command), log, START_SECONDS_OF_A_COMMAND, failure) as url:
        yield url


@contextmanager
def _running(command: Sequence[str], log: Path, seconds: float, failure: str, **environment: str) -> Iterator[str]:
    port = str(free_port())
    words = [word.replace(PORT, port) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        try:
            process = subprocess.Popen(  # noqa: S603 (the user's own command, no shell)
                words,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=os.environ | environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ServingError(f"{failure} ({error})") from None
    try:
        url = f"http://127.0.0.1:{port}/v1"
        end = time.monotonic() + seconds
        while process.poll() is not None or not is_ready(url):
            if process.poll() is not None or time.monotonic() > end:
                last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                raise ServingError(f"{failure} ({' '.join(last)}); its output is in {log}")
            time.sleep(0.5)
        yield url
    finally:
        with suppress(ProcessLookupError):  # the group may outlive its first process
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def is_ready(url: str) -> bool:
    """Whether the server of a base URL on this machine (…/v1) answers. A proxy of the environment is not for
    loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.removesuffix('/v1')}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
