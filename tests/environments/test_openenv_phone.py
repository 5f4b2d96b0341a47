"""The phone behind OpenEnv's protocol: an episode, sessions apart, and an error frame for whatever cannot be done."""

import base64
import importlib
import io
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.pages.environments import run_example
from helpers.phones import openenv
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlm_agent.action_languages import language_settings
from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.environments.play import PlayError, Tasks

websockets = pytest.importorskip("websockets")

TASK = "general/train/7"
NAMED = language_settings({"name": "named"}).build()


@pytest.fixture(scope="module")
def server():
    return importlib.import_module("vlm_agent.environments.openenv")


@pytest.fixture(scope="module")
def address(server):
    with server.served(0) as address:
        yield address


@pytest.fixture
def client(address):
    with openenv.Client(address) as client:
        yield client


def script(task):
    return [NAMED.encode(action) for action in Tasks().named(task).solution().actions]


def test_a_client_plays_an_episode_and_is_paid_by_state(client):
    result = client.reset(task=TASK)
    picture = Image.open(io.BytesIO(base64.b64decode(result.observation["screen"])))
    with Tasks().named(TASK).open() as opened:
        assert np.array_equal(np.array(picture), opened.device.screenshot())
    assert all(map(json.loads, result.observation["elements"].splitlines())) and (result.done, result.reward) == (
        False,
        None,
    )
    results = [client.step({"text": text}) for text in script(TASK)]
    assert [one.done for one in results] == [False] * (len(results) - 1) + [True]
    assert results[-1].reward == 1.0 and results[-1].observation["outcome"]["success"]
    state = client.ask({"type": "state"})
    assert state["data"]["task"] == TASK and state["data"]["step_count"] == len(results)


def test_a_picture_can_be_left_out_for_clients_that_read_text(client):
    assert "screen" not in client.reset(task=TASK, screen=False).observation
    assert len(json.dumps(vars(client.step({"text": "press home"})))) < 20_000


def test_sessions_do_not_know_each_other(address):
    tasks = [TASK, "single/train/5", "install/train/2", TASK]

    def play(task):
        with openenv.Client(address) as client:
            goal = client.reset(task=task).observation["goal"]
            return goal, [client.step({"text": text}) for text in script(task)][-1].reward

    with ThreadPoolExecutor(len(tasks)) as pool:
        assert list(pool.map(play, tasks)) == [(Tasks().named(task).goal, 1.0) for task in tasks]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        (b"\xff\xfe", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ("7", "VALIDATION_ERROR"),
        ({"type": "dance"}, "UNKNOWN_TYPE"),
        ({"type": ["step"]}, "UNKNOWN_TYPE"),
        ({"type": "step", "data": "tap at 30 12"}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": 7}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "dance"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "\ud800"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "tap at 30 12 " * 80_000}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"task": "general/train"}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"task": "general/test/7"}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"task": 7}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": True}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"screen": "no"}}, "VALIDATION_ERROR"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_frame_gets_an_error_frame_and_the_session_goes_on(client, capfd, frame, code):
    before = client.reset(task=TASK).observation
    answer = client.ask(frame)
    assert (answer["type"], answer["data"]["code"]) == ("error", code)
    assert "\n" not in answer["data"]["message"] and len(answer["data"]["message"]) < 1000
    assert client.ask({"type": "state"})["data"]["step_count"] == 0
    after = client.step({"text": "press home"})
    assert after.done is False and after.observation["goal"] == before["goal"]
    assert capfd.readouterr() == ("", "")


WORDS = st.sampled_from(["type", "data", "seed", "task", "text", "screen", "step", "reset", "state", TASK])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
)
FRAMES = st.fixed_dictionaries({"type": WORDS, "data": st.dictionaries(WORDS, JSON, max_size=3)})


@settings(max_examples=60, deadline=None)  # some of them begin a task, which a busy machine does slowly
@given(st.text() | st.binary() | (JSON | FRAMES).map(json.dumps))
def test_every_frame_gets_a_frame(server, frame):
    answer = server.Session(Tasks(), NAMED).answer(frame)
    assert answer["type"] in ("observation", "state", "error") and json.dumps(answer)


def test_a_step_before_the_reset_and_after_the_end_gets_an_error_frame(client):
    for _ in range(2):
        answer = client.ask({"type": "step", "data": {"text": "complete"}})
        assert (answer["type"], answer["data"]["code"]) == ("error", "EXECUTION_ERROR")
        assert "reset" in answer["data"]["message"]
        client.reset(seed=1, screen=False)
        assert client.step({"text": "complete"}).done


def test_a_seed_names_a_task_of_the_split(client):
    def task(**data):
        client.reset(screen=False, **data)
        return client.ask({"type": "state"})["data"]["task"]

    assert task(seed=3) == task(seed=3) == Tasks().drawn(3).name
    assert "/train/" in task()


def test_pages_in_browsers_and_noise_are_refused_in_silence(address, capfd):
    with pytest.raises(websockets.exceptions.InvalidStatus, match="403"), openenv.Client(address, "http://example.org"):
        pass
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as noise:
        noise.sendall(b"\x00\xff" * 1000 + b"\r\n\r\n")
        noise.recv(1000)
    assert capfd.readouterr() == ("", "")


def test_health_metadata_and_schema_answer_over_http(address):
    def page(name):
        with urllib.request.urlopen(f"{address}/{name}") as answer:  # noqa: S310 (our own server)
            return json.load(answer)

    pages = {name: page(name) for name in ("health", "metadata", "schema")}
    assert pages["health"] == {"status": "healthy"} and pages["metadata"]["name"]
    assert "tap at" in pages["schema"]["action"]["properties"]["text"]["description"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page("secrets")


def test_more_sessions_than_there_are_get_an_error_frame(server, monkeypatch):
    assert server.MAX_SESSIONS >= 64
    monkeypatch.setattr(server, "MAX_SESSIONS", 1)
    with server.served(0) as address, openenv.Client(address) as first:
        first.ask({"type": "state"})
        with openenv.Client(address) as second:
            assert json.loads(second.socket.recv(timeout=60))["data"]["code"] == "CAPACITY_REACHED"
        assert first.ask({"type": "state"})["type"] == "state"


def test_the_example_of_openenv_runs(address, monkeypatch, capsys):
    openenv.install(monkeypatch, address)
    run_example("OpenEnv")
    assert "complete True 0.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--openenv", "--task", "general/train/7"], USAGE, "a client's reset names the task"),
        (["--language", "named"], USAGE, "--language needs --openenv"),
        (["--allow-test"], USAGE, "--allow-test needs --openenv"),
        (["--openenv", "--language", "nmaed"], FAILED, "did you mean named?"),
    ],
)
def test_options_without_effect_and_unknown_languages_are_refused(arguments, status, message, capsys):
    try:
        found = main(["phone", *arguments])
    except SystemExit as error:
        found = error.code
    assert found == status and message in capsys.readouterr().err


def test_the_command_serves_until_ctrl_c_also_with_a_client():
    command = [sys.executable, "-m", "vlm_agent.cli", "phone", "--openenv", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().removeprefix("OpenEnv at ").strip()
        with openenv.Client(address) as client:
            assert client.reset(task=TASK).observation["goal"]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == OK
        assert process.stderr.read() == ""


def test_a_port_in_use_is_named(capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["phone", "--openenv", "--port", str(port)]) == FAILED
    assert str(port) in capsys.readouterr().err


def test_without_websockets_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets", None)
    monkeypatch.setitem(sys.modules, "websockets.exceptions", None)
    monkeypatch.delitem(sys.modules, "vlm_agent.environments.openenv")
    with pytest.raises(PlayError, match=r"pip install .*openenv"):
        importlib.import_module("vlm_agent.environments.openenv")
