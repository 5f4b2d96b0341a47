"""A tiny text model behind `transformers serve`, over HTTP: the run's own answers, and every mode of the planner."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from helpers import tiny, tiny_text

from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import main
from vlm_agent.models.run_layout import MODEL_FOLDER

pytestmark = pytest.mark.slow

SECONDS = 180
# torchvision's wheel for CUDA cannot be imported beside PyTorch for CPUs without the operators that this declares.
_TRANSFORMERS = "import vlm_agent.models; from transformers.cli.transformers import main; main()"
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
def server(run, tmp_path_factory):
    """(URL, name of the model) of a server on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _TRANSFORMERS, "serve", run / MODEL_FOLDER, "--device", "cpu"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("log") / "server.log"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            list(map(str, command)), stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1", str(run / MODEL_FOLDER)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 (our own address)
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(log.read_text())


def test_the_server_has_the_answers_and_token_counts_of_the_run(run, server):
    url, name = server
    served = EndpointSettings(endpoint=url, model=name, as_trained=str(run)).load()
    (answers,) = served.answer_episodes(EPISODES)
    (expected,) = VlmAgent.from_run(run).answer_episodes(EPISODES)
    for theirs, ours in zip(answers, expected, strict=True):
        assert [one.text for one in theirs] == [one.text for one in ours]
        assert [one.usage.tokens[0] for one in theirs] == [one.usage.tokens[0] for one in ours]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_the_planner_plays_against_the_server(mode, server, tmp_path):
    url, name = server
    options = {"endpoint": url, "model": name, "screen": "html", "max_tokens": 24, "concurrency": 1}
    settings = DynamicPlanningSettings(mode=mode, **options, **SETTINGS.get(mode, {}))
    (answers,) = settings.in_output(tmp_path).load().answer_episodes(EPISODES[:1])
    (answers,) = answers
    assert len(answers) == len(EPISODES[0])
    assert all(answer.failed is None for answer in answers)
    assert answers[0].usage.calls
    assert all(answer.action is not None or answer.unread for answer in answers)
