"""Calls that are kept on disk: each request is sent once, its cost is counted and limited, and no key is written."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers.agents.chat_server import Reply, serving
from pydantic import ValidationError

from vlm_agent.agents.as_trained import image_part
from vlm_agent.agents.llm import calls as calls_module
from vlm_agent.agents.llm.calls import CallLimits, Calls, CostLimitError, Pace
from vlm_agent.agents.llm.client import CallError, ChatEndpoint, EndpointError
from vlm_agent.agents.llm.completion import AcceptedForm
from vlm_agent.agents.llm.cost import Expense, Price, amount, estimated_tokens

LONG = "sk-0123456789abcdef"


def ask(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def reply(text: str = "tap", read: int = 100, written: int = 10) -> Reply:
    content = {
        "choices": [{"message": {"content": text}}],
        "usage": {"prompt_tokens": read, "completion_tokens": written},
    }
    return Reply(json.dumps(content).encode())


def calls_to(url: str, folder, model: str = "vlm", attempts: int = 3, **limits) -> Calls:
    return Calls(ChatEndpoint(url, model, 5.0, attempts, sleep=lambda seconds: None), folder, CallLimits(**limits))


def test_a_request_is_sent_once_and_answered_from_disk_later(tmp_path):
    with serving(lambda n, body: reply(f"reply {n}")) as (url, requests):
        first = [calls_to(url, tmp_path).completion(ask("a"), 16) for _ in range(3)]
        other = [
            calls_to(url, tmp_path).completion(ask("b"), 16),
            calls_to(url, tmp_path).completion(ask("a"), 17),
            calls_to(url, tmp_path, model="other").completion(ask("a"), 16),
        ]
    assert [one.text for one in (*first, *other)] == ["reply 0"] * 3 + ["reply 1", "reply 2", "reply 3"]
    assert {(one.tokens, one.calls, one.seconds) for one in first} == {((100, 10), 1, first[0].seconds)}
    assert len(requests) == 4


def test_the_same_request_of_several_threads_is_sent_once(tmp_path):
    def slow(n: int, body: dict) -> Reply:
        answer = reply(f"reply {n}")
        answer.wait = 0.3
        return answer

    with serving(slow) as (url, requests):
        shared, other = calls_to(url, tmp_path), calls_to(url, tmp_path)
        texts: list[str] = []
        threads = [
            threading.Thread(target=lambda each=each: texts.append(each.completion(ask("a"), 16).text))
            for each in (shared, shared, shared, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == ["reply 0"] * 4
    assert len(requests) == 1


def test_calls_need_no_locks_of_the_file_system(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", unsupported)
    with serving(lambda n, body: reply(f"reply {n}")) as (url, requests):
        texts = [calls_to(url, tmp_path).completion(ask("a"), 16).text for _ in range(2)]
    assert (texts, len(requests)) == (["reply 0"] * 2, 1)


def test_without_a_price_earlier_replies_are_not_read_at_the_start(tmp_path, monkeypatch):
    with serving(lambda n, body: reply()) as (url, _):
        first = calls_to(url, tmp_path)
        for number in range(5):
            first.completion(ask(str(number)), 16)
    read, numbers = calls_module._read, []
    monkeypatch.setattr(calls_module, "_read", lambda path: numbers.append(1) or read(path))
    calls_to(url, tmp_path)
    assert len(numbers) == 1
    calls_to(url, tmp_path, price=Price(read=1, written=1))
    assert len(numbers) == 6


def test_a_failed_call_is_not_kept_and_is_sent_again(tmp_path):
    with serving(lambda n, body: Reply(b"busy", 503) if n < 3 else reply()) as (url, requests):
        with pytest.raises(CallError, match="503"):
            calls_to(url, tmp_path).completion(ask("a"), 16)
        again = calls_to(url, tmp_path)
        assert again.completion(ask("a"), 16).text == "tap"
    assert len(requests) == 4
    assert "lost" not in again.spending()


def test_tokens_and_money_of_new_and_earlier_calls_are_reported(tmp_path):
    price = Price(read=2.5, written=10)
    with serving(lambda n, body: Reply(b"busy", 503) if n == 0 else reply(read=1_000_000, written=20_000)) as (url, _):
        first = calls_to(url, tmp_path, price=price)
        first.completion(ask("a"), 16)
        second = calls_to(url, tmp_path, price=price)
        second.completion(ask("a"), 16)
        second.completion(ask("b"), 16)
    assert first.spending() == "New: 1 calls, 1,000,000 tokens read, 20,000 written, cost 2.70 (1 requests repeated)"
    assert second.spending() == (
        "New: 1 calls, 1,000,000 tokens read, 20,000 written, cost 2.70 "
        "(1 replies from disk, cost with earlier commands 5.40)"
    )


def test_a_server_that_does_not_report_tokens_is_charged_by_the_estimate(tmp_path):
    with serving(lambda n, body: Reply("tap")) as (url, _):
        calls = calls_to(url, tmp_path)
        calls.completion(ask("x" * 400), 16)
    assert calls.spending() == "New: 1 calls, 105 tokens read, 1 written (1 calls with estimated tokens)"


def test_the_cost_never_exceeds_the_limit_and_a_higher_limit_continues(tmp_path):
    limits = {"price": Price(read=0, written=1_000_000), "max_cost": 45}
    with serving(lambda n, body: reply(written=10)) as (url, requests):
        calls = calls_to(url, tmp_path, **limits)
        for number in range(4):
            calls.completion(ask(str(number)), 10)
        with pytest.raises(CostLimitError, match=r"cost 40.00 of at most 45.00.*higher --max-cost"):
            calls.completion(ask("4"), 10)
        resumed = calls_to(url, tmp_path, **limits)
        assert resumed.completion(ask("3"), 10).text == "tap"  # from disk, so it costs nothing
        with pytest.raises(CostLimitError):
            resumed.completion(ask("4"), 10)
        calls_to(url, tmp_path, **limits | {"max_cost": 50}).completion(ask("4"), 10)
    assert len(requests) == 5


IN_PARTS = json.dumps(
    {
        "choices": [{"message": {"content": {"type": "text", "text": "tap"}}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }
).encode()
UNUSABLE = {
    "content of another kind": (Reply(IN_PARTS), 10),
    "content of another kind, without usage": (Reply([{"type": "text"}]), 16),
    "broken off": (Reply("tap", cut=True), 16),
    "broken off by a proxy": (Reply(IN_PARTS[:40]), 16),
    "too late": (Reply("tap", wait=0.6), 16),
    "busy": (Reply(b"busy", 503), 0),
    "of something else": (Reply(b"<html>log in</html>"), 0),
}
"""A reply that cannot be used, and the tokens that it costs: those that it states, or else at most `max_tokens`."""


@pytest.mark.parametrize("fault", UNUSABLE)
def test_replies_that_cannot_be_used_and_may_be_billed_count_now_and_for_later_commands(tmp_path, fault):
    bad, tokens = UNUSABLE[fault]
    price = Price(read=0, written=1_000_000)
    with serving(lambda n, body: bad if n < 3 else reply()) as (url, requests):

        def calls() -> Calls:
            return Calls(ChatEndpoint(url, "vlm", 0.3, 2, lambda seconds: None), tmp_path, CallLimits(price=price))

        first = calls()
        with pytest.raises(CallError):
            first.completion(ask("a"), 16)
        assert f"cost {amount(2.0 * tokens)}" in first.spending()
        assert ("2 replies of no use" in first.spending()) is bool(tokens)
        second = calls()
        second.completion(ask("a"), 16)
        assert f"cost {amount(10.0 + tokens)}" in second.spending()
        for later in (second, calls()):
            assert tokens == 0 or f"cost with earlier commands {amount(10.0 + 3 * tokens)}" in later.spending()
    assert len(requests) == 4
    assert not list(tmp_path.rglob("*.asked"))


@pytest.mark.parametrize("fault", [fault for fault, (_, tokens) in UNUSABLE.items() if tokens])
def test_no_attempt_exceeds_the_limit_of_cost(tmp_path, fault):
    bad, tokens = UNUSABLE[fault]
    limits = CallLimits(price=Price(read=0, written=1_000_000), max_cost=2 * tokens + 16)
    with serving(lambda n, body: bad) as (url, requests):
        for number in range(2):
            calls = Calls(ChatEndpoint(url, "vlm", 0.3, 9, lambda seconds: None), tmp_path, limits)
            with pytest.raises(CostLimitError, match=f"cost {amount(3.0 * tokens)} of at most"):
                calls.completion(ask(str(number)), 16)
    assert len(requests) == 3


def test_concurrent_calls_reserve_their_cost(tmp_path):
    """Replies of 10 tokens; four at once, of up to 20 tokens each, could cost 80, so only two fit into 45."""
    meeting = threading.Barrier(2, timeout=10)

    def meet(n: int, body: dict) -> Reply:
        return reply(written=20)

    with serving(meet) as (url, requests):
        calls = calls_to(url, tmp_path, price=Price(read=0, written=1_000_000), max_cost=45)
        post = calls.chat._post

        class Meeting(ChatEndpoint):
            def _post(self, *arguments):
                meeting.wait()
                return post(*arguments)

        calls.chat = Meeting(url, "vlm", accepted=AcceptedForm(is_known=True))
        errors: list[Exception] = []

        def run(number: int) -> None:
            try:
                calls.completion(ask(str(number)), 20)
            except CostLimitError as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(requests), len(errors)) == (2, 2)


def test_the_cost_of_a_call_is_reserved_until_it_is_spent(tmp_path):
    class Watched:
        def __enter__(self):
            pass

        def __exit__(self, *_):
            seen.append((calls._totals.reserved + calls._totals.spent).written)

    with serving(lambda n, body: reply(written=10)) as (url, _):
        calls, seen = calls_to(url, tmp_path), list[int]()
        calls._lock = Watched()
        calls.completion(ask("a"), 16)
    assert set(seen) == {16, 10}


def test_a_limit_without_a_price_is_an_error():
    with pytest.raises(ValidationError, match="max_cost needs a price"):
        CallLimits(max_cost=1)


def test_the_pace_spaces_requests_evenly():
    now, waits = [0.0], list[float]()
    pace = Pace(30, clock=lambda: now[0], sleep=waits.append)
    pace()
    pace()
    pace()
    now[0] = 100.0
    pace()
    assert waits == [2.0, 4.0]


def test_the_rate_limit_counts_repeated_requests(tmp_path):
    turns: list[int] = []
    with serving(lambda n, body: Reply(b"busy", 429) if n < 2 else reply()) as (url, requests):
        calls = calls_to(url, tmp_path, requests_per_minute=600)
        assert isinstance(calls.pace, Pace)
        calls.chat = replace(calls.chat, pace=lambda: turns.append(len(requests)))
        calls.completion(ask("a"), 16)
    assert turns == [0, 1, 2]


@pytest.mark.parametrize("rate", [None, 60_000])
def test_after_a_stop_no_request_is_repeated_and_replies_on_disk_are_read(tmp_path, rate):
    def answer(n: int, body: dict) -> Reply:
        if n == 1:
            calls.stop()
        return reply() if n == 0 else Reply(b"busy", 500)

    with serving(answer) as (url, requests):
        calls = calls_to(url, tmp_path, attempts=100, requests_per_minute=rate)
        calls.completion(ask("a"), 16)
        for text in ("b", "c"):
            with pytest.raises(EndpointError, match="has been stopped"):
                calls.completion(ask(text), 16)
        assert calls.completion(ask("a"), 16).text == "tap"
    assert len(requests) == 2


def test_no_file_and_no_reply_holds_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", LONG)
    with serving(lambda n, body: reply(f"your key is {LONG}")) as (url, requests):
        calls = calls_to(url, tmp_path)
        assert calls.completion(ask("a"), 16).text == "your key is …"
    assert requests[0].key == f"Bearer {LONG}"
    assert all(LONG not in path.read_text() for path in tmp_path.rglob("*.json"))
    assert LONG not in repr(calls.chat)


def test_a_reply_that_utf8_cannot_hold_is_kept(tmp_path):
    with serving(lambda n, body: Reply(b'{"choices": [{"message": {"content": "\\ud800"}}]}')) as (url, _):
        assert [calls_to(url, tmp_path).completion(ask("a"), 16).text for _ in range(2)] == ["\ud800"] * 2


def test_an_endpoint_that_keeps_failing_counts_as_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(calls_module, "MOST_FAILURES", 3)
    with serving(lambda n, body: Reply(b"no memory", 500) if n else reply()) as (url, requests):
        calls = calls_to(url, tmp_path, attempts=1)
        calls.completion(ask("one that is answered"), 16)
        error = lost(calls, 2)
    assert error.startswith("3 calls failed one after the other") and "no memory" in error
    assert error.endswith("run the same command again to continue")
    assert len(requests) == 4


def test_refusals_of_the_end_of_a_long_episode_do_not_end_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(calls_module, "MOST_FAILURES", 3)
    monkeypatch.setattr(calls_module, "MOST_REFUSALS", 6)
    with serving(lambda n, body: reply() if n in (0, 6) else Reply(b"beyond the context", 400)) as (url, _):
        calls = calls_to(url, tmp_path)
        calls.completion(ask("answered"), 16)
        for number in range(5):
            with pytest.raises(CallError):
                calls.completion(ask(f"too long {number}"), 16)
        calls.completion(ask("the next episode"), 16)
        error = lost(calls, 5)
    assert error.startswith("6 calls failed one after the other")
    assert error.endswith("refuses the same request again unless it, or the agent's settings, are changed")


def lost(calls: Calls, failures: int) -> str:
    """The error of the first call after which no other is sent; `failures` fail before it."""
    for number in range(failures):
        with pytest.raises(CallError):
            calls.completion(ask(str(number)), 16)
    with pytest.raises(EndpointError) as caught:
        calls.completion(ask(str(failures)), 16)
    assert not isinstance(caught.value, CallError)
    return str(caught.value)


@pytest.mark.parametrize(
    "rubbish",
    [
        Reply(b"<html>a login page</html>"),
        Reply(b"oh", 500),
        Reply(b'{"choices": []}'),
        Reply(b"[1"),
        Reply(cut=True),
        Reply({"type": "text"}),
    ],
    ids=str,
)
def test_an_endpoint_that_has_answered_nothing_is_lost_after_five_failed_calls(tmp_path, rubbish):
    with serving(lambda n, body: rubbish) as (url, requests):
        assert "each of the first 5 calls failed, the last one with:" in lost(calls_to(url, tmp_path, attempts=2), 4)
    assert len(requests) == 10


def test_replies_that_came_too_late_are_no_sign_that_an_endpoint_answers(tmp_path):
    with serving(lambda n, body: Reply({"usage": {"prompt_tokens": 1, "completion_tokens": 1}})) as (url, _):
        for _ in range(2):
            assert "each of the first 5 calls failed" in lost(calls_to(url, tmp_path, attempts=1), 4)
        assert "earlier commands" in calls_to(url, tmp_path, price=Price(read=1, written=1)).spending()


def test_one_reply_now_or_in_an_earlier_command_is_enough_to_go_on(tmp_path):
    with serving(lambda n, body: Reply(b"oh", 500) if n else reply()) as (url, _):
        calls = calls_to(url, tmp_path, attempts=1)
        calls.completion(ask("first"), 16)
        later = calls_to(url, tmp_path, attempts=1)
        for number in range(7):
            for each in (calls, later):
                with pytest.raises(CallError):
                    each.completion(ask(str(number)), 16)


@pytest.mark.parametrize(("status", "about_key"), [(400, ""), (403, " (OPENAI_API_KEY is not set)")])
def test_an_endpoint_that_refuses_every_call_with_the_same_words_is_lost_after_the_second(tmp_path, status, about_key):
    words = "no pictures (request {:08x}{:04d})"
    with serving(lambda n, body: Reply(words.format(n, n).encode(), status)) as (url, requests):
        error = lost(calls_to(url, tmp_path), 1)
    shown = f"status {status}: no pictures (request 000000010001){about_key}"
    assert f"{shown}; so it did with each of the first 2 calls" in error
    assert len(requests) == 2


def test_refusals_for_different_reasons_are_failed_calls(tmp_path):
    reasons = ((b"too many pictures", 400), (b"a person is shown", 403), (b"too many pictures", 400), (b"long", 422))
    with serving(lambda n, body: Reply(*reasons[n]) if n < 4 else reply()) as (url, _):
        calls = calls_to(url, tmp_path)
        for number in range(4):
            with pytest.raises(CallError):
                calls.completion(ask(str(number)), 16)
        assert calls.completion(ask("4"), 16).text == "tap"


def test_notes_on_a_reply_are_read_from_disk(tmp_path):
    body = json.dumps({"choices": [{"message": {"content": None}, "finish_reason": "length"}]}).encode()
    with serving(lambda n, request: Reply(body)) as (url, _):
        fresh, stored = (calls_to(url, tmp_path).completion(ask("a"), 16) for _ in range(2))
    assert fresh.notes == stored.notes == ("empty, cut off by the limit of 16 tokens",)
    assert stored.from_disk


def test_a_server_that_has_answered_and_cannot_be_reached_is_a_failed_call(tmp_path):
    with serving(lambda n, body: reply()) as (url, _):
        calls = calls_to(url, tmp_path)
        calls.completion(ask("a"), 16)
    with pytest.raises(CallError, match="cannot be reached any more"):
        calls.completion(ask("b"), 16)
    with pytest.raises(EndpointError, match="is the server running") as caught:
        calls_to(url, tmp_path).completion(ask("b"), 16)
    assert not isinstance(caught.value, CallError)


KILLED = """
import sys
from pathlib import Path
from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import ChatEndpoint
calls = Calls(ChatEndpoint(sys.argv[1], "vlm"), Path(sys.argv[2]))
for number in range(4):
    print(calls.completion([{"role": "user", "content": str(number)}], 16).text, flush=True)
"""


def test_a_process_killed_between_reply_and_write_repeats_that_call_alone_and_reports_it(tmp_path):
    processes: list[subprocess.Popen] = []
    served: list[str] = []

    def answer(n: int, body: dict) -> Reply:
        served.append(body["messages"][0]["content"])
        if n == 2:
            os.kill(processes[0].pid, signal.SIGKILL)
        return reply(f"reply {n}")

    with serving(answer) as (url, _):
        command = [sys.executable, "-c", KILLED, url, str(tmp_path)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert processes[0].communicate(timeout=60)[0].split("\n")[:-1] == ["reply 0", "reply 1"]
        calls = calls_to(url, tmp_path, price=Price(read=0, written=1_000_000))
        texts = [calls.completion(ask(str(number)), 16).text for number in range(4)]
    assert texts == ["reply 0", "reply 1", "reply 3", "reply 4"]
    assert served == ["0", "1", "2", "2", "3"]
    assert "1 earlier replies lost" in calls.spending()
    assert "cost with earlier commands 56.00" in calls.spending()  # four replies of 10, and 16 at most for the lost one
    assert "cost with earlier" in (later := calls_to(url, tmp_path, price=Price(read=0, written=1_000_000))).spending()
    assert "56.00" in later.spending()
    assert not list(tmp_path.rglob("*.asked"))


def test_a_reply_that_cannot_be_written_counts_as_lost(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError("no space left on device")

    with serving(lambda n, body: reply()) as (url, requests):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
            patch.setattr(calls_module, "_write_reply", full)
            calls_to(url, tmp_path).completion(ask("a"), 16)
        calls = calls_to(url, tmp_path)
        assert calls.completion(ask("a"), 16).text == "tap"
    assert "1 earlier replies lost" in calls.spending()
    assert len(requests) == 2


@pytest.mark.parametrize("price", [None, Price(read=0, written=1_000_000)])
def test_a_marker_beside_its_reply_is_removed_and_costs_nothing(tmp_path, price):
    """A process was killed after writing the reply, before removing the marker."""
    with serving(lambda n, body: reply()) as (url, _):
        calls = calls_to(url, tmp_path)
        calls.completion(ask("a"), 16)
        marker = calls.path(ask("a"), 16).with_suffix(".asked")
        marker.write_text(json.dumps({"model": "vlm", "replies": 1, "read": 5, "written": 16}))
        again = calls_to(url, tmp_path, price=price)
    assert price is None or "cost with earlier commands 10.00" in again.spending()
    assert "lost" not in again.spending()
    assert not marker.exists()


def test_the_estimate_counts_texts_and_pictures():
    picture = image_part(np.zeros((57, 28, 3), np.uint8))
    messages = [
        {"role": "system", "content": "x" * 9},
        {"role": "user", "content": [{"type": "text", "text": "é"}, picture]},
    ]
    assert estimated_tokens(messages) == (5 + 3) + (5 + 1 + 3)


def test_only_requests_that_were_not_answered_are_expected_to_cost(tmp_path):
    with serving(lambda n, body: reply()) as (url, _):
        calls = calls_to(url, tmp_path)
        calls.completion(ask("a"), 16)
    assert calls.expected(ask("a"), 16, 7) == Expense()
    assert calls.expected(ask("abcd"), 16, 7) == Expense(1, 6, 7)


@pytest.mark.parametrize(
    ("money", "text"), [(0, "0.00"), (12.5, "12.50"), (0.0317, "0.0317"), (0.5, "0.500"), (1e-12, "0.000000000")]
)
def test_small_amounts_have_more_decimals(money, text):
    assert amount(money) == text
