"""The HTTP server of `vlm-agent view`, on loopback (`vlm_agent/files/pages/loopback.py` decides who may read and ask).

/                       what the folder contains
/file/PATH              a page or picture in the folder
/trace/PATH             the trace in the folder PATH: /sheet/PATH its contact sheet, /animation/PATH its animation
/ask                    the page to ask the agent; POST /ask?goal=TEXT with a picture as the content

Files of the folder may come from anywhere, so they are sandboxed: a page among them has an origin of its own and loads
nothing.
"""

import io
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from rich.console import Console

from vlm_agent.agents.loading import agent_settings
from vlm_agent.datasets.sources.traces import OUTCOME_WORDS, is_trace, read_trace
from vlm_agent.drawing.animation import animate
from vlm_agent.drawing.contact_sheet import trace_sheet
from vlm_agent.errors import UserError
from vlm_agent.evaluation.report.page import page_style
from vlm_agent.evaluation.viewing.asking import MOST_BYTES, Asking
from vlm_agent.evaluation.viewing.catalogue import MOST_ENTRIES, entries_in, first_agent, success_of
from vlm_agent.files.console import print_plain, stopped_by_signals
from vlm_agent.files.pages import page_environment
from vlm_agent.files.pages.loopback import LoopbackHandler, LoopbackServer, Refusal

_PAGE = Path(__file__).with_name("page")
_ENVIRONMENT = page_environment(_PAGE)
_ENVIRONMENT.filters["address"] = lambda path: quote(os.fsencode(path))
_OWN = {"/view.css": "text/css; charset=utf-8", "/view.js": "text/javascript; charset=utf-8"}
_TYPES = {".html": "text/html; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}
_SANDBOX = {
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}


def view(output: Path, agent: str | None, port: int, console: Console) -> None:
    """Serves the pages until SIGTERM or Ctrl-C, which raises KeyboardInterrupt.

    `agent`: as `--agent` of other commands; None for `first_agent`, if any. `port`: 0 for any free one. Raises
    UserError if `output` is not a folder, if the agent is unknown or the port cannot be used.
    """
    if not output.is_dir():
        raise UserError(f"{output} is not a folder; name the output folder of a command")
    settings = first_agent(output) if agent is None else agent_settings(agent)
    with ExitStack() as stack:
        # Viewing writes nothing to OUT or the working folder; for replies to be kept, an agent file names a folder.
        replies = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vlm-agent-view-")))
        asking = None if settings is None else Asking(settings.in_output(replies), console)
        server = stack.enter_context(ViewServer(output, asking, port))
        stack.enter_context(stopped_by_signals())
        print_plain(console, f"View of {output}: open {server.address} in a browser on this machine; Ctrl-C ends it")
        server.serve_forever()


class ViewServer(LoopbackServer):
    """Serves one folder. `asking` None: the page to ask says how to choose an agent."""

    def __init__(self, output: Path, asking: Asking | None, port: int = 0) -> None:
        super().__init__(_Handler, port)
        self.output, self.asking = output.resolve(), asking


class _Handler(LoopbackHandler):
    COMMAND = "vlm-agent view"
    ENVIRONMENT = _ENVIRONMENT

    server: ViewServer

    def read(self, path: str, query: Mapping[str, list[str]]) -> None:
        agent = None if self.server.asking is None else self.server.asking.name
        if path == "/report.css":
            self.send(HTTPStatus.OK, _OWN["/view.css"], page_style().encode())
        elif path in _OWN:
            self.send(HTTPStatus.OK, _OWN[path], (_PAGE / path[1:]).read_bytes())
        elif path == "/":
            entries = entries_in(self.server.output)
            self.html(
                "overview.html.jinja", folder=self.server.output.name, entries=entries, agent=agent, most=MOST_ENTRIES
            )
        elif path == "/ask":
            self.html("ask.html.jinja", agent=agent, token=self.server.token)
        else:
            self._inside(path)

    def write(self, path: str, query: Mapping[str, list[str]]) -> None:
        if path != "/ask" or self.server.asking is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "No agent can be asked here.")
        picture = self.body(MOST_BYTES)
        try:
            answer = self.server.asking.ask(query.get("goal", [""])[0], picture)
        except (UserError, OSError) as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, " ".join(str(error).split())) from None
        self.send(HTTPStatus.OK, "application/json", json.dumps(answer).encode())

    def _inside(self, path: str) -> None:
        kind, _, name = path[1:].partition("/")
        place = inside(self.server.output, os.fsdecode(unquote_to_bytes(name)))
        try:
            if kind == "file" and place is not None and place.suffix in _TYPES and place.is_file():
                self.send(HTTPStatus.OK, _TYPES[place.suffix], place.read_bytes(), _SANDBOX)
            elif kind in ("trace", "sheet", "animation") and place is not None and is_trace(place):
                self._trace(kind, place)
            else:
                raise Refusal(HTTPStatus.NOT_FOUND, "This page does not exist.")
        except ConnectionError:
            raise
        except (UserError, OSError) as error:
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, " ".join(str(error).split())) from None

    def _trace(self, kind: str, folder: Path) -> None:
        output = self.server.output
        if any(inside(output, path.relative_to(output).as_posix()) is None for path in folder.iterdir()):
            raise Refusal(HTTPStatus.NOT_FOUND, "A file of this trace is a symbolic link that leads out of the folder.")
        trace = read_trace(folder)
        if kind == "sheet":
            file = io.BytesIO()
            trace_sheet(trace).save(file, "PNG")
            self.send(HTTPStatus.OK, "image/png", file.getvalue())
        elif kind == "animation":
            with tempfile.TemporaryDirectory() as temporary:
                animate(trace, Path(temporary) / "trace.gif")
                self.send(HTTPStatus.OK, "image/gif", (Path(temporary) / "trace.gif").read_bytes())
        else:
            path = folder.relative_to(self.server.output).as_posix()
            success = success_of(folder)
            self.html("trace.html.jinja", trace=trace, path=path, outcomes=OUTCOME_WORDS, success=success)


def inside(root: Path, name: str) -> Path | None:
    """The path `name` in the folder `root`, which is resolved; None if it leads out, also through a symbolic link."""
    try:
        place = (root / name).resolve()
    except (ValueError, OSError):
        return None
    return place if place.is_relative_to(root) else None
