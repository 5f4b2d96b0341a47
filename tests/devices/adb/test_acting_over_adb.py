"""`vlm-agent act` on a phone over ADB, end to end."""

import io

import pytest
from helpers.prepared_agent import Prepared

from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.cli import FAILED, OK, act, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.devices.adb_daemon import Handset, PhoneServer
from vlm_agent.devices.simulated_phone import SimulatedPhone, sample_task


def phone_at(task):
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    return phone


@pytest.fixture
def run(one_adb, tmp_path, monkeypatch):
    """Acts out the expert's actions on a task; returns the exit status, the phone and the trace."""

    def run(task, *more):
        actions = [step.action for step in task.solve(phone_at(task), pixels=False)]
        monkeypatch.setattr(act, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent(actions)))
        monkeypatch.setattr("sys.stdin", io.StringIO())  # no answers to questions
        with PhoneServer(Handset(phone_at(task))) as server:
            given = ["--device", f"adb:{server.serial}", "--goal", task.goal, "--trace", str(tmp_path / "trace")]
            status = main(["act", "--agent", "RUN", *given, *more])
            return status, server.handset.phone, read_trace(tmp_path / "trace")

    return run


def test_the_experts_actions_reach_the_goal_and_leave_a_whole_trace(run):
    task = sample_task("google_apps", "test", 1)
    status, phone, trace = run(task)
    assert status == OK
    assert task.reached(phone)
    assert trace.end["end"] == "complete"
    assert all(step.elements for step in trace.steps)
    assert trace.steps[0].activity == phone_at(task).activity


def test_an_app_that_the_phone_does_not_have_is_refused(one_adb, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(act, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent([])))
    with PhoneServer(Handset(SimulatedPhone(0))) as server:
        more = ["--goal", "go", "--trace", str(tmp_path / "trace"), "--apps", "org.clock", "org.clokc"]
        assert main(["act", "--agent", "RUN", "--device", f"adb:{server.serial}", *more]) == FAILED
    assert "--apps org.clokc: not a package on" in capsys.readouterr().err


def test_a_checkout_is_recognised_by_the_texts_of_the_screen(run):
    seeds = (seed for seed in range(200) if "heck" in sample_task("web_shopping", "test", seed).goal)
    task = sample_task("web_shopping", "test", next(seeds))
    status, phone, trace = run(task)
    assert status == FAILED
    assert not task.reached(phone)
    assert trace.end["end"] == "purchase"
    assert trace.steps[-1].outcome == "withheld"
