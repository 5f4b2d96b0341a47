"""Readers of the texts of released agents: JSON objects, calls name(key=value, …), quoted texts and points.

Each is linear in the length of the text, bounded in its depth, and evaluates nothing.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from vlm_agent.action_languages.released.language import Call

_JSON = json.JSONDecoder(strict=False)
_MOST_STARTS = 8
_MOST_ARGUMENTS = 16

_NUMBER = r"-?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})"
_A_NUMBER = re.compile(_NUMBER)
_NUMBERS = re.compile(rf"([\[(]{{1,2}})\s*+({_NUMBER}(?:\s*+,\s*+{_NUMBER}){{0,3}})\s*+")
_CLOSED = {"(": ")", "[": "]", "((": "))", "[[": "]]", "([": "])", "[(": ")]"}
_WORD = re.compile(r"[A-Za-z]\w{0,30}+")
_KEY = re.compile(r"\s*+(\w{1,40}+)\s*+=\s*+")
_NEXT = re.compile(r"\s*+([,)}])")
_CALL = re.compile(r"\s*+([\w.]{1,40}+)\(")
_QUOTED_POINT = re.compile(
    rf"(?:<\|?\w{{1,20}}\|?>)?\s*+[\[(]?\s*+({_NUMBER}(?:[\s,]++{_NUMBER}){{1,3}}+)\s*+[\])]?\s*+(?:</?\|?\w{{1,20}}\|?>)?"
)
_ESCAPED = re.compile(r"\\([\\'\"nt])")
_MEANT = {"n": "\n", "t": "\t"}


def json_object(text: str, start: re.Pattern[str], starts: int = _MOST_STARTS) -> dict[str, Any] | None:
    """The first JSON object behind a match of `start`; None if none of the first `starts` matches is before one."""
    for match in islice(start.finditer(text), starts):
        try:
            content, _ = _JSON.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            return content
    return None


def json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class Quotes(NamedTuple):
    """How a quoted text ends, by its quotation mark, and the arguments whose text has escapes (None: all)."""

    ends: Mapping[str, re.Pattern[str]]
    escaped: frozenset[str] | None = None


def _quoted(ending: str, escapes: bool) -> dict[str, re.Pattern[str]]:
    """A text ends at the first quotation mark before `ending`; others are part of it.

    The alternative `(?!)`, which matches nothing, is for Python before 3.11.5: after a repetition of a possessive group
    that fails, it continues from where the last alternative failed.
    """
    plain = r"[^{0}\\]++|\\." if escapes else "[^{0}]++"
    return {
        quote: re.compile(rf"((?:{plain.format(quote)}|{quote}(?!\s*+{ending})|(?!))*+){quote}", re.DOTALL)
        for quote in "'\""
    }


ESCAPED = Quotes(_quoted(r"(?:,\s*+\w{1,40}+\s*+=|\))", escapes=True))
"""Texts with escapes. An unescaped quotation mark is part of the text unless a key or the end of the call follows."""


def raw(*keys: str, escaped: frozenset[str] = frozenset()) -> Quotes:
    """Texts without escapes: one ends before one of `keys`, or at the end of the whole text."""
    later = rf",\s*+(?:{'|'.join(keys)})\s*+=|" if keys else ""
    return Quotes(_quoted(rf"(?:{later}\)\s*+\Z)", escapes=False), escaped)


IN_OBJECT = Quotes(_quoted(r"(?:,\s*+['\"]\w{1,40}+['\"]\s*+:|\}\s*+(?:\Z|[{<]))", escapes=False), frozenset())
"""Texts without escapes in an object in braces."""


def unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _MEANT.get(found[1], found[1]), text) if "\\" in text else text


def escaped(text: str) -> str:
    """In single quotation marks; backslashes, such marks and line breaks are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def call(text: str, quotes: Quotes, at: int = 0) -> Call | None:
    """The call name(key=value, …) at `at`; None if none is there, or if an argument has no key."""
    opening = _CALL.match(text, at)
    if opening is None:
        return None
    if (closing := _NEXT.match(text, opening.end())) is not None:
        return Call(opening[1], {}) if closing[1] == ")" else None
    arguments = pairs(text, opening.end(), _KEY, quotes)
    return None if arguments is None else Call(opening[1], arguments)


def pairs(text: str, at: int, key: re.Pattern[str], quotes: Quotes) -> dict[str, Any] | None:
    """Keys and values up to the closing bracket; None if a value is none of those that `call` reads."""
    found: dict[str, Any] = {}
    for _ in range(_MOST_ARGUMENTS):
        named = key.match(text, at)
        if named is None or (value := _value(text, named.end(), named[1], quotes)) is None:
            return None
        found[named[1]], at = value
        if (closing := _NEXT.match(text, at)) is None:
            return None
        if closing[1] != ",":
            return found
        at = closing.end()
    return None


def _value(text: str, at: int, key: str, quotes: Quotes) -> tuple[Any, int] | None:
    """(text, number, list of numbers, or None for another word; its end)."""
    ending = quotes.ends.get(text[at : at + 1])
    if ending is not None:
        found = ending.match(text, at + 1)
        if found is None:
            return None
        has_escapes = quotes.escaped is None or key in quotes.escaped
        return unescaped(found[1]) if has_escapes else found[1], found.end()
    if text.startswith(("[", "("), at):
        found = _NUMBERS.match(text, at)
        if found is None:
            return None
        numbers = [float(number) for number in found[2].split(",")]
        closing = _CLOSED[found[1]]
        return (numbers, found.end() + len(closing)) if text.startswith(closing, found.end()) else None
    if (found := _A_NUMBER.match(text, at)) is not None:
        return float(found[0]), found.end()
    found = _WORD.match(text, at)
    return None if found is None else (None, found.end())


def quoted_point(text: str) -> list[float] | None:
    """The numbers of `(x,y)`, `x y` or four of them, in brackets and tags or without; None for another text."""
    found = _QUOTED_POINT.fullmatch(text.strip()) if len(text) < 200 else None
    return None if found is None else [float(number) for number in _A_NUMBER.findall(found[1])]
