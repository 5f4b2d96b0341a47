"""Names of checkpoints on huggingface.co, with and without a connection to it."""

import json
import socket
import threading
from contextlib import contextmanager

import huggingface_hub.constants
import pytest
from huggingface_hub import close_session

from vlm_agent.errors import CheckpointError
from vlm_agent.models import hub
from vlm_agent.models.build import build_tokenizer
from vlm_agent.models.pretrained import source_configuration
from vlm_agent.recipe.model import ModelRecipe, WeightsSource

NAME = "nobody/no-such-model"


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nX-Error-Code: RepoNotFound\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def published(folder) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """The state in a process that has not asked the hub yet, with an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub._is_reachable.cache_clear()
    yield
    hub._is_reachable.cache_clear()
    close_session()


@pytest.fixture
def endpoint(monkeypatch):
    def set_(url: str) -> None:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

    return set_


@contextmanager
def listening(answer: bytes = b""):
    """(URL, connections): a server that sends `answer` to every request and hangs up."""
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                connections.append(address)
                with connection:
                    if answer:
                        connection.recv(1 << 16)
                        connection.sendall(answer)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", connections
        server.shutdown(socket.SHUT_RDWR)


def test_without_a_connection_a_name_fails_after_one_request_for_all_its_parts(endpoint, caplog):
    with listening() as (url, connections):
        endpoint(url)
        with pytest.raises(CheckpointError, match="cannot be loaded: We couldn't connect to"):
            source_configuration(WeightsSource(checkpoint=NAME))
        with pytest.raises(CheckpointError, match="cannot be loaded"):
            build_tokenizer(ModelRecipe(vlm={"checkpoint": NAME}), None)
    assert len(connections) == 1
    assert "Retrying" not in caplog.text


def test_without_a_connection_a_name_is_read_from_the_cache(endpoint, tmp_path):
    folder = tmp_path / "cache" / "models--nobody--no-such-model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    published(folder / "snapshots" / ("0" * 40))
    with listening() as (url, connections):
        endpoint(url)
        assert source_configuration(WeightsSource(checkpoint=NAME)).model_type == "qwen2_5_vl"
    assert len(connections) == 1


def test_a_server_that_answers_is_asked_for_the_files(endpoint):
    with listening(NOT_FOUND) as (url, connections):
        endpoint(url)
        with pytest.raises(CheckpointError, match="is not a local folder"):
            source_configuration(WeightsSource(checkpoint=NAME))
    assert len(connections) > 1
    assert not huggingface_hub.constants.is_offline_mode()


def test_a_folder_needs_no_connection(endpoint, tmp_path):
    published(tmp_path / "model")
    with listening() as (url, connections):
        endpoint(url)
        source_configuration(WeightsSource(checkpoint=str(tmp_path / "model")))
    assert not connections
