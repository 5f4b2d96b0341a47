"""`transformers serve`: starts the server on loopback and asks whether it is ready."""

import os
import socket
import subprocess
import sys
import time

from vlm_agent.cli.doctor.check import BrokenError, Check, require_package
from vlm_agent.files.installation import install_line
from vlm_agent.models.serving import is_ready

# torchvision's wheel for CUDA cannot be imported beside PyTorch for CPUs without the operators that this declares.
_SERVER = "import vlm_agent.models; from transformers.cli.transformers import main; main()"
_RETRY_SECONDS = 0.2


def _serving() -> str:
    from importlib.metadata import version

    for package in ("transformers", "fastapi", "uvicorn"):
        require_package(package)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-c", _SERVER, "serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(command, env=os.environ | {"HF_HUB_OFFLINE": "1"})  # noqa: S603 (our own interpreter)
    try:
        while not is_ready(f"http://127.0.0.1:{port}/health"):
            if server.poll() is not None:
                raise BrokenError(f"`transformers serve` ends with status {server.returncode}")
            time.sleep(_RETRY_SECONDS)
    finally:
        server.kill()
        server.wait()
    return f"transformers {version('transformers')} with FastAPI {version('fastapi')}"


SERVING = Check(
    _serving,
    "starts `transformers serve` on loopback until it is ready",
    ("`transformers serve RUN/model` for evaluate, act and annotate with --endpoint",),
    install_line("serving"),
)
