"""Runs recipes and scripts on several CPU ranks, as torchrun starts them but without torchrun and the imports' time."""

import socket
import time
from pathlib import Path

from helpers.training import forks

SECONDS = 200
"""The limit of one script; ranks that wait for a dead one would wait for hours."""
AFTER_FAILURE = 20

_TRAIN = """
import sys
from vlm_agent.cli import main
sys.exit(main(["train", "--config", sys.argv[1]]))
"""


def run(ranks: int, *recipes: Path) -> None:
    """Trains each, one after the other. Fails with what the ranks printed, where one fails."""
    for recipe in recipes:
        script = recipe.with_suffix(".py")
        script.write_text(_TRAIN)
        statuses, printed = launch(ranks, script, recipe)
        assert statuses == [0] * ranks, printed


def launch(ranks: int, script: Path, *arguments: object) -> tuple[list[int], str]:
    """The exit status of `script` on each rank, and what all of them printed.

    Some time after a rank has failed the others are killed.
    """
    logs = [script.with_suffix(f".rank-{rank}.log") for rank in range(ranks)]
    common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _port()}
    started = [
        forks.start(script, *arguments, output=log, RANK=rank, LOCAL_RANK=rank, **common)
        for rank, log in enumerate(logs)
    ]
    deadline = time.monotonic() + SECONDS
    while any(fork.poll() is None for fork in started) and time.monotonic() < deadline:
        if any(fork.poll() for fork in started):
            deadline = min(deadline, time.monotonic() + AFTER_FAILURE)
        time.sleep(0.02)
    for fork in started:
        fork.kill()
    return [fork.wait() for fork in started], "\n".join(f"{log}:\n{log.read_text()[-3000:]}" for log in logs)


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
