"""Replies of a served model become JSON objects and plans, or a reason why they do not. Nothing is evaluated.

Shared by agents that prompt a model, and by the annotation of recorded steps.
"""

import json
import re
from dataclasses import dataclass

from vlm_agent.sentences.html import one_line

MOST_CHARACTERS = 100_000
"""A longer reply is not read. 300 tokens are about 1,200 characters."""

_SENT_CHARACTERS = 2_000
"""Of a reply, or of a text in it, prompts have only the beginning."""

MOST_LINES = 100
"""Lines of a plan; further ones are left out."""

_CUT = "its JSON object is cut off before its end; write less"
_JSON = json.JSONDecoder(strict=False)  # a line break within a string is read
_STARTS = 50  # opening braces that are tried
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


def read_object(text: str) -> dict:
    """The first JSON object in `text`, which may have fences and other text around it. Raises UnreadReplyError."""
    if len(text) > MOST_CHARACTERS:
        raise UnreadReplyError(f"it is longer than {MOST_CHARACTERS:,} characters")
    start, reason = -1, "it has no JSON object"
    for _ in range(_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            break
        try:
            content, _end = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError) as error:  # no JSON; nested too deeply
            if reason != _CUT:
                reason = _CUT if _breaks_off(error, text) else "it has no valid JSON object"
            continue
        return content
    raise UnreadReplyError(reason)


def _breaks_off(error: Exception, text: str) -> bool:
    """Whether an object is valid up to the end of the text, as where a reply is longer than `max_tokens`."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())


def read_plan(text: str, with_step: bool) -> Plan:
    """The plan of `{"plan": …, "step": …}`: a list of texts, or one text of several lines. Raises UnreadReplyError."""
    content = read_object(text)
    lines = _lines(content.get("plan"))
    if not lines:
        raise UnreadReplyError('"plan" must be a text with a numbered line for each action')
    if not with_step:
        return Plan(lines)
    step = content.get("step")
    if not isinstance(step, str) or not _line(step):
        raise UnreadReplyError('"step" must be a text: the first line of the plan')
    return Plan(lines, _line(step))


def _lines(plan: object) -> tuple[str, ...]:
    parts = plan.splitlines() if isinstance(plan, str) else plan if isinstance(plan, list) else ()
    if not all(isinstance(part, str) for part in parts):
        return ()
    lines = [_line(part) for part in parts[:MOST_LINES]]
    return tuple(line for line in lines if line)


def _line(text: str) -> str:
    """On one line, without a number before it."""
    return _NUMBER.sub("", printable(text))


def sendable(text: str) -> str:
    """A reply as a turn of a chat: shortened, not empty, without lone surrogates, which no request can hold."""
    return text[:_SENT_CHARACTERS].encode("utf-8", "replace").decode().strip() or "(empty)"


def printable(text: str) -> str:
    """On one line, shortened, because later prompts repeat it; a lone surrogate becomes a question mark."""
    return one_line(text[:_SENT_CHARACTERS])
