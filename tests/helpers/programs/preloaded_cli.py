"""`vlm-agent` started again and again without the second that its imports take.

Reads two lines a run. The first is JSON, {"arguments": […], "renames": N or null, "before": bool}, and is answered with
the id of a fork that runs the command; the second, empty one is answered with its exit status. With `renames`, that
process kills itself before or after its N-th rename. What the commands print goes to stderr.

Nothing is synchronised to the disk, which takes most of the time of small files: what a killed process wrote, the
kernel has.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow

import vlm_agent.datasets.convert  # noqa: F401 (what takes the second)
from vlm_agent.cli import main

pyarrow.Table.from_pylist([{"pandas": "is imported at the first table"}])


def _kill_at_rename(number: int, before: bool) -> None:
    replace, left = Path.replace, [number]

    def replace_and_die(self, target):
        left[0] -= 1
        if left[0] == 0 and before:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(self, target)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Path.replace = replace_and_die


def _run(request: dict) -> None:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if request["renames"] is not None:
        _kill_at_rename(request["renames"], request["before"])
    status = main(request["arguments"])
    sys.stdout.flush()
    os._exit(status)


def _serve() -> None:
    os.fsync = lambda descriptor: None
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run(json.loads(line))
        print(pid, flush=True)
        sys.stdin.readline()
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
