"""A page served on loopback to the person at this machine, and to no one else.

A request is refused with 403 if its host or origin is another one (a page elsewhere, or a name that resolves to this
machine), or without the session's token: reading needs the token as a cookie, which the printed address sets, and
writing needs it as a header. The content security policy lets a page load nothing but files of this server.
"""

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from jinja2 import Environment

from vlm_agent.errors import UserError

TOKEN_HEADER = "X-Page-Token"  # noqa: S105 (the name of a header)

_TIMEOUT = 60  # seconds without a byte from the browser
_TEXT = "text/plain; charset=utf-8"

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. `address`: of the page, with the token. Raises UserError if the port cannot be used.

    `port`: 0 for any free one.
    """

    daemon_threads = True

    def __init__(self, handler: "type[LoopbackHandler]", port: int = 0) -> None:
        try:
            super().__init__(("127.0.0.1", port), handler)
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port} cannot be used ({error}); choose another --port") from None
        self.token = secrets.token_urlsafe(32)

    @property
    def hosts(self) -> tuple[str, ...]:
        return (f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}")

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie's name. Ports of a host share their cookies."""
        return f"page_{self.server_port}"


class Refusal(Exception):  # noqa: N818 (an answer, not an error of this program)
    """The answer to a request that is not served: a status and one line."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class LoopbackHandler(BaseHTTPRequestHandler):
    """Checks host, origin and token, then calls `read` or `write`. `COMMAND`: the one that prints the address.
    `ENVIRONMENT`: the templates of the pages."""

    COMMAND: ClassVar[str]
    ENVIRONMENT: ClassVar[Environment]

    server: Any
    server_version, sys_version = "vlm-agent", ""
    timeout = _TIMEOUT

    def read(self, path: str, query: Mapping[str, list[str]]) -> None:
        """Answers GET. `query`: also has names without a value. Raises Refusal."""
        raise NotImplementedError

    def write(self, path: str, query: Mapping[str, list[str]]) -> None:
        """Answers POST. Raises Refusal."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, respond: Callable[[str, dict[str, list[str]]], None]) -> None:
        try:
            self._check_origin()
            try:
                url = urlsplit(self.path)
                query = parse_qs(url.query, keep_blank_values=True)
            except ValueError:
                raise Refusal(HTTPStatus.BAD_REQUEST, "This address cannot be read.") from None
            respond(url.path, query)
        except Refusal as refusal:
            self.send(refusal.status, _TEXT, f"{refusal}\n".encode("utf-8", "replace"))
        except ConnectionError:
            self.close_connection = True  # the browser does not wait for the answer

    def _check_origin(self) -> None:
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts or (origin is not None and origin != f"http://{host}"):
            raise Refusal(HTTPStatus.FORBIDDEN, "This request comes from another site.")

    def _get(self, path: str, query: dict[str, list[str]]) -> None:
        if path == "/" and (token := query.get("token", [""])[0]):
            self._check_token(token)
            # Stored as a cookie, so that it is not in the address of any page.
            cookie = f"{self.server.cookie}={token}; HttpOnly; SameSite=Strict; Path=/"
            self.send(HTTPStatus.SEE_OTHER, "text/plain", b"", {"Set-Cookie": cookie, "Location": "/"})
            return
        self._check_token(self._cookie())
        self.read(path, query)

    def _post(self, path: str, query: dict[str, list[str]]) -> None:
        self._check_token(self.headers.get(TOKEN_HEADER, ""))
        self.write(path, query)

    def _cookie(self) -> str:
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return "" if morsel is None else morsel.value

    def _check_token(self, token: str) -> None:
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            raise Refusal(HTTPStatus.FORBIDDEN, f"Open the address that `{self.COMMAND}` printed.")

    def body(self, most: int) -> bytes:
        """The content of a request. Raises Refusal for more than `most` bytes, before any is read."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > most:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {most} bytes.")
        return self.rfile.read(int(length))

    def html(self, template: str, **content: object) -> None:
        page = self.ENVIRONMENT.get_template(template).render(content)
        self.send(HTTPStatus.OK, "text/html; charset=utf-8", page.encode("utf-8", "replace"))

    def send(
        self, status: HTTPStatus, content_type: str, content: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses would fill the terminal."""
