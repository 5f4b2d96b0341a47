"""A server of pages, run in a thread, and requests with any headers."""

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


@contextmanager
def served(server: Server) -> Iterator[Server]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def exchange(
    server: BaseServer, method: str, path: str, headers: Mapping[str, str | None], content: bytes
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of the response. A header that is None is not sent, Host included."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content)
    response = connection.getresponse()
    result = response.status, dict(response.headers), response.read()
    connection.close()
    return result
