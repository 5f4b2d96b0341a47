"""One episode: its outcome is the same with and without a trace, and success is more than a state."""

from dataclasses import asdict, dataclass

import pytest

from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.sources.trace_writer import NoTrace
from vlm_agent.devices import OpenedDevice
from vlm_agent.devices.acting.episode import episode_turns
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import answered
from vlm_agent.devices.errors import NotJudgedError
from vlm_agent.episodes import Action
from vlm_agent.evaluation.online.runs import play
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.demonstrations import simulated_tasks


@dataclass(frozen=True)
class InClock:
    goal: str = "Open the clock"
    subset: str = "single"

    def reached(self, phone):
        return phone.front == "Clock"


def outcome_of(opened, actions, solution=None):
    turns = episode_turns(opened, NoTrace("one"), Guard(allow_purchases=True), solution)
    return answered(turns, ScriptedAgent(actions))[1]


@pytest.mark.parametrize("number", range(3))
def test_an_episode_without_a_trace_has_the_outcome_of_one_with_a_trace(tmp_path, monkeypatch, number):
    task = simulated_tasks(number + 1, 0, "train")[number]
    solution = task.solution()
    result = play("agent", ScriptedAgent, task, tmp_path / "trace")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with task.open() as opened:
        outcome = asdict(outcome_of(opened, solution.actions, solution))
    assert sorted(tmp_path.rglob("*")) == before
    assert outcome.pop("ended") == result["reason"]
    assert outcome == {key: result[key] for key in outcome}
    assert outcome["success"] and outcome["side_effects"] == [] and outcome["steps"] == outcome["expert_steps"]


def test_a_goal_that_was_reached_and_left_is_a_false_complete():
    actions = [Action.open_app("Clock"), Action.press("home"), Action.complete()]
    outcome = outcome_of(OpenedDevice(SimulatedPhone(0), "phone", InClock()), actions)
    assert (outcome.ever_reached, outcome.reached, outcome.success, outcome.false_complete) == (
        True,
        False,
        False,
        True,
    )
    assert (outcome.side_effects, outcome.expert_steps, outcome.ended) == (None, None, "complete")


def test_a_goal_is_noticed_after_a_screen_that_could_not_be_judged():
    class FailsOnce(InClock):
        failures = iter([True])

        def reached(self, phone):
            if next(self.failures, False):
                raise NotJudgedError("no answer")
            return super().reached(phone)

    actions = [Action.wait(), Action.open_app("Clock"), Action.press("home"), Action.complete()]
    outcome = outcome_of(OpenedDevice(SimulatedPhone(0), "phone", FailsOnce()), actions)
    assert (outcome.ever_reached, outcome.reached) == (True, False)


def test_a_reached_goal_is_a_success_only_if_the_agent_ends_with_complete():
    for last, success in ((Action.complete(), True), (Action.impossible(), False)):
        outcome = outcome_of(OpenedDevice(SimulatedPhone(0), "phone", InClock()), [Action.open_app("Clock"), last])
        assert (outcome.ever_reached, outcome.reached, outcome.success) == (True, True, success)
        assert not outcome.false_complete


def test_an_episode_needs_a_task():
    with pytest.raises(ValueError, match="phone is not set up for a task"):
        outcome_of(OpenedDevice(SimulatedPhone(0), "phone"), [Action.complete()])
