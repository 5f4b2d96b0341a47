"""A client of the OpenAI-compatible chat interface that vLLM, llama.cpp and others serve; standard library only.

The key comes from the environment variable `OPENAI_API_KEY` and nowhere else; it is sent to the host given and to no
other (redirects are refused), and stands in no message.
"""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

KEY = "OPENAI_API_KEY"

_TRANSIENT = {408, 429, 500, 502, 503, 504}
_LONGEST_WAIT = 60.0
_MOST_BYTES = 1 << 24
_SHOWN = 300  # characters of what a server says


class EndpointError(ValueError):
    """The endpoint cannot be used as asked, or failed too often; the message says what to do."""


class _TransientError(Exception):
    """Worth another try, after `wait` seconds where the server said so."""

    def __init__(self, what: str, wait: float | None = None):
        super().__init__(what)
        self.wait = wait


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None  # urllib would take the key along to another host


@dataclass(frozen=True)
class Completion:
    """`text` is "" where the model answers none; `tokens`, (read, said), is None where the server does not tell."""

    text: str
    tokens: tuple[int, int] | None = None


@dataclass(frozen=True)
class ChatEndpoint:
    """`url` is the base that clients are given, such as http://localhost:8000/v1 (`/v1` may be left out).

    A call that meets a busy or failing server, a lost connection or none of an answer within `timeout` seconds is made
    again, up to `attempts` times, after 1, 2, 4 … seconds or as long as the server asks.
    Raises EndpointError for a URL that is none.
    """

    url: str
    model: str
    timeout: float = 120.0
    attempts: int = 6
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self):
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EndpointError(f"{self.url!r} is no URL of an endpoint; give one such as http://localhost:8000/v1")
        if parts.username is not None or parts.query or parts.fragment:
            raise EndpointError(f"give the endpoint's URL without user, ? and #; a key belongs into {KEY}")

    def complete(self, messages: Sequence[dict], max_tokens: int) -> str:
        """The text of `completion`."""
        return self.completion(messages, max_tokens).text

    def completion(self, messages: Sequence[dict], max_tokens: int) -> Completion:
        """What the model answers, at temperature 0.

        Raises EndpointError where the endpoint refuses, is not there, or keeps failing.
        """
        body = {"model": self.model, "messages": list(messages), "temperature": 0, "max_tokens": max_tokens}
        for attempt in range(1, self.attempts + 1):
            try:
                return _completion(self._post(json.dumps(body).encode()))
            except _TransientError as error:
                if attempt == self.attempts:
                    raise EndpointError(f"{self._address}: {error}, {attempt} times") from None
                self.sleep(min(2.0 ** (attempt - 1) if error.wait is None else error.wait, _LONGEST_WAIT))
        raise EndpointError("attempts must be at least 1")

    @property
    def _address(self) -> str:
        base = self.url.rstrip("/")
        return f"{base}/chat/completions" if urlsplit(base).path else f"{base}/v1/chat/completions"

    def _post(self, body: bytes) -> bytes:
        key = os.environ.get(KEY)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self._address, body, headers)  # noqa: S310 (http or https, checked)
        try:
            with self._opener().open(request, timeout=self.timeout) as response:
                return response.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, _hidden(error.read(_MOST_BYTES), key)) from None
        except (TimeoutError, http.client.HTTPException, ConnectionResetError, BrokenPipeError) as error:
            raise _TransientError(_cause(error)) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, (TimeoutError, ConnectionResetError, BrokenPipeError)):
                raise _TransientError(_cause(error.reason)) from None
            raise EndpointError(
                f"{self._address} cannot be reached ({error.reason}); is the server running, and the address right?"
            ) from None

    def _opener(self) -> urllib.request.OpenerDirector:
        here = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        return urllib.request.build_opener(_NoRedirects, *([urllib.request.ProxyHandler({})] if here else []))

    def _refused(self, error: urllib.error.HTTPError, said: str) -> Exception:
        if error.code in _TRANSIENT:
            return _TransientError(f"status {error.code}: {said}", _seconds(error.headers.get("Retry-After")))
        if error.code in (401, 403):
            have = "the one there is was refused" if os.environ.get(KEY) else "there is none"
            return EndpointError(f"{self._address} wants a key in {KEY}, and {have} (status {error.code}: {said})")
        if error.code == 404:
            return EndpointError(f"{self._address}: no such model as {self.model!r}, or no such address: {said}")
        return EndpointError(f"{self._address} refuses with status {error.code}: {said}")


def _completion(answer: bytes) -> Completion:
    try:
        content = json.loads(answer)
        text = content["choices"][0]["message"].get("content")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise _TransientError(f"this is no chat completion: {_hidden(answer, None)}") from None
    if text is not None and not isinstance(text, str):
        raise _TransientError("the completion's content is no text")
    return Completion("" if text is None else text, _tokens(content.get("usage")))


def _tokens(usage: object) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    counts = tuple(usage.get(key) for key in ("prompt_tokens", "completion_tokens"))
    return counts if all(type(count) is int and count >= 0 for count in counts) else None


def _hidden(said: bytes, key: str | None) -> str:
    """Some of what a server said, without the key, should it repeat it."""
    text = " ".join(said.decode("utf-8", "replace").split())
    return (text.replace(key, "…") if key else text)[:_SHOWN] or "nothing more was said"


def _cause(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else f"the connection broke ({type(error).__name__})"


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
