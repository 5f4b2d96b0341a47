"""Replies of a served model become JSON objects, or a plan, or a reason why they do not. Nothing is evaluated.

Shared by agents that prompt a model, and by the annotation of recorded steps.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from vlm_agent.texts.lines import MOST_SHOWN, printable

MOST_CHARACTERS = 100_000
"""A longer reply is not read. 300 tokens are about 1,200 characters."""

MOST_LINES = 100
"""Lines of a plan; further ones are left out."""

_CUT = "its JSON object is cut off before its end; write less"
STARTS = 50  # opening braces that are tried
_NUMBER = re.compile(r"^(?:step [0-9]{1,3} ?[.):]|[0-9]{1,3}[.)](?= )) ?", re.IGNORECASE)


class UnreadReplyError(Exception):
    """A reply that is not what was asked for. The message is the reason, a clause for the model and for reports.

    `text`: the reply.
    """

    text: str = ""


@dataclass(frozen=True)
class Plan:
    """`lines`: of the plan, without numbers. `step`: the immediate step, empty if it was not asked for."""

    lines: tuple[str, ...]
    step: str = ""


def read_object(text: str, key: str) -> dict[str, Any]:
    """The JSON object with `key` in `text`, which may have fences and other text around it.

    Raises UnreadReplyError without one, or with several that differ, as where a model writes down what it rejects.
    """
    if len(text) > MOST_CHARACTERS:
        raise UnreadReplyError(f"it is longer than {MOST_CHARACTERS:,} characters")
    found: list[dict[str, Any]] = []
    at, reason = 0, "it has no JSON object"
    for _ in range(STARTS):
        start = text.find("{", at)
        if start < 0:
            break
        try:
            content, at = JSON.raw_decode(text, start)
        except (ValueError, RecursionError) as error:  # no JSON; nested too deeply
            at = start + 1
            if reason != _CUT:
                reason = _CUT if _breaks_off(error, text) else "it has no valid JSON object"
            continue
        if content not in found:
            found.append(content)
    candidates = [content for content in found if key in content] or found[:1]
    if not candidates:
        raise UnreadReplyError(reason)
    if len(candidates) > 1:
        raise UnreadReplyError("it has several JSON objects that differ; answer with one")
    return candidates[0]


class RepeatedKeyError(ValueError):
    """A JSON object has two values for a key."""


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise RepeatedKeyError("a key is repeated")
    return content


JSON = json.JSONDecoder(strict=False, object_pairs_hook=_object_without_repeats)
"""Refuses a repeated key, and reads a line break within a string."""


def _breaks_off(error: Exception, text: str) -> bool:
    """Whether an object is valid up to the end of the text, as where a reply is longer than `max_tokens`."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())


def read_plan(text: str, with_step: bool) -> Plan:
    """The plan of `{"plan": …, "step": …}`: a list of texts, or one text of several lines. Raises UnreadReplyError."""
    content = read_object(text, "plan")
    lines = _lines(content.get("plan"))
    if not lines:
        raise UnreadReplyError('"plan" must be a text with a numbered line for each action')
    if not with_step:
        return Plan(lines)
    step = content.get("step")
    if not isinstance(step, str) or not plan_line(step):
        raise UnreadReplyError('"step" must be a text: the first line of the plan')
    return Plan(lines, plan_line(step))


def _lines(plan: object) -> tuple[str, ...]:
    parts = plan.splitlines() if isinstance(plan, str) else plan if isinstance(plan, list) else ()
    if not all(isinstance(part, str) for part in parts):
        return ()
    lines = [plan_line(part) for part in parts[:MOST_LINES]]
    return tuple(line for line in lines if line)


def plan_line(text: str) -> str:
    """A line of a plan, without a number before it."""
    return _NUMBER.sub("", printable(text))


def sendable(text: str) -> str:
    """A reply as a turn of a chat: shortened, not empty, without lone surrogates, which no request can hold."""
    return text[:MOST_SHOWN].encode("utf-8", "replace").decode().strip() or "(empty)"
