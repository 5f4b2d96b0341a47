"""A client for the OpenAI-compatible chat interface of vLLM, llama.cpp and other servers.

The API key is read only from the environment variable `OPENAI_API_KEY`. It is sent only to the configured host
(redirects are not followed) and is removed from error messages.
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from vlm_agent.agents.llm.completion import (
    AcceptedForm,
    Completion,
    Form,
    NoCompletionError,
    Tokens,
    read_completion,
    refused_parameters,
)
from vlm_agent.errors import UserError
from vlm_agent.files.console import make_console, only_printable

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

KEY = "OPENAI_API_KEY"

_TRANSIENT = {408, 409, 425, 429, *range(500, 600)} - {501, 505}
"""Statuses of a server that is busy or failed. 520 to 530 are those of proxies, 529 is an overloaded model; only with
501 and 505 does a server state that it will never answer such a request."""

_REFUSED = "refused the request with status"

_LONGEST_WAIT = 60.0
_MESSAGE_CHARACTERS = 300  # of a server's error message


class EndpointError(UserError):
    """The endpoint cannot be used as configured, or failed too often; the message says what to do."""


def api_key() -> str | None:
    """The key in `KEY`, without white space around it. Raises EndpointError for one that no header can hold."""
    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise EndpointError(f"{KEY} has characters that no key has; set it again")
    return key or None


class CallError(EndpointError):
    """The endpoint refused or failed this request; another request may succeed."""


class RefusedError(CallError):
    """The endpoint refused this request, and refuses it again: a picture too many, a content that it does not read."""


class _TransientError(Exception):
    """Another attempt may succeed. `wait`: seconds until then, if the server named them (`Retry-After`).

    `billed`: whether the model may have answered, so that the request may cost money; `tokens`: if they are known.
    """

    def __init__(
        self, message: str, wait: float | None = None, billed: bool = False, tokens: Tokens | None = None
    ) -> None:
        super().__init__(message)
        self.wait, self.billed, self.tokens = wait, billed, tokens


def retry_advice(failures: Iterable[str], again: str) -> str:
    """What to do about messages of failed calls: `again`, if one of them is no refusal of its request."""
    if all(_REFUSED in failure for failure in failures):
        return "the server refuses the same request again unless it, or the agent's settings, are changed"
    return again


@dataclass(frozen=True)
class ChatEndpoint:
    """One model on one server. `url` is the base URL, such as http://localhost:8000/v1 (`/v1` may be omitted).

    A request is repeated if the server is busy or fails, if the connection breaks, or if nothing arrives for `timeout`
    seconds: up to `attempts` times, after 1, 2, 4 … seconds or as long as the server asks (`Retry-After`, at most 60).
    Each repetition is reported on the terminal (`retries.RetryLines`). `pace` is called before each request, also a
    repeated one, and may wait (`calls.Pace`). A request whose `max_tokens` or `temperature` the model refuses is sent
    once more without it, and so are all later ones; `accepted` remembers it.
    Raises EndpointError if `url` is not the URL of an endpoint.
    """

    url: str
    model: str
    timeout: float = 120.0
    attempts: int = 6
    sleep: Callable[[float], None] = time.sleep
    pace: Callable[[], None] = lambda: None
    accepted: AcceptedForm = field(default_factory=AcceptedForm, compare=False, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _, host = parts.port, (parts.hostname or "").encode("idna")  # ValueError for what no client can reach
        except ValueError:
            host = b""
        if not host or parts.scheme not in ("http", "https") or not self.url.isprintable():
            raise EndpointError(f"{self.url!r} is not the URL of an endpoint, such as http://localhost:8000/v1")
        if parts.username is not None or parts.query or parts.fragment:
            raise EndpointError(f"remove user, ? and # from the endpoint's URL; a key belongs into {KEY}")

    def completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int,
        is_running: bool = False,
        unusable: Callable[[Tokens | None], None] = lambda tokens: None,
    ) -> Completion:
        """The model's reply at temperature 0, if it takes one.

        `is_running`: the server has answered before, so that one that cannot be reached may be restarting, and the
        request is repeated. `unusable` is called after each request that the server may bill and whose reply was
        refused, broke off, or came too late, with the tokens that this reply states, else None.

        Raises RefusedError if the endpoint refuses this request, CallError if it keeps failing, EndpointError if it
        cannot be reached, has no such model, rejects the key, or requires a payment.
        """
        start, requests = time.perf_counter(), Counter[Form]()
        for attempt in range(1, self.attempts + 1):
            try:
                completion = self._answered(messages, max_tokens, is_running, requests)
                return replace(completion, calls=requests.total(), seconds=time.perf_counter() - start)
            except _TransientError as error:
                if error.billed:
                    unusable(error.tokens)
                if attempt == self.attempts:
                    raise CallError(f"{self._address}: {error}, {attempt} times") from None
                wait = min(2 ** (attempt - 1) if error.wait is None else error.wait, _LONGEST_WAIT)
                request = f"{self._address}, {name_of(messages)}"
                report_retry(request, str(error), attempt + 1, self.attempts, wait)
                self.sleep(wait)
        raise EndpointError("attempts must be at least 1")

    def tokenize(self, messages: Sequence[Mapping[str, Any]]) -> list[int] | None:
        """The token ids of the prompt for `messages`; None if the server does not have the /tokenize of vLLM.

        Some servers list one id per screen. Raises EndpointError if the server cannot be reached.
        """
        from openai import APIStatusError

        root = self._client.with_options(base_url=self._base.removesuffix("/v1"))
        body = {"model": self.model, "messages": list(messages), "add_generation_prompt": True}
        try:
            content = self._json(root.post, "/tokenize", body=body)
        except (APIStatusError, ValueError, RecursionError):
            return None
        ids = content.get("tokens") if isinstance(content, dict) else None
        if not isinstance(ids, list) or content.get("count") != len(ids) or not all(type(id_) is int for id_ in ids):
            return None
        return ids

    def served_models(self) -> list[str]:
        """The names of the server's models. Raises EndpointError if the server does not list them."""
        from openai import APIStatusError

        unlisted = f"{self._base}/models does not list the server's models; name one with --model"
        try:
            names = [one["id"] for one in self._json(self._client.get, "/models")["data"]]
        except APIStatusError as error:
            raise EndpointError(
                f"{self._base}/models: status {error.status_code}: {_shown(error.response.content)}"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise EndpointError(unlisted) from None
        if not all(isinstance(name, str) for name in names):
            raise EndpointError(unlisted)
        return names

    def _json(self, request: Callable, path: str, **arguments: Any) -> Any:
        """The JSON of a response. `request`: `get` or `post` of an `openai` client.

        Raises EndpointError if the server cannot be reached, openai's APIStatusError if it refuses the request, and
        ValueError or RecursionError if the response is not JSON.
        """
        import httpx2
        from openai import APIConnectionError

        from vlm_agent.agents.llm.http import headers

        options = {"headers": headers(api_key())}
        try:
            response = request(path, cast_to=httpx2.Response, options=options, **arguments)
        except APIConnectionError as error:
            raise EndpointError(self._unreachable(str(error.request.url), error.__cause__)) from None
        return json.loads(response.content)

    @property
    def _base(self) -> str:
        base = self.url.rstrip("/")
        return base if urlsplit(base).path else f"{base}/v1"

    @property
    def _address(self) -> str:
        return f"{self._base}/chat/completions"

    @cached_property
    def _client(self) -> "OpenAI":
        from vlm_agent.agents.llm.http import openai_client
        from vlm_agent.models.proxies import ProxyError

        try:
            return openai_client(self._base, api_key(), self.timeout)
        except ProxyError as error:
            raise EndpointError(str(error)) from None

    def _unreachable(self, address: str, cause: object) -> str:
        from vlm_agent.models.proxies import proxy_in_words

        proxy = proxy_in_words(self._base)
        return f"{address} cannot be reached{f' through {proxy}' if proxy else ''} ({cause})"

    def _answered(
        self, messages: Sequence[Mapping[str, Any]], max_tokens: int, is_running: bool, requests: Counter[Form]
    ) -> Completion:
        """The reply to one request, which is sent again without the parameters that the model refuses."""
        from openai import APIStatusError

        with self.accepted.turn():
            form = self.accepted.form
            while True:
                self.pace()
                requests[form] += 1
                try:
                    completion = _completion(self._post(messages, form, max_tokens, is_running), max_tokens)
                except APIStatusError as error:
                    is_refusal = error.status_code in (400, 422)
                    other = form.without(refused_parameters(error.response.content)) if is_refusal else form
                    if other == form:
                        raise self._refused(error) from None
                    form = other
                    continue
                self.accepted.form = form
                return replace(completion, notes=(*form.notes, *completion.notes))

    def _post(self, messages: Sequence[Mapping[str, Any]], form: Form, max_tokens: int, is_running: bool) -> bytes:
        """The body of the response. Raises _TransientError, EndpointError, or openai's APIStatusError."""
        from openai import APIConnectionError

        from vlm_agent.agents.llm.http import headers, interruption, was_sent

        try:
            # The raw response, because other servers than OpenAI's omit or add headers and fields.
            response = self._client.chat.completions.with_raw_response.create(
                model=self.model,
                messages=cast(Any, list(messages)),
                extra_headers=headers(api_key()),
                **form.parameters(max_tokens),
            )
        except APIConnectionError as error:
            if (message := interruption(error)) is not None:
                raise _TransientError(message, billed=was_sent(error)) from None
            if is_running:
                raise _TransientError(f"the server cannot be reached any more ({error.__cause__})") from None
            raise EndpointError(
                f"{self._unreachable(self._address, error.__cause__)}; is the server running, and the address right?"
            ) from None
        return response.content

    def _refused(self, error: "APIStatusError") -> Exception:
        message = _shown(error.response.content)
        if error.status_code in _TRANSIENT:
            after = error.response.headers.get("Retry-After", "")
            wait = float(after) if after.isascii() and after.isdigit() else None
            return _TransientError(f"status {error.status_code}: {message}", wait)
        if error.status_code == 401:
            state = "the server rejected the one that is set" if api_key() else "none is set"
            return EndpointError(f"{self._address} requires a key in {KEY}, and {state} (status 401: {message})")
        if error.status_code == 402:
            return EndpointError(f"{self._address} requires a payment (status 402: {message})")
        if error.status_code == 403:  # also of a moderated request; of every request if the key has no rights
            message = f"{message} ({KEY} is {'set' if api_key() else 'not set'})"
        if error.status_code == 404:
            return EndpointError(f"{self._address} has no model {self.model!r}, or does not exist: {message}")
        return RefusedError(f"{self._address} {_REFUSED} {error.status_code}: {message}")


def _completion(body: bytes, max_tokens: int) -> Completion:
    try:
        return read_completion(body, max_tokens)
    except NoCompletionError as error:
        message = f"{error}: {_shown(body)}"
        raise _TransientError(message, billed=error.is_billed, tokens=error.tokens) from None


def _shown(body: bytes) -> str:
    """The start of a server's message, printable, with the API key removed in case the server repeats it."""
    text, key = " ".join(body.decode("utf-8", "replace").split()), api_key()
    start = (text.replace(key, "…") if key else text)[:_MESSAGE_CHARACTERS] or "no further message"
    return only_printable(start)


SECONDS_BETWEEN_LINES = 10.0
_CAUSE_CHARACTERS = 160
_REQUEST_CHARACTERS = 60


def _print(line: str) -> None:
    make_console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


@dataclass
class RetryLines:
    """Prints a line for a repeated request: at most one every `SECONDS_BETWEEN_LINES` over all threads. The next line
    counts the repeated requests in between."""

    clock: Callable[[], float] = time.monotonic
    show: Callable[[str], None] = _print
    _next: float = field(default=float("-inf"), init=False)
    _hidden: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self, request: str, cause: str, attempt: int, attempts: int, wait: float) -> None:
        """Attempt number `attempt` of `attempts` follows in `wait` seconds, because of `cause`."""
        with self._lock:
            now = self.clock()
            if now < self._next:
                self._hidden += 1
                return
            self._next = now + SECONDS_BETWEEN_LINES
            hidden, self._hidden = self._hidden, 0
        others = f"; {hidden:,} more retries since the last line" if hidden else ""
        self.show(
            f"Retrying {request} in {wait:g} s (attempt {attempt} of {attempts}): "
            f"{_shortened(cause, _CAUSE_CHARACTERS)}{others}"
        )


report_retry = RetryLines()
"""The reporter of this process: all endpoints share the limit on lines."""


def name_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """The start of the first user message, which names the goal."""
    for message in messages:
        content = message.get("content")
        if message.get("role") != "user":
            continue
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
        return f"{_shortened(' '.join(texts), _REQUEST_CHARACTERS)!r}"
    return "a request"


def _shortened(text: str, limit: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
