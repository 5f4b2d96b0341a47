"""Parameters of a request that a model may refuse: reasoning models take no `max_tokens`, and one temperature alone."""

import json
import re
import threading
from collections.abc import Iterator
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
