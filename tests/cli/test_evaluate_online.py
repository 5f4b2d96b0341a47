"""`vlm-agent evaluate --online`: its output, and the options it refuses."""

import json
import os
from contextlib import contextmanager

import pytest
from helpers.agents.prepared_agent import Prepared

from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.cli import INTERRUPTED, OK, USAGE, evaluate, main
from vlm_agent.episodes import Action
from vlm_agent.simulator.opening import SimulatedTask

OPTIONS = ["--checkpoint", "RUN", "--tasks", "2", "--seed", "3", "--workers", "2", "--controls", "none"]


@pytest.fixture
def goes_home(monkeypatch):
    agent = Prepared(prepared=ScriptedAgent((Action.press("home"),)))
    monkeypatch.setattr(evaluate.agent_options, "chosen_agent", lambda *_, **__: agent)


def test_success_is_written_and_printed(goes_home, tmp_path, capsys):
    assert main(["evaluate", "--online", *OPTIONS, "--output", str(tmp_path / "out")]) == OK
    content = json.loads((tmp_path / "out" / "online.json").read_text())
    assert content["about"]["seed"] == 3
    assert [row["overall"]["success"] for row in content["runs"].values()] == [0, 100, 0]
    printed = capsys.readouterr().out
    assert "Success on 2 tasks" in printed
    assert "expert" in printed


def test_a_signal_closes_the_phones_as_ctrl_c_does(goes_home, tmp_path, monkeypatch, stop_signal):
    phones, plain = [], SimulatedTask.open

    @contextmanager
    def opened(task):
        with plain(task) as phone:
            phones.append("opened")
            try:
                yield phone
            finally:
                phones.append("closed")

    monkeypatch.setattr(SimulatedTask, "open", opened)
    signals = [stop_signal]  # one: a second ends the wait for the tasks under way
    monkeypatch.setattr(ScriptedAgent, "act", lambda *_: os.kill(os.getpid(), signals.pop() if signals else 0))
    assert main(["evaluate", "--online", *OPTIONS, "--output", str(tmp_path / "out")]) == INTERRUPTED
    assert phones.count("opened") == phones.count("closed") > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--online", "--checkpoint", "R", "--shards", "S"], "--shards is for recorded episodes"),
        (
            ["--online", "--checkpoint", "R", "--shard-index", "0", "--shard-count", "2"],
            "--shard-index is for recorded",
        ),
        (["--online", "--finish"], "--finish is for recorded"),
        (["--online"], "select one agent"),
        (["--checkpoint", "R", "--shards", "S", "--tasks", "3"], "--tasks needs --online"),
        (["--checkpoint", "R", "--shards", "S", "--seed", "0"], "--seed needs --online"),
        (["--checkpoint", "R", "--shards", "S", "--long-screens"], "--long-screens needs --online"),
        (["--checkpoint", "R", "--shards", "S", "--task-set", "browser"], "--task-set needs --online"),
    ],
)
def test_recorded_episodes_and_phones_are_not_mixed(arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["evaluate", *arguments, "--output", str(tmp_path / "out")])
    assert refused.value.code == USAGE
    assert message in capsys.readouterr().err
