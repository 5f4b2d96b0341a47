"""The HTTP server of a review, on loopback.

Texts come from data and models, goals from users: the page escapes everything. Who may read and write is decided by
`vlm_agent/files/pages/loopback.py`. Unknown steps are 404.
"""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rich.console import Console

from vlm_agent.annotation.annotator import TEXTS
from vlm_agent.annotation.job.finish import complete, summarise
from vlm_agent.annotation.job.settings import AnnotationPlan, job
from vlm_agent.annotation.review.session import InvalidEditError, ReviewSession, UnknownStepError
from vlm_agent.files.console import stopped_by_signals
from vlm_agent.files.pages import page_environment
from vlm_agent.files.pages.loopback import LoopbackHandler, LoopbackServer, Refusal

_PAGE = Path(__file__).with_name("page")
_ENVIRONMENT = page_environment(_PAGE)
_ENVIRONMENT.filters["path"] = lambda place: f"/step/{place[0]}/{place[1]}"
_FILES = {"/review.css": "text/css; charset=utf-8", "/review.js": "text/javascript; charset=utf-8"}
_STEP = re.compile(r"/(step|screen|after)/([0-9]{1,9})/([0-9]{1,9})")
_MOST_BYTES = 1 << 20

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
        with ReviewServer(ReviewSession(output), port) as server, stopped_by_signals():
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


class ReviewServer(LoopbackServer):
    """Serves one review. `port`: 0 for any free one. Raises UserError if the port cannot be used."""

    def __init__(self, session: ReviewSession, port: int = 0) -> None:
        super().__init__(_Handler, port)
        self.session = session


class _Handler(LoopbackHandler):
    COMMAND = "vlm-agent annotate --review"
    ENVIRONMENT = _ENVIRONMENT

    server: ReviewServer

    def read(self, path: str, query: Mapping[str, list[str]]) -> None:
        try:
            if path in _FILES:
                self.send(HTTPStatus.OK, _FILES[path], (_PAGE / path[1:]).read_bytes())
            elif path == "/":
                self._overview(query.get("page", ["1"])[0])
            else:
                self._step(path, "boxes" in query)
        except UnknownStepError:
            raise _unknown_step() from None

    def _overview(self, page: str) -> None:
        session = self.server.session
        number = int(page) if re.fullmatch("[0-9]{1,9}", page) else 0
        self.html(
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
            self.html(
                "step.html.jinja",
                step=session.step(episode, number),
                counts=session.counts(),
                names=NAMES,
                token=self.server.token,
            )
            return
        picture = session.picture(episode, number, kind == "screen", boxes)
        self.send(HTTPStatus.OK, "image/png", picture)

    def write(self, path: str, query: Mapping[str, list[str]]) -> None:
        kind, episode, number = self._place(path)
        if kind != "step":
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "A picture cannot be written.")
        content = self._content()
        try:
            step = self.server.session.save(episode, number, content["texts"], content["accepted"])
        except UnknownStepError:
            raise _unknown_step() from None
        except InvalidEditError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        reply = {"texts": step.texts, "accepted": step.accepted, "problem": step.problem, "states": step.states}
        self.send(HTTPStatus.OK, "application/json", json.dumps(reply).encode())

    def _place(self, path: str) -> tuple[str, int, int]:
        match = _STEP.fullmatch(path)
        if match is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "This page does not exist.")
        return match[1], int(match[2]), int(match[3])

    def _content(self) -> dict[str, Any]:
        """The body of a request to save a step."""
        body = self.body(_MOST_BYTES)
        if self.headers.get_content_type() != "application/json":
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A step is saved as JSON.")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            raise Refusal(HTTPStatus.BAD_REQUEST, "The request is not JSON.") from None
        if not _is_edit(content):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"A step has texts of {', '.join(TEXTS)}, and accepted.")
        return content


def _unknown_step() -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "This step does not exist.")


def _is_edit(content: Any) -> bool:
    if not isinstance(content, dict) or set(content) != {"texts", "accepted"}:
        return False
    texts = content["texts"]
    if type(content["accepted"]) is not bool or not isinstance(texts, dict) or not set(texts) <= set(TEXTS):
        return False
    return all(isinstance(text, str) for text in texts.values())
