"""Python in forks of one process that has made the imports of training, which take a core seven seconds each time.

`start` runs a script as `python SCRIPT ARGUMENTS` would, in a session of its own. `python` is an executable for whoever
takes it for Python. The process that is forked starts at the first use and ends with the tests.

As a server, this file accepts clients at the socket that is its argument. A client sends a request and descriptors: its
input, output and errors, and its namespaces, which are others on a node of a Slurm cluster. It receives the id of the
fork and, later, its exit status; what it sends then are signals for the fork. The fork of a killed client is killed.
"""

import atexit
import ctypes
import functools
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CLIENT = """\
#!{real} -IS
import json, os, signal, socket, sys


def forward(number, frame):
    try:
        connection.send(bytes([number]))
    except OSError:  # the fork has ended
        pass


numbers = signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}}
ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
for number in numbers:
    signal.signal(number, forward)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({at!r})
request = dict(words=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ), ignored=ignored, python=__file__)
namespaces = [os.open("/proc/self/ns/" + name, os.O_RDONLY) for name in ("uts", "mnt")]
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, *namespaces])
signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
connection.recv(9)
status = int(connection.recv(9))
if status < 0:
    if -status in numbers:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@dataclass
class Fork:
    pid: int
    connection: socket.socket
    status: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self.status is None and select.select([self.connection], [], [], 0)[0]:
            with self.connection:
                self.status = int(self.connection.recv(9))
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
    request = {"words": [str(script), *map(str, arguments)], "folder": str(script.parent), "ignored": []}
    request |= {"environment": dict(os.environ) | changes, "python": sys.executable}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(_folder() / "socket"))
    with Path(os.devnull).open("rb") as nothing, output.open("wb") as printed:
        files = [nothing.fileno(), printed.fileno(), printed.fileno()]
        socket.send_fds(connection, [json.dumps(request).encode()], files)
        return Fork(int(connection.recv(9)), connection)


def python() -> str:
    """The executable, which is also `sys.executable` of what it runs: a script, -m or -c."""
    return str(_folder() / "python")


@functools.cache
def _folder() -> Path:
    """Starts the server, and returns the folder of its socket and of the executable."""
    folder = Path(tempfile.mkdtemp(prefix="forks-"))
    at = str(folder / "socket")
    (folder / "python").write_text(_CLIENT.format(real=sys.executable, at=at))
    (folder / "python").chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(at)
        listener.listen(100)
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "pass_fds": [listener.fileno()],
        }
        server = subprocess.Popen([sys.executable, __file__, str(listener.fileno())], **pipes)
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.wait)
    atexit.register(server.terminate)  # the end of its input ends it too, but forks of this process may hold the pipe
    return folder


class _Server:
    """Forks by their clients."""

    def __init__(self, listener: socket.socket):
        self.listener, self.forks = listener, dict[socket.socket, int]()
        self.noted, self.notice = socket.socketpair()
        self.notice.setblocking(False)
        signal.set_wakeup_fd(self.notice.fileno())
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)

    def serve(self) -> int:
        """The exit status of this process, which after `os.fork` is a script's."""
        while sys.stdin not in (ready := select.select([sys.stdin, self.noted, self.listener, *self.forks], [], [])[0]):
            if self.noted in ready:
                if signal.SIGTERM in self.noted.recv(1 << 16):
                    break
                self._answer()
            for client in self.forks.keys() & ready:  # before another start, which would find the locks of a fork
                self._forward(client)
            if self.listener in ready and (request := self._accept()):
                return _run(*request)
        for pid in self.forks.values():
            _kill(pid)
        return 0

    def _answer(self) -> None:
        for client, pid in [*self.forks.items()]:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del self.forks[client]
                with client, suppress(OSError):
                    client.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _forward(self, client: socket.socket) -> None:
        if number := client.recv(1):
            os.kill(self.forks[client], number[0])  # it is not waited for yet, so its id is no other's
            return
        with client:
            pid = self.forks.pop(client)
            _kill(pid)
            os.waitpid(pid, 0)

    def _accept(self) -> tuple[dict, list[int]] | None:
        """In a new fork the request with its descriptors."""
        client, _ = self.listener.accept()
        text, files, _, _ = socket.recv_fds(client, 1 << 20, 5)
        if text and (pid := os.fork()) == 0:
            for one in (client, self.listener, self.noted, self.notice, *self.forks):
                one.close()
            return json.loads(text), files
        for file in files:
            os.close(file)
        if text:
            self.forks[client] = pid
            with suppress(OSError):
                client.send(str(pid).encode())
        return None


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it is before its `setsid`
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _run(request: dict, files: Sequence[int]) -> int:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    for namespace in files[3:]:
        _enter(namespace)
    for target, source in enumerate(files[:3]):
        os.dup2(source, target)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    sys.executable = request["python"]
    sys.stdout.reconfigure(line_buffering=True)
    try:
        _execute(request["words"])
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
        return error.code or 0 if isinstance(error.code, int | None) else 1
    except BaseException:  # noqa: BLE001 (the interpreter ends here, as it does for a script)
        traceback.print_exc()
        return 1
    return 0


def _enter(namespace: int) -> None:
    own = (Path("/proc/self/ns", name).stat() for name in ("mnt", "uts"))
    if not any(os.path.samestat(os.fstat(namespace), one) for one in own):  # only root may
        assert ctypes.CDLL(None).setns(namespace, 0) == 0, "cannot enter the namespace"


def _execute(words: Sequence[str]) -> None:
    """Executes the arguments of Python; of its options, -u and -W with an action are known."""
    first, *others = words
    if first == "-u":
        _execute(others)
    elif first == "-W":
        warnings.simplefilter(others[0])
        _execute(others[1:])
    elif first == "-m":
        sys.argv, sys.path[0] = others, str(Path.cwd())
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *others[1:]], ""
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(others[0], vars(sys.modules["__main__"]))  # noqa: S102
    else:
        sys.argv, sys.path[0] = [first, *others], str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    listener = socket.socket(fileno=int(sys.argv[1]))
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
    real = sys.executable
    status = _Server(listener).serve()
    if sys.executable == real:
        sys.exit(status)
    threading._shutdown()  # a fork of `python`, which leaves everything imported to the kernel: a second less
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
