"""Runs a script on two ranks, gloo on this machine, without a launcher's own time and that of the imports."""

import time
from pathlib import Path

from helpers.training import forks

_START = """
import os, signal, sys
from pathlib import Path
import torch
from vlm_agent.training.loop import ranks
torch.set_num_threads(1)
folder, rank = Path(sys.argv[1]), int(sys.argv[2])
meeting = f"file://{folder}/meeting"
torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)


def gloo_threads():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


names_of_start = {*globals(), "names_of_start"}
"""

# A DDP model that is still referred to keeps the group and its threads: the rank could hang at its exit.
_END = """
for name in globals().keys() - names_of_start:
    del globals()[name]
ranks.leave()
assert not gloo_threads(), "threads of gloo outlive the process group"
"""

_ENVIRONMENT = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "OMP_NUM_THREADS": "1"}


def run(folder: Path, script: str) -> list[str]:
    """What `script` prints on each rank, a process group of its own; it knows `rank`, `ranks` and `folder`.

    Its own names are deleted before the ranks leave the process group, whose threads must end then. Fails the test when
    a rank fails; the other, which may be waiting for it, is ended.
    """
    (folder / "script.py").write_text(_START + script + _END)
    started = [_begin(folder, rank) for rank in range(2)]
    try:
        deadline = time.monotonic() + 200
        while any(process.poll() is None for process in started) and time.monotonic() < deadline:
            if any(process.poll() for process in started):
                break
            time.sleep(0.05)
    finally:
        statuses = [process.poll() for process in started]
        for process in started:
            process.kill()
            process.wait()
    assert statuses == [0, 0], [_printed(folder, rank) for rank in range(2)]
    return [_printed(folder, rank) for rank in range(2)]


def _begin(folder: Path, rank: int) -> forks.Fork:
    environment = _ENVIRONMENT | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    return forks.start(folder / "script.py", folder, rank, output=folder / f"printed-{rank}", **environment)


def _printed(folder: Path, rank: int) -> str:
    return (folder / f"printed-{rank}").read_text()
