"""The agent against a server that fails, and killed: no call is lost, none is paid for twice, and the answers are those
of a server without faults."""

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

REPLIES = (
    '{"action": "tap", "element": 1}',
    "{“action”：“swipe”，“direction”：“up”}",
    '{"action": "tap", "element": 9}',
    '{"action": "enter_text", "element": 0, "text": "x"}',
    "I would tap",
    "",
)


def scripted(number: int, body: dict) -> Reply:
    digest = hashlib.sha256(json.dumps(body["messages"]).encode()).digest()
    return Reply(REPLIES[digest[0] % len(REPLIES)])


def answers(output) -> list[tuple]:
    rows = pq.read_table(output / "predictions.parquet").to_pylist()
    return [(row["episode_id"], row["step"], row["text"], row["predicted"], row["box"]) for row in rows]


def test_a_killed_evaluation_against_a_failing_server_gives_the_answers_of_one_without_faults(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(8)], "test")
    path, output, reference = tmp_path / "agent.yaml", tmp_path / "out", tmp_path / "reference"

    def command(url: str, output) -> list[str]:
        settings = {"agent": "vision_tasker", "screen": "html", "endpoint": url, "model": "m", "concurrency": 4}
        path.write_text(json.dumps(settings | {"attempts": 4, "timeout": 1.0}))
        arguments = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        return [sys.executable, "-c", COMMAND, *arguments, "--controls", "none"]

    calm = Faults(Calls(ChatEndpoint("http://a:1", "m"), reference / "calls"), scripted, seed=0, fault_share=0.0)
    with serving(calm) as (url, _):
        assert run(calm, command(url, reference))[0] == 0
    faults = Faults(Calls(ChatEndpoint("http://a:1", "m"), output / "calls"), scripted, seed=1, fault_share=0.4)
    with serving(faults) as (url, _):
        assert run(faults, command(url, output), 15)[0] == -signal.SIGKILL
        status, text = run(faults, command(url, output))
    assert status == 0, text
    assert {"reply", "429", "500"} <= set(faults.kinds)
    check_counts(faults, output, 1, len(calm.replies))
    assert answers(output) == answers(reference)
    about, expected = (json.loads((at / "metrics.json").read_text())["trained"]["about"] for at in (output, reference))
    assert about == expected
    assert about["repaired_replies"] > len(about["unread_steps"]) > 0
