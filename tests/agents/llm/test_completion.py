"""Replies without a text, with their cause, and replies whose text is in parts or follows a reasoning."""

import json

import pytest

from vlm_agent.agents.agent import Usage
from vlm_agent.agents.llm.completion import NoCompletionError, after_reasoning, read_completion
from vlm_agent.agents.llm.prompted import Replies

CUT = "cut off by the limit of 1,024 tokens"


def body(finish_reason: str | None = "stop", **message) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish_reason}]}).encode()


@pytest.mark.parametrize(
    ("message", "finish_reason", "note"),
    [
        ({"content": None}, "stop", "without a cause from the server"),
        ({}, None, "without a cause from the server"),
        ({"content": ""}, "stop", "without a cause from the server"),
        ({"content": " \n\t"}, "stop", "without a cause from the server"),
        ({"content": []}, "stop", "without a cause from the server"),
        ({"content": None}, "length", CUT),
        ({"content": "  "}, "length", CUT),
        ({"content": None, "reasoning_content": "First I"}, "length", f"{CUT} during the reasoning"),
        ({"content": "", "reasoning": "First I"}, "length", f"{CUT} during the reasoning"),
        ({"content": "<think>First I"}, "length", f"{CUT} during the reasoning"),
        ({"content": None, "reasoning_content": "First I"}, "stop", "with reasoning alone"),
        ({"content": "", "reasoning": "First I"}, "stop", "with reasoning alone"),
        ({"content": "<think>First I</think>\n"}, "stop", "with reasoning alone"),
        ({"content": [{"type": "thinking", "thinking": []}]}, "stop", "with reasoning alone"),
        ({"content": None, "tool_calls": [{"id": "1"}]}, "tool_calls", "with a tool call in place of text"),
        ({"content": None, "function_call": {"name": "tap"}}, "stop", "with a tool call in place of text"),
        ({"content": None, "refusal": "I cannot"}, "stop", "refused by the model"),
        ({"content": None}, "content_filter", "withheld by the server's content filter"),
    ],
)
def test_an_empty_reply_has_its_cause(message, finish_reason, note):
    completion = read_completion(body(finish_reason, **message), 1024)
    assert not completion.answer.strip()
    assert completion.notes == (f"empty, {note}",)


def test_a_text_that_is_cut_off_is_noted():
    assert read_completion(body("length", content="press"), 1024).notes == (CUT,)
    assert read_completion(body("stop", content="press"), 1024).notes == ()


def test_the_text_parts_of_a_content_are_its_text():
    parts = [
        {"type": "thinking", "thinking": "x"},
        {"type": "text", "text": "press "},
        {"type": "text", "text": "home"},
    ]
    assert read_completion(body(content=parts), 9).text == "press home"


@pytest.mark.parametrize("content", [5, True, {"type": "text"}, [{"type": "text"}], [5], ["press home"]])
def test_a_content_of_another_kind_is_no_completion(content):
    with pytest.raises(NoCompletionError, match="not text"):
        read_completion(body(content=content), 9)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>press back?</think>\n\npress home", "press home"),
        ("press back?\n</think>press home", "press home"),
        ("press home", "press home"),
        ("press <think> home", "press <think> home"),
        ("\n<think>press back, or\npress home", ""),
        ("Press home.", "Press home."),
    ],
)
def test_the_answer_follows_the_reasoning_and_is_otherwise_unchanged(text, answer):
    assert after_reasoning(text) == answer
    assert read_completion(body(content=text), 9).text == text


def test_a_step_without_a_call_that_counts_costs_nothing():
    assert Replies(calls=None).usage() == Usage(0, 0, 0, 0.0)
