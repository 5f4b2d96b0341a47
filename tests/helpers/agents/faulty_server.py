"""A server that fails, and evaluations that are killed; counts of requests, so that lost and repeated ones show."""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from helpers.agents.chat_server import Reply

from vlm_agent.agents.llm.calls import Calls

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
"""`python -c COMMAND …`: vlm-agent, which a kill ends before it writes reply number KILL_AT_WRITE."""


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
    fault_share: float = 0.2
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
        if self.requests[name] > 2 or rng.random() >= self.fault_share:
            return "reply"
        return rng.choice(["429", "500", "500", "timeout", "cut", "no completion"])


def run(faults: Faults, command: list[str], kill_at_write: int = 0) -> tuple[int, str]:
    """(exit status, stdout and stderr)"""
    environment = os.environ | {"KILL_AT_WRITE": str(kill_at_write)}
    output, errors = subprocess.PIPE, subprocess.STDOUT
    faults.process = subprocess.Popen(command, stdout=output, stderr=errors, text=True, env=environment)
    text, _ = faults.process.communicate(timeout=400)
    return faults.process.returncode, text


def check_counts(faults: Faults, output: Path, kills: int, calls: int) -> None:
    """Nothing was asked twice but what kills interrupted, and the files account for every reply of the server."""
    assert faults.repeated == []
    assert len(faults.replies) == calls
    paid = {path.stem: json.loads(path.read_text())["paid"]["calls"] for path in (output / "calls").rglob("*.json")}
    assert paid.keys() == faults.replies.keys()
    assert all(paid[name] >= count for name, count in faults.replies.items())
    lost = sum(paid.values()) - calls - faults.kinds["timeout"] - faults.kinds["cut"]
    assert sum(faults.replies.values()) - calls <= lost <= 4 * kills
    assert not [path for path in (output / "calls").rglob("*.asked") if path.stat().st_size]
