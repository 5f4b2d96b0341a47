"""Repeated requests are visible on the terminal, and do not flood it."""

import pytest
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents.llm import client
from vlm_agent.agents.llm.client import CallError, ChatEndpoint, RetryLines

HTML = b"<html>\x1b[31m<h1>Not an endpoint</h1></html>"


@pytest.fixture
def now(monkeypatch):
    """The time of the process's `RetryLines`, as a list of one number."""
    now = [0.0]
    monkeypatch.setattr(client, "report_retry", RetryLines(clock=lambda: now[0]))
    return now


def call(url: str, attempts: int, sleep=lambda seconds: None) -> str:
    messages = [{"role": "system", "content": "Operate."}, {"role": "user", "content": "Goal: [bold]open\x07 maps" * 9}]
    return ChatEndpoint(url, "mine", attempts=attempts, sleep=sleep).completion(messages, 8).text


def test_a_server_that_answers_html_is_reported_before_the_wait(now, capsys):
    seen = []
    with serving(lambda n, body: Reply(HTML) if n == 0 else Reply("done")) as (url, _):
        assert call(url, 2, lambda seconds: seen.append((seconds, capsys.readouterr().err))) == "done"
    [(seconds, line)] = seen
    assert seconds == 1.0
    assert line.startswith(f"Retrying {url}/v1/chat/completions, 'Goal: [bold]open\\x07 maps")
    assert "in 1 s (attempt 2 of 2): the response is not a chat completion: <html>" in line
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()


def test_many_retries_are_one_line_and_a_count(now, capsys):
    def pass_time(seconds: float) -> None:
        now[0] += 1.0

    with serving(lambda n, body: Reply(b"busy", 503)) as (url, _), pytest.raises(CallError, match="12 times"):
        call(url, 12, pass_time)
    first, second = capsys.readouterr().err.splitlines()
    assert "(attempt 2 of 12): status 503: busy" in first
    assert second.endswith("; 9 more retries since the last line")


def test_a_reply_at_the_first_attempt_prints_nothing(now, capsys):
    with serving(lambda n, body: Reply("done")) as (url, _):
        call(url, 2)
    assert capsys.readouterr() == ("", "")
