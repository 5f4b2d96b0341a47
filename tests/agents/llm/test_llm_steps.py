"""A reply that cannot be read is asked for once more."""

from typing import ClassVar

import pytest

from vlm_agent.agents.llm.prompted import RepairedCalls
from vlm_agent.agents.llm.prompts import PromptFile
from vlm_agent.agents.llm.replies import UnreadReplyError


class Prompts(PromptFile):
    PLACEHOLDERS: ClassVar = {"repair": {"reason"}}

    repair: str = "Again: $reason"


class Server:
    """Replies in order. `asked`: the messages of each call."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.asked = list(replies), []

    def ask(self, messages, *about) -> str:
        self.asked.append([message["content"] for message in messages])
        return self.replies.pop(0)


def number(text: str) -> int:
    if not text.isdigit():
        raise UnreadReplyError(f"{text} is no number")
    return int(text)


def calls(*replies: str) -> RepairedCalls:
    return RepairedCalls(Server(*replies), Prompts(), 9)


QUESTION = [{"role": "user", "content": "how many?"}]


def test_only_replies_that_were_asked_for_once_more_are_counted():
    of_step = calls("4", "four", "5", "many", "6")
    assert of_step.read(QUESTION, number, "1", 1) == 4
    assert of_step.repaired == 0
    assert of_step.read(QUESTION, number, "1", 1) == 5
    assert of_step.repaired == 1
    assert of_step.replies.asked[2] == ["how many?", "four", "Again: four is no number"]
    assert of_step.read(QUESTION, number, "1", 1, counts=False) == 6
    assert of_step.repaired == 1, "another step counts this call"


def test_the_error_of_a_second_unreadable_reply_has_its_text():
    with pytest.raises(UnreadReplyError, match="some is no number") as raised:
        calls("many", "some").read(QUESTION, number, "1", 1)
    assert raised.value.text == "some"
