"""The prompting agent against servers that fail, and killed: every step is scored or listed, and no answer is lost.

The servers' own counts are the proof: a request whose reply is on disk never arrives again, and a reply that a killed
process did not write is counted in the files of `OUT/calls`.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.agents.faulty_server import COMMAND, Faults, check_counts, run
from helpers.runs import served_qwen

from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.models.run_layout import MODEL_FOLDER

pytestmark = pytest.mark.slow

EPISODES = [tiny.episode(number) for number in range(18)]  # two parts
STEPS = sum(map(len, EPISODES))
CALLS = 3 * STEPS - len(EPISODES)  # description, result but at the first step, action

CALL = '{"THINK": "continue", "NEXT": "press home", "ACTION": "press_home", "ARGS": {}}'
TEXTS = (CALL, f"Here it is:\n```json\n{CALL}\n```", "I would press home", "", CALL[:-30], '{"ACTION": "press_')


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
        return [sys.executable, "-c", COMMAND, *arguments, "--controls", "none"]

    return at


def check_rows(output: Path, failed: int = 0) -> None:
    rows = pq.read_table(output / "predictions.parquet").to_pylist()
    steps = [(row["episode_id"], row["step"]) for row in rows]
    assert steps == [(episode.id, step) for episode in EPISODES for step in range(len(episode))]
    metrics = json.loads((output / "metrics.json").read_text())["trained"]
    assert len(metrics["about"].get("failed_steps", [])) == failed


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
    check_counts(faults, output, 4, CALLS)


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
    check_counts(faults, output, 0, CALLS)


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
    check_counts(faults, tmp_path, 0, CALLS)
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
    check_counts(faults, output, 2, STEPS)
