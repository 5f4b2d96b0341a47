"""The prompting agent against servers that fail, and killed: every step is scored or listed, and no answer is lost.

The servers' own counts are the proof: a request whose reply is on disk never arrives again, and a reply that a killed
process did not write is counted in the files of `OUT/calls`.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import served_qwen, tiny
from helpers.chat_server import Reply, serving

from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.models.run_layout import MODEL_FOLDER

pytestmark = pytest.mark.slow

EPISODES = [tiny.episode(number) for number in range(18)]  # two parts
STEPS = sum(map(len, EPISODES))
CALLS = 3 * STEPS - len(EPISODES)  # description, result but at the first step, action

CALL = '{"THINK": "go on", "NEXT": "press home", "ACTION": "press_home", "ARGS": {}}'
TEXTS = (CALL, f"Here it is:\n```json\n{CALL}\n```", "I would press home", "", CALL[:-30], '{"ACTION": "press_')

COMMAND = """
import os, signal, sys
from vlm_agent.agents.llm import calls
from vlm_agent.cli import main

write, written = calls._write_reply, []

def killed(*arguments):
    written.append(1)
    if len(written) == int(os.environ["KILL_AT_WRITE"]):
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments)

calls._write_reply = killed
sys.exit(main(sys.argv[1:]))
"""


@dataclass
class Faults:
    """A server with faults. The first and second request for a prompt may fail; the prompts of `hopeless` always do.

    `replies`: complete replies by prompt. `repeated`: requests whose reply was on disk already.
    """

    calls: Calls
    answer: Callable[[int, dict], Reply]
    seed: int
    timeout: float = 1.0
    hopeless: float = 0.0
    kill_at: int | None = None
    process: subprocess.Popen | None = None
    requests: Counter = field(default_factory=Counter)
    replies: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)

    def __call__(self, number: int, body: dict) -> Reply:
        path = self.calls.path(body["messages"], body["max_tokens"])
        name = path.stem
        if path.exists():
            self.repeated.append(name)
        self.requests[name] += 1
        if self.kill_at is not None and number >= self.kill_at and self.process is not None:
            self.kill_at = None
            os.kill(self.process.pid, signal.SIGKILL)
        kind = self._kind(name)
        self.kinds[kind] += 1
        reply = self.answer(number, body)
        if kind == "reply":
            self.replies[name] += 1
            return reply
        return {
            "429": lambda: Reply(b"slow down", 429, {"Retry-After": "0"}),
            "500": lambda: Reply(b"oops", 500, {"Retry-After": "0"}),
            "timeout": lambda: Reply(reply.body, wait=2 * self.timeout),
            "cut": lambda: Reply(reply.body, cut=True),
            "no completion": lambda: Reply(b"<html>busy</html>"),
        }[kind]()

    def _kind(self, name: str) -> str:
        """Decided by the prompt and the number of its requests, so that a run of the test repeats."""
        if random.Random(f"{self.seed} {name}").random() < self.hopeless:
            return "500"
        rng = random.Random(f"{self.seed} {name} {self.requests[name]}")
        if self.requests[name] > 2 or rng.random() < 0.8:
            return "reply"
        return rng.choice(["429", "500", "500", "timeout", "cut", "no completion"])


def scripted(number: int, body: dict) -> Reply:
    digest = hashlib.sha256(json.dumps(body["messages"]).encode()).digest()
    return Reply(TEXTS[digest[0] % len(TEXTS)])


@pytest.fixture
def command(tmp_path) -> Callable[..., list[str]]:
    shards = tiny.write_shards(tmp_path / "shards", EPISODES, "test")
    path = tmp_path / "coat.yaml"

    def at(url: str, **changes: object) -> list[str]:
        settings = {"agent": "coat", "endpoint": url, "model": "vlm", "texts": "model", "concurrency": 4}
        settings |= {"attempts": 4, "timeout": 1.0}
        path.write_text(json.dumps(settings | changes))
        arguments = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(tmp_path / "out")]
        return [sys.executable, "-c", COMMAND, *arguments, "--no-controls"]

    return at


def run(faults: Faults, command: list[str], kill_at_write: int = 0) -> tuple[int, str]:
    """(exit status, stdout and stderr)"""
    environment = os.environ | {"KILL_AT_WRITE": str(kill_at_write)}
    output, errors = subprocess.PIPE, subprocess.STDOUT
    faults.process = subprocess.Popen(command, stdout=output, stderr=errors, text=True, env=environment)
    text, _ = faults.process.communicate(timeout=400)
    return faults.process.returncode, text


def check_rows(output: Path, failed: int = 0) -> None:
    rows = pq.read_table(output / "predictions.parquet").to_pylist()
    steps = [(row["episode_id"], row["step"]) for row in rows]
    assert steps == [(episode.id, step) for episode in EPISODES for step in range(len(episode))]
    metrics = json.loads((output / "metrics.json").read_text())["trained"]
    assert len(metrics["about"].get("failed_steps", [])) == failed


def check_counts(faults: Faults, output: Path, kills: int, calls: int = CALLS) -> None:
    """Nothing was asked twice but what kills interrupted, and the files account for every reply of the server."""
    assert faults.repeated == []
    assert len(faults.replies) == calls
    paid = {path.stem: json.loads(path.read_text())["paid"]["calls"] for path in (output / "calls").rglob("*.json")}
    assert paid.keys() == faults.replies.keys()
    assert all(paid[name] >= count for name, count in faults.replies.items())
    lost = sum(paid.values()) - calls
    assert sum(faults.replies.values()) - calls <= lost <= 4 * kills
    assert not [path for path in (output / "calls").rglob("*.asked") if path.stat().st_size]


def test_a_killed_evaluation_against_a_failing_server_loses_nothing_and_asks_nothing_twice(tmp_path, command):
    output = tmp_path / "out"
    faults = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), output / "calls"), scripted, seed=1)
    with serving(faults) as (url, requests):
        for kill in (40, 150):
            assert run(faults, command(url), kill)[0] == -signal.SIGKILL
        for _ in range(2):
            faults.kill_at = len(requests) + 30
            assert run(faults, command(url))[0] == -signal.SIGKILL
        assert len(faults.replies) < CALLS
        status, text = run(faults, command(url))
    assert status == 0, text
    assert {"reply", "429", "500", "timeout", "cut", "no completion"} == set(faults.kinds)
    assert "earlier replies lost" in text
    check_rows(output)
    check_counts(faults, output, kills=4)


def test_steps_whose_calls_always_fail_are_listed_and_asked_again_by_the_same_command(tmp_path, command):
    output = tmp_path / "out"
    faults = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), output / "calls"), scripted, seed=2, hopeless=0.05)
    with serving(faults) as (url, requests):
        status, text = run(faults, command(url))
        assert status == 1
        failed = len(json.loads((output / "metrics.json").read_text())["trained"]["about"]["failed_steps"])
        assert f"could not answer {failed} step(s)" in text
        assert 0 < failed < STEPS / 2
        check_rows(output, failed)
        asked_before = len(requests)
        assert run(faults, command(url))[0] == 1
        again = {name for name in faults.requests if name not in faults.replies}
        assert len(requests) - asked_before == 4 * len(again)
        faults.hopeless = 0.0
        status, text = run(faults, command(url))
    assert status == 0, text
    check_rows(output)
    check_counts(faults, output, kills=0)


def test_two_evaluations_at_once_share_their_replies(tmp_path, command):
    """Both ask for the same; whichever comes first sends a request, and the other waits for the reply."""
    folder = tmp_path / "calls"
    faults = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), folder), scripted, seed=4)
    environment = os.environ | {"KILL_AT_WRITE": "0"}
    with serving(faults) as (url, _):
        first = command(url, calls=str(folder))
        second = [part.replace(str(tmp_path / "out"), str(tmp_path / "other")) for part in first]
        processes = [subprocess.Popen(one, env=environment, stdout=subprocess.DEVNULL) for one in (first, second)]
        assert [process.wait(timeout=400) for process in processes] == [0, 0]
    check_rows(tmp_path / "out")
    check_counts(faults, tmp_path, kills=0)
    one, other = (pq.read_table(tmp_path / name / "predictions.parquet") for name in ("out", "other"))
    assert one.equals(other)


def test_a_served_model_with_faults_and_kills(tmp_path, command):
    """The replies are those of a tiny vision-language model, which never learned to write a call."""
    served_qwen.write_merged_run(tmp_path / "model")
    server = served_qwen.Server(tmp_path / "model" / "merged" / MODEL_FOLDER)
    output, lock = tmp_path / "out", threading.Lock()
    settings = {"texts": "phone", "max_tokens": 8, "timeout": 10.0}

    def answer(number: int, body: dict) -> Reply:
        with lock:
            return server.answer(number, body)

    faults = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), output / "calls"), answer, seed=3, timeout=10.0)
    with serving(faults) as (url, requests):
        assert run(faults, command(url, **settings), 20)[0] == -signal.SIGKILL
        faults.kill_at = len(requests) + 20
        assert run(faults, command(url, **settings))[0] == -signal.SIGKILL
        status, text = run(faults, command(url, **settings))
    assert status == 0, text
    check_rows(output)
    check_counts(faults, output, kills=2, calls=STEPS)
