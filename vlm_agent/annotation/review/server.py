"""The HTTP server of a review, on loopback.

Texts come from data and models, goals from users: the page escapes everything, and its content security policy lets it
load nothing but its own files. A request is refused with 403 if its host or origin is another one (a page elsewhere, or
a name that resolves to this machine), or without the session's token: reading needs the token as a cookie, which the
printed address sets, and writing needs it as a header. Unknown steps are 404.
"""

import hmac
import json
import re
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jinja2 import Environment
from rich.console import Console

from vlm_agent.annotation.annotator import TEXTS
from vlm_agent.annotation.job.finish import complete, summarise
from vlm_agent.annotation.job.plan import AnnotationPlan, job
from vlm_agent.annotation.review.session import InvalidEditError, ReviewSession, UnknownStepError
from vlm_agent.errors import UserError
from vlm_agent.pages import page_environment

_PAGE = Path(__file__).with_name("page")
_FILES = {"/review.css": "text/css; charset=utf-8", "/review.js": "text/javascript; charset=utf-8"}
_STEP = re.compile(r"/(step|screen|after)/([0-9]{1,9})/([0-9]{1,9})")
_MOST_BYTES = 1 << 20
_TIMEOUT = 60  # seconds without a byte from the browser
_TOKEN = "X-Review-Token"  # noqa: S105 (the name of a header)

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

NAMES = {"screen": "Screen", "think": "Thought", "action": "Action", "result": "Result"}
"""The texts in the order of the page."""


def review(output: Path, port: int, console: Console) -> None:
    """Serves the review of an annotation until Ctrl-C or SIGTERM, then writes the edits to its shards.

    `port`: 0 for any free one. Edits are on disk when the page shows them as saved; after a kill, the next review or
    `finish` writes them to the shards. Raises DatasetError if the annotation is not complete.
    """
    plan = AnnotationPlan.read(output)
    with job(output).locked():
        complete(output, plan)
        with ReviewServer(ReviewSession(output), port) as server, _stopped_by_signals():
            console.print(
                f"Review of {output}: open {server.address} in a browser on this machine; Ctrl-C ends the review",
                highlight=False,
                soft_wrap=True,
            )
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                console.print("Writing the edits to the shards", highlight=False)
        complete(output, plan)
    summarise(output, console)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM ends the block like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class ReviewServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. `address`: of the page, with the token. Raises UserError if the port cannot be used."""

    daemon_threads = True

    def __init__(self, session: ReviewSession, port: int = 0) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port} cannot be used ({error}); choose another --port") from None
        self.session, self.token = session, secrets.token_urlsafe(32)

    @property
    def hosts(self) -> tuple[str, ...]:
        return (f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}")

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie's name. Ports of a host share their cookies."""
        return f"review_{self.server_port}"


class _Refusal(Exception):  # noqa: N818 (an answer, not an error of this program)
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    server_version, sys_version = "vlm-agent", ""
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, respond: Any) -> None:
        try:
            self._check_origin()
            respond()
        except _Refusal as refusal:
            self._send(refusal.status, "text/plain; charset=utf-8", f"{refusal}\n".encode())
        except UnknownStepError:
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"This step does not exist.\n")
        except ConnectionError:
            self.close_connection = True  # the browser does not wait for the answer

    def _check_origin(self) -> None:
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts or (origin is not None and origin != f"http://{host}"):
            raise _Refusal(HTTPStatus.FORBIDDEN, "This request comes from another site.")

    def _get(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path == "/" and "token" in query:
            self._open(query["token"][0])
            return
        self._check_token(self._cookie())
        if url.path in _FILES:
            self._send(HTTPStatus.OK, _FILES[url.path], (_PAGE / url.path[1:]).read_bytes())
        elif url.path == "/":
            self._overview(query.get("page", ["1"])[0])
        else:
            self._step(url.path, "boxes" in parse_qs(url.query, keep_blank_values=True))

    def _open(self, token: str) -> None:
        """Stores the token as a cookie, so that it is not in the address of any page."""
        self._check_token(token)
        cookie = f"{self.server.cookie}={token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.SEE_OTHER, "text/plain", b"", {"Set-Cookie": cookie, "Location": "/"})

    def _overview(self, page: str) -> None:
        session = self.server.session
        number = int(page) if re.fullmatch("[0-9]{1,9}", page) else 0
        self._html(
            "overview.html.jinja",
            facts=session.facts,
            counts=session.counts(),
            episodes=session.listed(number - 1),
            page=number,
            pages=session.pages,
            next_open=session.next_open(),
        )

    def _step(self, path: str, boxes: bool) -> None:
        kind, episode, number = self._place(path)
        session = self.server.session
        if kind == "step":
            self._html(
                "step.html.jinja",
                step=session.step(episode, number),
                counts=session.counts(),
                names=NAMES,
                token=self.server.token,
            )
            return
        picture = session.picture(episode, number, kind == "screen", boxes)
        self._send(HTTPStatus.OK, "image/png", picture)

    def _post(self) -> None:
        self._check_token(self.headers.get(_TOKEN, ""))
        kind, episode, number = self._place(urlsplit(self.path).path)
        if kind != "step":
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "A picture cannot be written.")
        content = self._content()
        try:
            step = self.server.session.save(episode, number, content["texts"], content["accepted"])
        except InvalidEditError as error:
            raise _Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        reply = {"texts": step.texts, "accepted": step.accepted, "problem": step.problem, "states": step.states}
        self._send(HTTPStatus.OK, "application/json", json.dumps(reply).encode())

    def _place(self, path: str) -> tuple[str, int, int]:
        match = _STEP.fullmatch(path)
        if match is None:
            raise _Refusal(HTTPStatus.NOT_FOUND, "This page does not exist.")
        return match[1], int(match[2]), int(match[3])

    def _content(self) -> dict[str, Any]:
        """The body of a request to save a step."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > _MOST_BYTES:
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {_MOST_BYTES} bytes.")
        if self.headers.get_content_type() != "application/json":
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A step is saved as JSON.")
        try:
            content = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "The request is not JSON.") from None
        if not _is_edit(content):
            raise _Refusal(HTTPStatus.BAD_REQUEST, f"A step has the texts {', '.join(TEXTS)}, and accepted.")
        return content

    def _cookie(self) -> str:
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return "" if morsel is None else morsel.value

    def _check_token(self, token: str) -> None:
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            raise _Refusal(HTTPStatus.FORBIDDEN, "Open the address that `vlm-agent annotate --review` printed.")

    def _html(self, template: str, **content: object) -> None:
        page = _environment().get_template(template).render(content)
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", page.encode("utf-8", "replace"))

    def _send(
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


def _is_edit(content: Any) -> bool:
    if not isinstance(content, dict) or set(content) != {"texts", "accepted"}:
        return False
    texts = content["texts"]
    if type(content["accepted"]) is not bool or not isinstance(texts, dict) or set(texts) != set(TEXTS):
        return False
    return all(isinstance(text, str) for text in texts.values())


@cache
def _environment() -> Environment:
    environment = page_environment(_PAGE)
    environment.filters["path"] = lambda place: f"/step/{place[0]}/{place[1]}"
    return environment
