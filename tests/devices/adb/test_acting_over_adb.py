"""`vlm-agent act` on a phone over ADB, end to end."""

import io

import numpy as np
import pytest
from helpers.agents.prepared_agent import Prepared

from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.cli import FAILED, OK, act, main
from vlm_agent.datasets.sources.traces import read_steps, read_trace
from vlm_agent.episodes import Action
from vlm_agent.files.png import encode_png
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.shell.session import Result


def phone_at(task):
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    return phone


@pytest.fixture
def run(one_adb, tmp_path, monkeypatch):
    """Acts out the expert's actions on a task; returns the exit status, the phone and the trace."""

    def run(task, *more):
        actions = [step.action for step in task.solve(phone_at(task), pixels=False)]
        monkeypatch.setattr(act.agent_options, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent(actions)))
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
    monkeypatch.setattr(act.agent_options, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent([])))
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


def acted(served, monkeypatch, tmp_path, *actions):
    """The exit status of `act` with these actions on a served phone, and the trace."""
    monkeypatch.setattr(act.agent_options, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent(list(actions))))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    command = ["act", "--agent", "RUN", "--device", f"adb:{served.serial}", "--goal", "go"]
    return main([*command, "--trace", str(tmp_path / "trace")]), read_trace(tmp_path / "trace")


REFUSALS = {
    "am": (Action.open_app("Clock"), Result(b"Starting: Intent { }\n", b"Error type 3\nError: no such class\n")),
    "input": (Action.tap(0.5, 0.5), Result(err=b"java.lang.SecurityException: INJECT_EVENTS permission\n", status=255)),
}


@pytest.mark.parametrize("command", REFUSALS)
def test_a_refused_action_is_failed_and_shown_and_no_training_step_and_the_run_continues(
    one_adb, served, monkeypatch, tmp_path, capsys, command
):
    action, result = REFUSALS[command]
    served._shell._commands[command] = lambda _: result
    status, trace = acted(served, monkeypatch, tmp_path, action, Action.wait(), Action.complete())
    assert status == OK
    assert [step.outcome for step in trace.steps] == ["failed", "done", "done"]
    error = result.err.decode().split("\n")[0]
    assert error in trace.steps[0].message
    printed = capsys.readouterr().out
    assert f"Step 1 failed, the phone did not perform it: the phone failed at `{command}" in printed
    assert "complete (3 steps, 1 of them failed, " in printed
    *steps, rest = read_steps(tmp_path / "trace")
    assert [step.step.action for step in steps] == [Action.wait(), Action.complete()]
    assert (rest.reason, rest.steps) == ("failed", 1)


def test_black_pictures_are_shown_once_and_converted_to_no_step(one_adb, served, monkeypatch, tmp_path, capsys):
    height, width = served.handset.phone.size
    black = encode_png(np.zeros((height, width, 3), np.uint8))
    served._shell._commands["screencap"] = lambda _: Result(black)
    status, trace = acted(served, monkeypatch, tmp_path, Action.tap(0.5, 0.5), Action.complete())
    assert status == OK
    assert [step.black for step in trace.steps] == [True, True]
    printed = capsys.readouterr().out
    assert printed.count("the picture of the screen is black") == 1
    assert "complete (2 steps, 2 black pictures, " in printed
    command = ["convert", "--source", "trace", "--input", str(tmp_path / "trace"), "--output", str(tmp_path / "shards")]
    assert main(command) == FAILED
    printed = capsys.readouterr().out
    assert "2 step(s) excluded: black picture" in printed
    assert "1 episode(s) excluded: every screen with a performed action is black" in printed
    assert main(["inspect", str(tmp_path / "trace")]) == OK
    assert capsys.readouterr().out.count("performed, black picture") == 2
