"""A tiny text model behind `transformers serve`, over HTTP: the run's own answers, and every mode of the planner."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_text

from studies.d_pot.served.server_log import request_seconds
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import main
from vlm_agent.models.serving import served_model

pytestmark = pytest.mark.slow

EPISODES = [tiny_text.episode(number) for number in range(2)]
SETTINGS = {"react": {"rounds": 1}, "few_shot": {"examples": 1}, "reflexion": {"feedback": "own"}}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    shards = tiny.write_shards(folder / "shards", EPISODES)
    content = tiny_text.recipe(shards, folder / "run")
    content["model"]["language_model"]["config"] = tiny.LLAMA | {"max_position_embeddings": 8192}
    content["training"] |= {"steps": 30, "optimizer": {"learning_rate": 1e-2}}
    (folder / "run.yaml").write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(folder / "run.yaml")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """The server's."""
    return tmp_path_factory.mktemp("log") / "server.log"


@pytest.fixture(scope="module")
def server(run, log):
    """(URL, name of the model) of a server on loopback."""
    with served_model(run, log) as endpoint:
        yield endpoint


def test_the_server_has_the_answers_and_token_counts_of_the_run(run, server):
    url, name = server
    served = EndpointSettings(endpoint=url, model=name, as_trained=str(run), calls=f"{run}_calls").load()
    answers = served.answer_episodes(EPISODES)
    expected = VlmAgent.from_run(run).answer_episodes(EPISODES)
    for theirs, ours in zip(answers, expected, strict=True):
        assert [one.text for one in theirs] == [one.text for one in ours]
        assert [one.usage.tokens[0] for one in theirs] == [one.usage.tokens[0] for one in ours]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_the_planner_plays_against_the_server(mode, server, tmp_path):
    url, name = server
    options = {"endpoint": url, "model": name, "screen": "html", "max_tokens": 24, "concurrency": 1}
    settings = DynamicPlanningSettings(mode=mode, **options, **SETTINGS.get(mode, {}))
    answers = settings.in_output(tmp_path).load().answer_episodes(EPISODES[:1])
    (answers,) = answers
    assert len(answers) == len(EPISODES[0])
    assert all(answer.failed is None for answer in answers)
    assert answers[0].usage.calls
    assert all(answer.action is not None or answer.diagnostics.unread for answer in answers)


def test_the_log_has_the_seconds_of_each_request(server, log):
    url, name = server
    before = len(request_seconds(log))
    chat = ChatEndpoint(url, name)
    seconds = [chat.completion([{"role": "user", "content": "hello"}], max_tokens=8).seconds for _ in range(2)]
    logged = request_seconds(log)[before:]
    assert len(logged) == 2
    assert all(0 <= ours <= whole + 0.002 for ours, whole in zip(logged, seconds, strict=True))


def test_the_server_ends_with_a_process_that_is_killed(run, tmp_path):
    """A server alone would keep its memory, on a GPU most of it."""
    code = f"""import pathlib, time
from vlm_agent.models.serving import served_model
with served_model(pathlib.Path({str(run)!r}), pathlib.Path({str(tmp_path / "log")!r})) as (url, _):
    print(url, flush=True)
    time.sleep(1000)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as serving:
        url = serving.stdout.readline().strip()
        port = int(url.split(":")[2].split("/")[0])
        assert _is_open(port)
        serving.kill()
    end = time.monotonic() + 30
    while _is_open(port) and time.monotonic() < end:
        time.sleep(0.1)
    assert not _is_open(port)


def _is_open(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0
