"""A model behind an endpoint acts on a phone like any other agent."""

import json

import numpy as np
import pytest
from helpers.agents.chat_server import Reply, completion, serving

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.agents.endpoint import EndpointAgent
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.agents.loading import agent_settings
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import Screen
from vlm_agent.evaluation.online.runs import play
from vlm_agent.simulator.demonstrations import simulated_tasks

LANGUAGE = BinnedLanguage()


def test_a_served_model_that_answers_with_the_expert_actions_reaches_the_goal(tmp_path):
    task = simulated_tasks(1, 0)[0]
    phone, goal = task.fresh_phone()
    texts = [LANGUAGE.encode(step.action) for step in goal.solve(phone)]
    with serving(lambda call, _: Reply(texts[call])) as (url, requests):
        agent = EndpointAgent(ChatEndpoint(url, "model"), LANGUAGE)
        result = play("served", lambda _: agent, task, tmp_path / "t")
    assert result["success"]
    assert len(requests) == result["steps"] == len(texts)
    assert goal.goal in str(requests[0].body)


def test_a_served_model_whose_answers_are_not_actions_is_stopped(tmp_path):
    with serving(lambda *_: Reply("I would rather not")) as (url, requests):
        agent = EndpointAgent(ChatEndpoint(url, "model"), LANGUAGE)
        result = play("served", lambda _: agent, simulated_tasks(1, 0)[0], tmp_path / "t")
    assert (result["reason"], result["unparsed"], result["calls"], len(requests)) == ("unparsed", 1, 1, 1)


@pytest.mark.parametrize("kind", ["endpoint", "coat"])
def test_the_seconds_of_a_run_are_those_of_its_replies_also_where_they_are_read_from_disk(tmp_path, kind):
    """The server waits half a second before each reply, so a step with its reply cannot have less."""
    texts = {"endpoint": "press home", "coat": '{"ACTION": "press_home"}'}
    with serving(lambda *_: Reply(texts[kind], wait=0.5)) as (url, requests):
        file = tmp_path / "agent.yaml"
        file.write_text(f"agent: {kind}\nendpoint: {url}\nmodel: m\ncalls: {tmp_path / 'calls'}\n")
        results = []
        for name in ("first", "again"):
            agent = agent_settings(str(file)).load()
            results.append(play(name, lambda _, agent=agent: agent, simulated_tasks(1, 0)[0], tmp_path / name))
    first, again = results
    assert len(requests) == first["calls"] == again["calls"] and first["tokens"] == again["tokens"]
    assert min(first["seconds"]["agent"], again["seconds"]["agent"]) >= 0.5 * len(requests) > 0
    steps = zip(read_trace(tmp_path / "first").steps, read_trace(tmp_path / "again").steps, strict=True)
    assert all(min(one.seconds["agent"], other.seconds["agent"]) >= 0.5 for one, other in steps)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 700, "completion_tokens": 8, "total_tokens": 708}, (700, 8)),
        ({"prompt_tokens": "700", "completion_tokens": 8}, None),
        ({"completion_tokens": 8}, None),
        ([1, 2], None),
        (None, None),
    ],
)
def test_the_usage_of_the_server_is_recorded_if_it_is_valid(usage, tokens):
    body = json.loads(completion("complete")) | {"usage": usage}
    with serving(lambda *_: Reply(json.dumps(body).encode())) as (url, _):
        agent = EndpointAgent(ChatEndpoint(url, "model"), LANGUAGE)
        answer = agent.act("wait", [], Screen(np.zeros((40, 20, 3), np.uint8)))
    assert (answer.text, answer.usage.tokens, answer.usage.calls) == ("complete", tokens, 1)
    assert answer.usage.seconds > 0
