"""A client that writes and reads the frames of openenv-core 0.3.0, in place of its own, which needs many packages."""

import json
import sys
from types import ModuleType, SimpleNamespace


class Client:
    def __init__(self, address, origin=None):
        self.address, self.origin = f"{address.replace('http', 'ws', 1)}/ws", origin

    def sync(self):
        return self

    def __enter__(self):
        from websockets.sync.client import connect

        self.connection = connect(self.address, max_size=None, origin=self.origin)
        self.socket = self.connection.__enter__()
        return self

    def __exit__(self, *error):
        self.connection.__exit__(*error)

    def ask(self, frame):
        """The answer to a frame: an object, or text or bytes that are sent as they are."""
        self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))
        return json.loads(self.socket.recv(timeout=60))

    def reset(self, **data):
        return self._result({"type": "reset", "data": data})

    def step(self, action):
        return self._result({"type": "step", "data": action})

    def _result(self, frame):
        answer = self.ask(frame)
        if answer["type"] == "error":
            raise RuntimeError(f"Server error: {answer['data']['message']} (code: {answer['data']['code']})")
        return SimpleNamespace(**answer["data"])


def install(monkeypatch, address):
    """`openenv.core`, whose client connects to `address` instead of the one that an example names."""
    core = ModuleType("openenv.core")
    core.GenericEnvClient = lambda _: Client(address)
    monkeypatch.setitem(sys.modules, "openenv", ModuleType("openenv"))
    monkeypatch.setitem(sys.modules, "openenv.core", core)
