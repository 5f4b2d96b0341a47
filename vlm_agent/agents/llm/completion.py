"""What a chat endpoint is sent and returns: parameters that a model may refuse, and its reply.

Reasoning models take no `max_tokens`, and one temperature alone.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

_LIMIT, _TEMPERATURE = "max_tokens", "temperature"

_CODES = ("unsupported_parameter", "unsupported_value")
"""Codes of OpenAI's API, in an error whose `param` is the parameter."""

_REFUSAL = re.compile(
    r"unsupported|not support|n't support|not allowed|not permitted|not accept|n't accept|not compatible|incompatible"
    r"|forbidden|deprecated|unknown|unrecogni[sz]ed|unexpected|only .{0,40}(?:supported|allowed)"
    r"|use \W?max_completion_tokens"
)
_VALUE_REFUSAL = re.compile(r"invalid|must be|should be|greater than|positive")
"""How other servers refuse a parameter, and the value 0 of a temperature. A `max_tokens` that must be smaller is not
meant."""

_MOST_READ = 4_000


@dataclass(frozen=True)
class Form:
    """How requests state the limit of an answer and the temperature 0: both as OpenAI's first models took them."""

    completion_limit: bool = False
    has_temperature: bool = True

    def parameters(self, max_tokens: int) -> dict[str, Any]:
        limit = "max_completion_tokens" if self.completion_limit else _LIMIT
        return {limit: max_tokens} | ({_TEMPERATURE: 0} if self.has_temperature else {})

    def without(self, refused: frozenset[str]) -> "Form":
        return replace(
            self,
            completion_limit=self.completion_limit or _LIMIT in refused,
            has_temperature=self.has_temperature and _TEMPERATURE not in refused,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What differs from the usual request, for reports."""
        notes = {
            "requested with max_completion_tokens, because the model refuses max_tokens": self.completion_limit,
            "requested without temperature 0, which the model refuses": not self.has_temperature,
        }
        return tuple(note for note, applies in notes.items() if applies)


def refused_parameters(body: bytes) -> frozenset[str]:
    """The refused ones of `max_tokens` and `temperature`, by the body of a response of status 400 or 422."""
    error = _error(body)
    if error.get("code") in _CODES and error.get("param") in (_LIMIT, _TEMPERATURE):
        return frozenset((str(error["param"]),))
    text = body[:_MOST_READ].decode("utf-8", "replace").lower()
    found = {_LIMIT: _REFUSAL.search(text), _TEMPERATURE: _REFUSAL.search(text) or _VALUE_REFUSAL.search(text)}
    return frozenset(name for name, refusal in found.items() if refusal and re.search(rf"\b{name}\b", text))


def _error(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}


@dataclass
class AcceptedForm:
    """The form of request that a model accepts, of all threads that use one endpoint. `is_known`: it has responded.

    Until the first response the others wait, so that a refused parameter costs one request and not one per thread.
    """

    form: Form = field(default=Form())
    is_known: bool = False
    _first: threading.Lock = field(default_factory=threading.Lock, init=False)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Around a request: alone if it is the first."""
        if not self.is_known:
            with self._first:
                if not self.is_known:
                    try:
                        yield
                    finally:
                        self.is_known = True
                    return
        yield


Tokens = tuple[int, int]
"""(prompt, completion), as the server counts them."""

EMPTY, CUT_OFF = "empty", "cut off by the limit of"
DURING_REASONING, REASONING_ALONE = "during the reasoning", "with reasoning alone"
TOOL_CALL = "with a tool call in place of text"
"""Words of notes. `EMPTY` begins one about a reply without text."""

_MOST_TOKENS = 1 << 32  # A larger count cannot be one, and sums of such counts do not fit into a file of predictions.

_REASONING = ("reasoning_content", "reasoning")
"""Fields of a message in which servers return the reasoning: vLLM, SGLang and llama.cpp; newer vLLM and Ollama."""

_THINK_START, _THINK_END = "<think>", "</think>"


class NoCompletionError(Exception):
    """A response that is not a chat completion. `tokens`: as it states them; `is_billed`: whether a model answered."""

    def __init__(self, message: str, is_billed: bool, tokens: Tokens | None) -> None:
        super().__init__(message)
        self.is_billed, self.tokens = is_billed, tokens


@dataclass(frozen=True)
class Completion:
    """`text`: "" if the model returned none. `tokens`: (prompt, completion), None if the server does not report them.

    `calls`: the number of requests, retries included. `seconds`: wall time, with the waits between them. `from_disk`:
    the reply was on disk (`Calls`), so that nothing waited for it. `notes`: what a report counts about the reply: why
    its text is empty or incomplete, and how the request differed from the usual one.
    """

    text: str
    tokens: Tokens | None = None
    calls: int = 1
    seconds: float | None = field(default=None, compare=False)
    from_disk: bool = field(default=False, compare=False)
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """`text` without the reasoning before it."""
        return after_reasoning(self.text)

    @property
    def seconds_on_disk(self) -> float:
        return self.seconds if self.from_disk and self.seconds is not None else 0.0


def after_reasoning(text: str) -> str:
    """The answer after `<think>…</think>`, which a server without a parser of reasoning returns as text.

    The start mark may be missing, because many chat templates write it into the prompt. Reasoning that has a start mark
    and was cut off before its end has no answer: an action in it may be one that the model rejects.
    """
    _, end, answer = text.partition(_THINK_END)
    if end:
        return answer.lstrip()
    return "" if text.lstrip().startswith(_THINK_START) else text


def read_completion(body: bytes, max_tokens: int) -> Completion:
    """The completion in the body of a response to a request of at most `max_tokens`. Raises NoCompletionError."""
    tokens = None
    try:
        content = json.loads(body)
        tokens = _tokens(content.get("usage"))
        choice = content["choices"][0]
        message = choice["message"]
        text = _text(message.get("content"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        is_billed = tokens is not None or b'"choices"' in body  # cut off, or of another form
        raise NoCompletionError("the response is not a chat completion", is_billed, tokens) from None
    if text is None:
        raise NoCompletionError("the content of the completion is not text", True, tokens)
    return Completion(text, tokens, notes=tuple(_notes(text, message, choice.get("finish_reason"), max_tokens)))


def _text(content: object) -> str | None:
    """The text of a message, whose content may be a list of parts; "" without content, None if it is not text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    texts = [part.get("text") for part in content if part.get("type") in ("text", "output_text")]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None


def _notes(text: str, message: Mapping[str, Any], finish_reason: object, max_tokens: int) -> list[str]:
    is_empty = not after_reasoning(text).strip()
    if finish_reason == "length":
        cut = f"{CUT_OFF} {max_tokens:,} tokens"
        reasons = f" {DURING_REASONING}" if text.strip() or _has_reasoning(message) else ""
        return [f"{EMPTY}, {cut}{reasons}" if is_empty else cut]
    if is_empty:
        return [f"{EMPTY}, {_why_empty(text, message, finish_reason)}"]
    return ["with reasoning before </think>, which is not read"] if after_reasoning(text) != text else []


def _why_empty(text: str, message: Mapping[str, Any], finish_reason: object) -> str:
    if finish_reason == "content_filter":
        return "withheld by the server's content filter"
    if _is_text(message.get("refusal")):
        return "refused by the model"
    if message.get("tool_calls") or message.get("function_call"):
        return TOOL_CALL
    if text.strip() or _has_reasoning(message):
        return REASONING_ALONE
    return "without a cause from the server"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _has_reasoning(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    in_parts = any(part.get("type") in ("thinking", "reasoning") for part in parts)
    return in_parts or any(_is_text(message.get(name)) for name in _REASONING)


def _tokens(usage: object) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    return None if prompt is None or completion is None else (prompt, completion)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None
