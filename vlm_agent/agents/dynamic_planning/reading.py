"""Replies become thoughts, verdicts and actions, or a reason why they do not (`agents/llm/replies.py`: a plan)."""

import re

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.llm.replies import MOST_CHARACTERS, UnreadReplyError, read_object
from vlm_agent.episodes import Action, Screen
from vlm_agent.texts.lines import printable

_ACTION = re.compile(r"^[ \t]{0,8}[*#_]{0,3}action[*_]{0,3}[ \t]{0,8}:[*_]{0,3}", re.IGNORECASE | re.MULTILINE)
_THOUGHT = re.compile(r"^\s{0,8}[*#_]{0,3}thought[*_]{0,3}\s{0,8}:[*_]{0,3}", re.IGNORECASE)


def read_verdict(text: str) -> tuple[bool, str]:
    """(whether the action is right, why) of `{"right": …, "reason": …}`. Raises UnreadReplyError."""
    content = read_object(text, "right")
    right, reason = content.get("right"), content.get("reason", "")
    if not isinstance(right, bool):
        raise UnreadReplyError('"right" must be true or false')
    return right, printable(reason) if isinstance(reason, str) else ""


def read_description(text: str) -> str:
    """A description of the next action, on one line. Raises UnreadReplyError for an empty one."""
    if len(text) > MOST_CHARACTERS:
        raise UnreadReplyError(f"it is longer than {MOST_CHARACTERS:,} characters")
    if not (line := printable(text)):
        raise UnreadReplyError("it is empty")
    return line


def split_thought(text: str) -> tuple[str, str]:
    """(thought, action) of a reply `Thought: …` with a line `Action: …`; without that line, no thought."""
    match = _ACTION.search(text)
    if match is None:
        return "", text.strip()
    return printable(_THOUGHT.sub("", text[: match.start()])), text[match.end() :].strip()


def without_label(text: str) -> str:
    """A reply without `Action:` before it, the form in which prompts show earlier answers and examples."""
    text = text.strip()
    match = _ACTION.match(text)
    return text if match is None else text[match.end() :].strip()


def read_action(text: str, language: ActionLanguage, screen: Screen) -> Action:
    """Raises UnreadReplyError for a reply that is not an action on this screen."""
    if len(text) > MOST_CHARACTERS:
        raise UnreadReplyError(f"it is longer than {MOST_CHARACTERS:,} characters")
    action = language.decode(text, screen)
    if action is not None:
        return action
    if not text.strip():
        raise UnreadReplyError("it is empty")
    raise UnreadReplyError(language.problem(text, screen) or "it is not one of the actions, in the required form")
