"""Runs recipes on several CPU ranks each, one after the other, in forks of a process that has made the imports.

    python tests/helpers/forked_ranks.py RANKS RECIPE …

Each rank is what torchrun would start, without torchrun and without the ten seconds that the imports take. What a rank
prints goes to RECIPE.rank-N.log. The exit status is the number of recipes that failed on any rank.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 200
"""Of one recipe; ranks that wait for a dead one would wait for hours."""


def run(ranks: int, *recipes: Path) -> None:
    """Fails with what the ranks printed, where one fails."""
    command = [sys.executable, __file__, str(ranks), *map(str, recipes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS * (1 + len(recipes)))
    logs = [log_of(recipe, rank) for recipe in recipes for rank in range(ranks)]
    printed = [f"{log}:\n{log.read_text()[-3000:]}" for log in logs if log.exists()]
    assert done.returncode == 0, "\n".join([done.stderr[-3000:], *printed])


def log_of(recipe: Path, rank: int) -> Path:
    return recipe.with_suffix(f".rank-{rank}.log")


def _fork(recipe: Path, rank: int, ranks: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        descriptor = os.open(log_of(recipe, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        os.environ.update({name: str(value) for name, value in names.items()})
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        from vlm_agent.cli import main

        status = main(["train", "--config", str(recipe)])
    except BaseException:  # noqa: BLE001 (a fork may not return into its parent's code)
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _ranks(recipe: Path, ranks: int) -> bool:
    """Whether all ranks ended well. Once one has failed the others are killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    left = {_fork(recipe, rank, ranks, port) for rank in range(ranks)}
    deadline, good = time.monotonic() + SECONDS, True
    while left:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            left.discard(pid)
            good = good and status == 0
        if left and (not good or time.monotonic() > deadline):
            good = False
            for other in left:
                os.kill(other, signal.SIGKILL)
        time.sleep(0.02)
    return good


if __name__ == "__main__":
    import vlm_agent.models  # noqa: I001 (makes torchvision importable)
    import deepspeed  # noqa: F401
    import peft  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl  # noqa: F401

    import vlm_agent.training.train  # noqa: F401

    count = int(sys.argv[1])
    sys.exit(sum(not _ranks(Path(recipe), count) for recipe in sys.argv[2:]))
