"""Scripts in forks of one process that has made the imports of training, which take a core seven seconds each time.

`start` runs a script as `python SCRIPT ARGUMENTS` would, in a session of its own. The process that is forked starts at
the first use and ends with the tests. As a server, this file reads a line of JSON a fork or a look at one from its
standard input, {"script": …} or {"poll": id}, and answers with the id of the fork or with its exit status.
"""

import atexit
import functools
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass
class Fork:
    pid: int
    status: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self.status is None:
            self.status = _ask(poll=self.pid)
        return self.status

    def wait(self, seconds: float = 200) -> int:
        """The exit status. Kills the fork and raises TimeoutError after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"the script still ran after {seconds} s")
            time.sleep(0.02)
        return self.status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def start(script: Path, *arguments: object, output: Path, **environment: object) -> Fork:
    """Runs `script` in its own folder; `output` is what it prints, to stdout and stderr."""
    changes = {name: str(value) for name, value in environment.items()}
    words = [str(script), *map(str, arguments)]
    return Fork(_ask(script=words, output=str(output), environment=dict(os.environ) | changes))


def _ask(**request: object) -> int | None:
    server = _server()
    print(json.dumps(request), file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, __file__], text=True, **pipes)
    atexit.register(server.wait)
    atexit.register(server.terminate)  # the end of its input may not: forks of this process hold the pipe, too
    return server


def _serve(answers: TextIO) -> int:
    """The exit status of this process, which after `os.fork` is a script's."""
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), file=answers, flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            return _run(request)
        print(pid, file=answers, flush=True)
    return 0


def _run(request: dict) -> int:
    os.setsid()
    written = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["script"]
    script = Path(sys.argv[0])
    os.chdir(script.parent)
    sys.path[0] = str(script.parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        return error.code or 0 if isinstance(error.code, int | None) else 1
    except BaseException:  # noqa: BLE001 (the interpreter ends here, as it does for a script)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some of the imports print
    tests = Path(__file__).parents[2]
    sys.path[1:1] = [str(tests.parent), str(tests)]

    import vlm_agent  # noqa: I001 (makes torchvision importable)
    import deepspeed  # noqa: F401
    import torch
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl  # noqa: F401

    import vlm_agent.training.train  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # collections in forks would copy the pages of everything imported
    sys.exit(_serve(answers))
