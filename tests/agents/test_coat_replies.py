"""The prompting agent: what the model's replies become, and calls that fail."""

import random
import time
from collections import Counter

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.agents.coat_steps import CALL, PLAIN, agent, asked, text_of

from vlm_agent.agents.llm.client import EndpointError
from vlm_agent.episodes import Action


@pytest.mark.parametrize(
    ("reply", "action", "thoughts"),
    [
        (CALL, Action.tap(0.625, 0.5), ("the cart is full", "click on Clear cart")),
        (f"Sure!\n```json\n{CALL}\n```", Action.tap(0.625, 0.5), ("the cart is full", "click on Clear cart")),
        ('{"THINK": "cut', None, ("", "")),
        ('{"THINK": 7, "ACTION": "press_home", "ARGS": {}}', Action.press("home"), ("", "")),
        ('{"ACTION": "click_element", "ARGS": {"idx": 3}}', None, ("", "")),
        ("no idea", None, ("", "")),
        ("", None, ("", "")),
    ],
)
def test_an_answer_becomes_thoughts_and_an_action_or_none(tmp_path, reply, action, thoughts):
    _, answer = asked(tmp_path, mode="cot", reply=reply)
    assert (answer.text, answer.action, answer.failed) == (reply, action, None)
    assert tuple(answer.notes.get(name, "") for name in ("think", "action")) == thoughts
    assert set(answer.notes) <= {"think", "action"}


def test_generated_replies_are_read(tmp_path):
    """Replies with parts removed, repeated and exchanged: never an exception, and thoughts are always on one line."""
    coat, rng = agent("http://localhost:1", tmp_path), random.Random(0)
    pieces = [
        *'{}[]",:\\\n`0',
        "```json\n",
        '"THINK":',
        '"NEXT": "',
        '"ACTION"',
        '"ARGS": {',
        "null",
        "1e999",
        "\ud800",
    ]
    bodies = [CALL, CALL.replace('"idx": 1', '"bbox": [0, 10, 200, 999]'), "CLICK(0.5, 0.5)", "I press home.", ""]
    screen, counts = PLAIN.steps[0].screen, Counter()
    for _ in range(20_000):
        text = rng.choice(bodies)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(pieces) * rng.choice((0, 1, 3)) + text[at + rng.choice((0, 1, 20)) :]
        answer = coat.read(text, screen)
        assert not any("\n" in text for text in answer.notes.values())
        counts["actions"] += answer.action is not None
        counts["thoughts"] += bool(answer.notes.get("think"))
        counts["boxes"] += answer.box is not None
    assert all(2_000 < counts[name] < 18_000 for name in ("actions", "thoughts", "boxes"))


@pytest.mark.parametrize(
    "text", ['"THINK": ' * 100_000, '"THINK": "' * 90_000, '"THINK"' + " " * 1_000_000, '"THINK": "' + "\\" * 1_000_001]
)
def test_a_megabyte_of_thoughts_is_read_within_seconds(tmp_path, text):
    start = time.process_time()
    assert agent("http://localhost:1", tmp_path).read(text, PLAIN.steps[0].screen).action is None
    assert time.process_time() - start < 5


def test_a_step_whose_call_fails_has_no_action_and_a_reason(tmp_path):
    with serving(lambda n, body: Reply(b"too large", 413) if n else Reply("a page")) as (url, _):
        answer = agent(url, tmp_path, texts="model").act("goal", [], PLAIN.steps[0].screen)
    assert answer.action is None
    assert "413: too large" in answer.failed
    assert answer.usage.calls is None  # one call was paid, but the cost of the whole step is unknown


@pytest.mark.parametrize("status", [401, 404])
def test_an_endpoint_that_cannot_be_used_is_an_error(tmp_path, status):
    with serving(lambda n, body: Reply(b"no", status)) as (url, _), pytest.raises(EndpointError):
        agent(url, tmp_path).act("goal", [], PLAIN.steps[0].screen)


def test_an_error_ends_the_calls_of_other_threads_without_another_request(tmp_path):
    def answer(n: int, body: dict) -> Reply:
        if "so far" in text_of(body["messages"]):
            return Reply(b"busy", 500, {"Retry-After": "1"})
        return Reply(b"no", 401, wait=0.3)  # of the first step

    start = time.perf_counter()
    with serving(answer) as (url, requests), pytest.raises(EndpointError, match="requires a key"):
        agent(url, tmp_path, attempts=20, concurrency=3).answer_episodes([PLAIN])
    assert time.perf_counter() - start < 5
    assert len(requests) <= 6
