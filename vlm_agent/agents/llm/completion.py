"""The reply of a chat endpoint: its text, its tokens, and why a text is empty or incomplete."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Tokens = tuple[int, int]
"""(prompt, completion), as the server counts them."""

EMPTY, CUT_OFF = "empty", "cut off by the limit of"
DURING_REASONING, REASONING_ALONE = "during the reasoning", "with reasoning alone"
TOOL_CALL = "with a tool call in place of text"
"""Words of notes. `EMPTY` begins one about a reply without text."""

_MOST_TOKENS = 1 << 32  # A larger count cannot be one, and sums of such counts do not fit into a file of predictions.

_REASONING = ("reasoning_content", "reasoning")
"""Fields of a message in which servers return the reasoning: vLLM, SGLang and llama.cpp; newer vLLM and Ollama."""

_THINK_END = "</think>"


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

    The start mark may be missing, because many chat templates write it into the prompt. A text without the end mark is
    unchanged.
    """
    _, end, answer = text.partition(_THINK_END)
    return answer.lstrip() if end else text


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
        raise NoCompletionError("the response is not a chat completion", tokens is not None, tokens) from None
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
        reasons = f" {DURING_REASONING}" if _has_reasoning(message) else ""
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
