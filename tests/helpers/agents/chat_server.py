"""A chat endpoint on loopback that answers as told, faults among its answers."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    """`body` is sent as it is where it is bytes, and as the content of a chat completion where it is not."""

    body: object = "complete"
    status: int = 200
    headers: dict = field(default_factory=dict)
    wait: float = 0.0
    cut: bool = False
    """Whether the connection breaks in the middle of the answer."""


@dataclass
class Request:
    path: str
    key: str | None
    body: dict
    headers: dict


def _list_of(models: tuple[str, ...]) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in models]}).encode()


@contextmanager
def serving(answer: Callable[[int, dict], Reply], models: tuple[str, ...] | Reply = ("mine",)):
    """(URL, list of `Request`): a server of `models`, or with that reply to /v1/models, that answers
    call number n (from 0) with `answer(n, body)`."""
    requests: list[Request] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                requests.append(Request(self.path, self.headers["Authorization"], body, dict(self.headers)))
                reply = answer(len(requests) - 1, body)
            time.sleep(reply.wait)
            content = reply.body if isinstance(reply.body, bytes) else completion(reply.body)
            self.send_response(reply.status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # who asked has gone
                self.wfile.write(content[: len(content) // 2] if reply.cut else content)

        def do_GET(self):
            """The answer of /v1/models alone."""
            listed = models if isinstance(models, Reply) else Reply(_list_of(models))
            self.send_response(listed.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(listed.body)))
            self.end_headers()
            self.wfile.write(listed.body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(content: object) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()
