"""The planning agent in commands, and its settings."""

import json
import re

import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.agents.planning_model import EPISODE, FILE, HOME, Model, agent, text_of

from vlm_agent.agents import demonstrated
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.dynamic_planning.prompts import PROMPTS
from vlm_agent.agents.llm.prompts import PromptError
from vlm_agent.agents.loading import AgentError, agent_settings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import recorded_screen


@pytest.mark.parametrize("mode", list(MODES))
def test_the_estimate_counts_the_calls_that_an_evaluation_makes(tmp_path, capsys, mode):
    shards = tiny.write_shards(tmp_path / "shards", [EPISODE], "test")
    model, path, output = Model(), tmp_path / "agent.yaml", tmp_path / "out"
    with serving(model) as (url, requests):
        path.write_text(FILE.format(url=url) + f"mode: {mode}\n" + ("feedback: own\n" if mode == "reflexion" else ""))
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        assert main([*command, "--controls", "none"]) == OK
    out = capsys.readouterr().out
    assert f"Estimate for 5 steps, from 5: {len(requests)} calls," in out
    assert f"New: {len(requests)} calls," in out


def test_an_online_task_and_its_trace_keep_plans_and_steps(tmp_path, capsys):
    path, trace = tmp_path / "agent.yaml", tmp_path / "trace"
    model = Model(action=[HOME, '{"action_type": "status_complete"}'])
    with serving(model) as (url, _):
        path.write_text(FILE.format(url=url))
        command = ["act", "--agent", str(path), "--device", "simulated:general/test/7", "--trace", str(trace)]
        assert main(command) == FAILED  # it declares the goal reached without reaching it
    assert "Steps so far:\n1. step 0" in text_of(model.of("plan_and_step")[1][-1])
    steps = read_trace(trace).steps
    assert [step.notes for step in steps] == [
        {"action": f"step {n}", "plan": f"first {n}\nsecond {n}", "step": f"step {n}"} for n in range(2)
    ]


@pytest.mark.parametrize("mode", list(MODES))
def test_every_mode_has_an_agent_file(mode):
    settings = agent_settings(f"eval/agents/planner_{mode}.yaml")
    assert (settings.agent, settings.mode, settings.max_tokens) == ("dynamic_planning", mode, 300)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"mode": "dpot"}, "did you mean d_pot"),
        ({"modes": "d_pot"}, "did you mean mode"),
        ({"rounds": 2}, "rounds is not a setting of mode d_pot"),
        ({"mode": "react", "rounds": -1}, "rounds"),
        ({"mode": "reflexion"}, "needs feedback: gold, own or screen"),
        ({"mode": "few_shot", "examples": 6}, "at most 5"),
        ({"mode": "none", "plans": "x.json"}, "plans need a mode that plans"),
        ({"past": "mine"}, "own"),
    ],
)
def test_wrong_settings_are_named(tmp_path, content, message):
    path = tmp_path / "agent.yaml"
    path.write_text(json.dumps({"agent": "dynamic_planning", "endpoint": "http://a:1", "model": "m"} | content))
    with pytest.raises(AgentError, match=message):
        agent_settings(str(path))


@pytest.mark.parametrize(
    ("text", "changed", "message"),
    [
        ("$plan", "$plans", "plan must have $plan"),
        ("Which action is it?", "Which action for $goal?", "nothing is filled into action_question; remove $goal"),
        ("What is the plan?", "The plan for $goal?", "nothing is filled into first_question; remove $goal"),
    ],
)
def test_a_placeholder_that_nothing_fills_is_an_error(tmp_path, text, changed, message):
    path = tmp_path / "prompts.yaml"
    path.write_text(PROMPTS.read_text().replace(text, changed))
    with pytest.raises(PromptError, match=re.escape(message)):
        DynamicPlanningSettings(endpoint="http://a:1", model="m", prompts=str(path)).identity()


def test_the_identity_has_what_decides_the_answers_and_no_address(tmp_path):
    (tmp_path / "plans.json").write_text('{"1": ["a"]}')
    base = {"endpoint": "http://a:1", "model": "m", "plans": str(tmp_path / "plans.json")}
    identity = DynamicPlanningSettings(**base).identity()
    assert DynamicPlanningSettings(**base | {"endpoint": "http://b:1", "calls": "x"}).identity() == identity
    for change in ({"screen": "html"}, {"past": "demonstrated"}, {"max_tokens": 5}, {"mode": "static"}):
        assert DynamicPlanningSettings(**base | change).identity() != identity
    (tmp_path / "plans.json").write_text('{"1": ["b"]}')
    assert DynamicPlanningSettings(**base).identity() != identity
    react = {"endpoint": "http://a:1", "model": "m", "mode": "react"}
    assert DynamicPlanningSettings(**react).identity() == DynamicPlanningSettings(**react, rounds=4).identity()


def test_demonstrated_histories_are_those_of_every_agent(tmp_path):
    """The agent's `act` reads a demonstrated history as `past: demonstrated` does."""
    model = Model()
    with serving(model) as (url, requests):
        planner = agent(url, tmp_path, mode="d_pot", past="demonstrated")
        [answers] = planner.answer_episodes([EPISODE])
        asked = len(requests)
        assert planner.act(EPISODE.goal, demonstrated(EPISODE, 3), recorded_screen(EPISODE, 3)) == answers[3]
    assert len(requests) == asked


def test_an_evaluation_that_fails_says_so(tmp_path, capsys):
    shards = tiny.write_shards(tmp_path / "shards", [EPISODE], "test")
    path = tmp_path / "agent.yaml"
    with serving(lambda n, body: Reply(b"no", 413)) as (url, _):
        path.write_text(FILE.format(url=url))
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(tmp_path / "out")]
        assert main([*command, "--controls", "none"]) == FAILED
    assert "could not answer 5 step(s)" in capsys.readouterr().err
