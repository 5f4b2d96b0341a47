"""Lines on the terminal about repeated requests, so that a failing server is visible while a command waits for it."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vlm_agent.files.console import make_console

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
