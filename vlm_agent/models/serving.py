"""A trained text model behind `transformers serve`, on loopback, for as long as a block runs."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlm_agent.errors import UserError
from vlm_agent.files.installation import install_line
from vlm_agent.models.run_layout import MODEL_FOLDER

START_SECONDS = 300
"""Time for the server to import its libraries and to load the model."""

# torchvision's wheel for CUDA cannot be imported beside PyTorch for CPUs without the operators that vlm_agent.models
# declares. The log has the time at which each request was received and answered, which the server does not report.
# Standard input ends with the process that serves, also where that one is killed: a server alone would keep its GPU.
_TRANSFORMERS = """\
import os
import threading

threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()

import vlm_agent.models
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
def served_model(run: Path, log: Path, port: int | None = None) -> Iterator[tuple[str, str]]:
    """Serves the model of a finished run; yields (base URL, name of the model on the server).

    The extra `serving` is needed. Output of the server is appended to `log`, with the times of requests and responses.
    The server ends with the block, or with this process. Raises ServingError if it does not answer within
    `START_SECONDS`.
    """
    port, model = free_port() if port is None else port, str(run / MODEL_FOLDER)
    command = [sys.executable, "-c", _TRANSFORMERS, "serve", model, "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 (fixed arguments, no shell)
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1", model
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.stdin is not None:
            process.stdin.close()


def is_ready(url: str) -> bool:
    """Whether a server on this machine answers. A proxy of the environment is not for loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        if is_ready(url):
            return
        time.sleep(0.5)
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    raise ServingError(
        f"`transformers serve` did not start ({' '.join(last)}); its output is in {log}; it is part of the extra "
        f"serving: {install_line('serving')}"
    )
