"""`vlm-agent serve-check` names the first difference between a served model and its run."""

import json

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.runs import served_qwen

from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.agents.serve_check import ServeCheck, serve_check
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.models.run_layout import MODEL_FOLDER


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, with the merged checkpoint in the folder `merged` beside it."""
    return served_qwen.write_merged_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def agent(run):
    return VlmAgent.from_run(run)


@pytest.fixture
def server(run):
    return served_qwen.Server(run.parent / "merged" / MODEL_FOLDER)


def check(agent, server, steps: int = 6) -> ServeCheck:
    with served_qwen.served(server) as (url, _):
        return serve_check(agent, ChatEndpoint(url, "mine"), served_qwen.EPISODES, steps)


def test_a_served_merged_checkpoint_equals_its_run(agent, server):
    assert check(agent, server, 20) == ServeCheck(steps=20, counted=20, tokenized=0, sizes=4, ties=0, difference=None)
    server.tokenizes = True
    assert check(agent, server) == ServeCheck(steps=6, counted=6, tokenized=6, sizes=2, ties=0, difference=None)


def test_different_pixel_limits_of_the_image_processor_are_detected(agent, server):
    server.processor.image_processor.size = {"shortest_edge": 64, "longest_edge": 100 * 64}
    result = check(agent, server)
    assert (result.steps, result.counted) == (0, 1)
    assert "step 0 of episode 0: the prompt has 14 more visual tokens on the server" in result.difference
    assert "with screens such as this one of 64x32 pixels" in result.difference
    server.processor.image_processor.size = {"shortest_edge": 64, "longest_edge": 6 * 64}
    result = check(agent, server)
    assert (result.steps, result.counted) == (0, 1)
    assert "fewer visual tokens on the server" in result.difference


def test_a_different_chat_template_is_detected_and_its_token_is_named_if_ids_are_listed(agent, server):
    server.processor.chat_template = server.processor.chat_template.replace("assistant\\n", "assistant: ")
    result = check(agent, server)
    assert result.steps == 0
    assert "its chat template or tokenizer is not that of the run" in result.difference
    server.tokenizes = True
    assert "of the prompt is ':' on the server and '\\n' in training" in check(agent, server).difference


def test_listed_ids_without_screens_are_not_compared(agent, server):
    image = agent.model.config.image_token_id

    def listing(number: int, body: dict) -> Reply:
        if "add_generation_prompt" not in body:
            return server.answer(number, body)
        ids = [id_ for id_ in server.inputs(body["messages"])["input_ids"][0].tolist() if id_ != image]
        return Reply(json.dumps({"count": len(ids), "tokens": ids}).encode())

    with serving(listing) as (url, _):
        result = serve_check(agent, ChatEndpoint(url, "mine"), served_qwen.EPISODES, 2)
    assert (result.steps, result.counted, result.tokenized) == (2, 2, 0)


def test_different_weights_are_detected_by_their_answers(agent, run, server):
    base = served_qwen.Server(run.parent / "merged" / MODEL_FOLDER)
    base.model = type(base.model).from_pretrained(run.parent / served_qwen.BASE).eval()
    base.model.generation_config = server.model.generation_config
    result = check(agent, base, 20)
    assert "; they differ from token " in result.difference


def test_a_server_without_token_counts_is_compared_by_its_answers(agent, server):
    def uncounted(number: int, body: dict) -> Reply:
        reply = server.answer(number, body)
        if reply.status != 200:
            return reply
        return Reply(json.dumps({"choices": json.loads(reply.body)["choices"]}).encode())

    with serving(uncounted) as (url, _):
        result = serve_check(agent, ChatEndpoint(url, "mine"), served_qwen.EPISODES, 3)
    assert result == ServeCheck(steps=3, counted=0, tokenized=0, sizes=0, ties=0, difference=None)


def test_the_command_uses_the_only_served_model_and_its_exit_status_is_the_result(run, server, capsys):
    with served_qwen.served(server) as (url, requests):
        assert main(["serve-check", str(run), "--endpoint", url, "--steps", "3"]) == OK
        assert "3 steps are equal: prompt tokens of 3, no ids, because the server has no /tokenize" in _printed(capsys)
        assert {call.body["model"] for call in requests} == {"mine"}
        server.processor.chat_template = server.processor.chat_template.replace("assistant\\n", "assistant: ")
        assert main(["serve-check", str(run), "--endpoint", url]) == FAILED
        assert "step 0 of episode 0: " in _printed(capsys)
    with serving(server.answer, models=("a", "b")) as (url, _):
        assert main(["serve-check", str(run), "--endpoint", url]) == FAILED
        assert "serves 2 models (a, b); name one with --model" in capsys.readouterr().err


def _printed(capsys) -> str:
    return capsys.readouterr().out
