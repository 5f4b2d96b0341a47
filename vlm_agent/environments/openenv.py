"""The phone behind OpenEnv's protocol: a WebSocket server at /ws, a phone of its own for each connection.

Frames are JSON, as OpenEnv's clients (openenv-core 0.3.0) write and read them:

    {"type": "reset", "data": {"task": "general/train/7"}}     or {"seed": 3}; "screen": false omits the picture
    {"type": "step", "data": {"text": "tap at 30 12"}}         an action of the language
    {"type": "state"}                                          {"type": "close"}

The answer to `reset` and `step` is an observation, with `reward` and `done`. Whatever cannot be done, such as a text
that is not an action, is answered by a frame of type `error`; phone and session stay as they are.
/health, /metadata and /schema answer over HTTP. The package openenv-core is not needed. Clients that put observations
into a text, such as the task set `openenv` of verifiers 0.4, reset with "screen": false.
"""

import base64
import json
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import BoundedSemaphore, Thread
from typing import Any

import numpy as np

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents import Answer
from vlm_agent.environments.play import Play, PlayError, Tasks, element_lines, language_named
from vlm_agent.errors import UserError
from vlm_agent.files.installation import install_line
from vlm_agent.files.png import encode_png

try:
    from websockets.exceptions import ConnectionClosed
    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection, serve
except ImportError as error:
    raise PlayError(f"the OpenEnv server needs websockets ({error}); {install_line('openenv')}") from error

HOST = "127.0.0.1"
MAX_FRAME_BYTES = 1 << 24
MAX_SESSIONS = 256
_CLOSE = "close"
_LOG = logging.getLogger(__name__)


class FrameError(UserError):
    """A frame that is not a message of the protocol; `code` is OpenEnv's."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Session:
    """One client's phone."""

    tasks: Tasks
    language: ActionLanguage
    play: Play | None = None
    steps: int = 0
    shows_screen: bool = True

    def answer(self, text: str | bytes) -> dict[str, Any] | None:
        """The frame that answers a frame; None for `close`."""
        try:
            kind, data = _read(text)
            if kind == _CLOSE:
                return None
            answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
                "reset": self._reset,
                "step": self._step,
                "state": self._state,
            }
            if not isinstance(kind, str) or kind not in answers:
                known = ", ".join([*answers, _CLOSE])
                raise FrameError(f"unknown message type {str(kind)[:80]!r}; use {known}", "UNKNOWN_TYPE")
            return {"type": "state" if kind == "state" else "observation", "data": answers[kind](data)}
        except FrameError as error:
            return _error(str(error), error.code)
        except UserError as error:
            return _error(str(error), "EXECUTION_ERROR")

    def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        seed, task, shows_screen = data.get("seed"), data.get("task"), data.get("screen", True)
        if seed is not None and (type(seed) is not int or not 0 <= seed < 1 << 63):
            raise FrameError(
                f"seed is {str(seed)[:80]!r}; it must be an integer from 0 to 2**63 - 1", "VALIDATION_ERROR"
            )
        if type(shows_screen) is not bool:
            raise FrameError(f"screen is {str(shows_screen)[:80]!r}; it must be true or false", "VALIDATION_ERROR")
        if task is None:
            chosen = self.tasks.drawn(secrets.randbits(32) if seed is None else seed)
        else:
            chosen = self.tasks.named(task)
        self.play, self.steps, self.shows_screen = Play(chosen), 0, shows_screen
        return self._observation(self.play)

    def _step(self, data: dict[str, Any]) -> dict[str, Any]:
        play, text = self.play, data.get("text")
        if play is None:
            raise PlayError("no task is in progress; send a reset first")
        if not isinstance(text, str):
            raise FrameError('an action is {"text": "…"}, in the action language', "VALIDATION_ERROR")
        action = play.read(text, self.language)
        if play.outcome is None and action is None:
            raise FrameError(f"{text[:80]!r} is not an action; {self.language.instructions}", "VALIDATION_ERROR")
        play.answer(Answer(text, action))
        self.steps += 1
        return self._observation(play)

    def _state(self, _: dict[str, Any]) -> dict[str, Any]:
        about = {} if self.play is None else {"task": self.play.task.name, "template": self.play.task.template}
        return {"episode_id": None if self.play is None else self.play.task.name, "step_count": self.steps, **about}

    def _observation(self, play: Play) -> dict[str, Any]:
        observation: dict[str, Any] = {"goal": play.goal, "elements": "\n".join(element_lines(play.screen))}
        if self.shows_screen:
            observation["screen"] = base64.b64encode(encode_png(np.asarray(play.screen.pixels))).decode()
        is_end = play.outcome is not None
        observation["outcome"] = None if play.outcome is None else asdict(play.outcome)
        return {"observation": observation, "reward": play.reward if is_end else None, "done": is_end}


@contextmanager
def served(port: int, language: str = "named", allow_test: bool = False) -> Iterator[str]:
    """A server in a thread, for this machine only, and its address, as http://127.0.0.1:8000; `port` 0 is any free one.
    `language`: that of actions. Drawn tasks are of split train; `allow_test` permits clients to name test tasks.

    Pages in a browser are refused (they send an Origin). At most `MAX_SESSIONS` connections are open at once. Raises
    PlayError for an unknown language, and for a port that cannot be opened.
    """
    tasks, codec = Tasks(allow_test=allow_test), language_named(language)
    free = BoundedSemaphore(MAX_SESSIONS)
    quiet = _LOG.getChild("connections")
    quiet.setLevel(logging.CRITICAL + 1)  # whatever a client sends, nothing is printed here

    def converse(connection: ServerConnection) -> None:
        if not free.acquire(blocking=False):
            connection.send(json.dumps(_error(f"all {MAX_SESSIONS} sessions are in use", "CAPACITY_REACHED")))
            return
        try:
            session = Session(tasks, codec)
            while (answer := session.answer(connection.recv())) is not None:
                connection.send(json.dumps(answer))
        except ConnectionClosed:
            pass
        except Exception:
            _LOG.exception("a session has ended by an error of this program")
            raise
        finally:
            free.release()

    try:
        server = serve(
            converse,
            HOST,
            port,
            process_request=lambda connection, request: _http(connection, request, codec),
            origins=[None],
            compression=None,
            max_size=MAX_FRAME_BYTES,
            logger=quiet,
        )
    except OSError as error:
        raise PlayError(f"port {port} cannot be opened ({error.strerror}); choose another one by --port") from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()


def _read(text: str | bytes) -> tuple[Any, dict[str, Any]]:
    """The type and the data of a frame."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the frame is not JSON: {str(error)[:200]}", "INVALID_JSON") from None
    data = content.get("data", {}) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(data, dict):
        raise FrameError('a frame is an object {"type": …, "data": {…}}', "VALIDATION_ERROR")
    return content.get("type"), data


def _error(message: str, code: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": " ".join(message.split()), "code": code}}


def _http(connection: ServerConnection, request: Request, language: ActionLanguage) -> Response | None:
    """The answer to an HTTP request; None for the WebSocket's own."""
    path = request.path.partition("?")[0]
    if path == "/ws":
        return None
    text = {"type": "string"}
    about = "tasks on a simulated Android phone, judged by its state"
    pages = {
        "/health": {"status": "healthy"},
        "/metadata": {"name": "vlm_agent phone", "description": about},
        "/schema": {
            "action": {
                "type": "object",
                "properties": {"text": text | {"description": language.instructions}},
                "required": ["text"],
            },
            "observation": {
                "type": "object",
                "properties": {
                    "goal": text,
                    "elements": text | {"description": element_lines.__doc__},
                    "screen": text | {"description": "PNG in base64"},
                    "outcome": {"type": ["object", "null"]},
                },
            },
            "state": {
                "type": "object",
                "properties": {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer"}},
            },
        },
    }
    response = connection.respond(200 if path in pages else 404, json.dumps(pages.get(path, {"error": "not found"})))
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json"
    return response
