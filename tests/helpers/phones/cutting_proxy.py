"""A proxy between adb's server and a phone that cuts connections at random moments, also within packets."""

import random
import socket
import threading


class CuttingProxy:
    """A context manager. Each connection carries a random number of packets, about `mean` of them, and then breaks in
    the middle of one. Packets and not bytes: a cut is to meet small ones, which act, as often as pictures.

    `mean` None is a cable that holds. `cuts` counts those that broke; `unplug()` breaks all and takes no more.
    """

    def __init__(self, target: int, mean: float | None, seed: int = 0):
        self.cuts = 0
        self._target, self._mean = target, mean
        self._rng = random.Random(seed)
        self._open: list[socket.socket] = []
        self._connections: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "CuttingProxy":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.serial = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self.unplug()

    def unplug(self) -> None:
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._thread.join()
        with self._lock:
            _break(self._open)
        for connection in self._connections:
            connection.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            left = [float("inf") if self._mean is None else 1 + self._rng.expovariate(1 / self._mean)]
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open += [near, far]
            self._connections.append(threading.Thread(target=self._connect, args=(near, far, left), daemon=True))
            self._connections[-1].start()

    def _connect(self, near: socket.socket, far: socket.socket, left: list[float]) -> None:
        """Closes both ends after both directions have ended: a number of a closed socket may be that of a new one."""
        with near, far:
            back = threading.Thread(target=self._carry, args=(far, near, left), daemon=True)
            back.start()
            self._carry(near, far, left)
            back.join()

    def _carry(self, source: socket.socket, sink: socket.socket, left: list[float]) -> None:
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    left[0] -= 1
                    is_over = left[0] < 0
                    self.cuts += is_over
                    carried = data[: self._rng.randint(0, len(data))] if is_over else data
                sink.sendall(carried)
                if is_over:
                    break
        except OSError:
            pass  # the other direction was cut
        _break([source, sink])


def _break(ends: list[socket.socket]) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # already closed
