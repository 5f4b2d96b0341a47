"""The planning agent against a server that fails, and killed: no call is lost, none is paid for twice, and the answers
are those of a server without faults."""

import hashlib
import json
import signal
import sys

import pyarrow.parquet as pq
import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.agents.faulty_server import COMMAND, Faults, check_counts, run

from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import ChatEndpoint

pytestmark = pytest.mark.slow

EPISODES = [tiny.episode(number) for number in range(18)]  # two parts
PLANS = ('{"plan": "1. go\\n2. on", "step": "go %s"}', '```\n{"plan": ["go"], "step": "on %s"}\n```', "I would go", "")
ACTIONS = ('{"action_type": "click", "idx": 1}', '{"action_type": "navigate_home"}', '{"idx": 2', "go home", "")


def scripted(number: int, body: dict) -> Reply:
    """A reply that depends on the prompt alone; a repaired prompt has another one."""
    digest = hashlib.sha256(json.dumps(body["messages"]).encode()).digest()
    if "Write a plan" in str(body["messages"][0]):
        text = PLANS[digest[0] % len(PLANS)]
        return Reply(text % digest.hex()[:6] if "%s" in text else text)
    return Reply(ACTIONS[digest[0] % len(ACTIONS)])


@pytest.fixture
def command(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", EPISODES, "test")
    path = tmp_path / "planner.yaml"

    def at(url: str, output: str) -> list[str]:
        settings = {"agent": "dynamic_planning", "endpoint": url, "model": "vlm", "concurrency": 4}
        path.write_text(json.dumps(settings | {"attempts": 4, "timeout": 1.0}))
        arguments = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(tmp_path / output)]
        return [sys.executable, "-c", COMMAND, *arguments, "--controls", "none"]

    return at


def answers(output) -> list[tuple]:
    rows = pq.read_table(output / "predictions.parquet").to_pylist()
    return [(row["episode_id"], row["step"], row["text"], row["predicted"]) for row in rows]


def test_a_killed_evaluation_against_a_failing_server_gives_the_answers_of_one_without_faults(tmp_path, command):
    output, reference = tmp_path / "out", tmp_path / "reference"
    calm = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), reference / "calls"), scripted, seed=0, fault_share=0.0)
    with serving(calm) as (url, _):
        assert run(calm, command(url, "reference"))[0] == 0
    faults = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), output / "calls"), scripted, seed=1)
    with serving(faults) as (url, requests):
        assert run(faults, command(url, "out"), 40)[0] == -signal.SIGKILL
        faults.kill_at = len(requests) + 30
        assert run(faults, command(url, "out"))[0] == -signal.SIGKILL
        assert len(faults.replies) < len(calm.replies)
        status, text = run(faults, command(url, "out"))
    assert status == 0, text
    assert {"reply", "429", "500", "timeout", "cut", "no completion"} == set(faults.kinds)
    assert faults.replies.keys() == calm.replies.keys()
    check_counts(faults, output, 2, len(calm.replies))
    assert answers(output) == answers(reference)
    about, expected = (json.loads((at / "metrics.json").read_text())["trained"]["about"] for at in (output, reference))
    assert about == expected
    assert about["repaired_replies"] > len(about["unread_steps"]) > 0


def test_steps_whose_calls_always_fail_are_listed_and_asked_again_by_the_same_command(tmp_path, command):
    output = tmp_path / "out"
    faults = Faults(Calls(ChatEndpoint("http://a:1", "vlm"), output / "calls"), scripted, seed=2, hopeless=0.02)
    with serving(faults) as (url, _):
        status, text = run(faults, command(url, "out"))
        about = json.loads((output / "metrics.json").read_text())["trained"]["about"]
        assert status == 1 and f"could not answer {len(about['failed_steps'])} step(s)" in text
        assert any("its history is unknown" in line for line in about["failed_steps"])
        faults.hopeless = 0.0
        status, text = run(faults, command(url, "out"))
    assert status == 0, text
    assert len(answers(output)) == sum(map(len, EPISODES))
    check_counts(faults, output, 0, len(faults.replies))
