"""The chat client against a real server: its requests, its retries, and its errors."""

import socket
import subprocess
import sys

import pytest
from helpers.chat_server import Reply, serving

from vlm_agent.agents.llm import client, http
from vlm_agent.agents.llm.client import ChatEndpoint, EndpointError

ASK = [{"role": "user", "content": "what now?"}]


def endpoint(url: str, waits: list | None = None, **options) -> ChatEndpoint:
    waits = [] if waits is None else waits
    return ChatEndpoint(url, "small-vlm", **{"timeout": 5.0, "attempts": 4, "sleep": waits.append} | options)


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_it_asks_the_model_by_name_at_temperature_0(base):
    with serving(lambda n, body: Reply("tap at 7 90")) as (url, requests):
        assert endpoint(url + base).complete(ASK, 32) == "tap at 7 90"
    assert requests[0].path == "/v1/chat/completions"
    assert requests[0].body == {"model": "small-vlm", "messages": ASK, "temperature": 0, "max_tokens": 32}
    assert requests[0].key is None


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda n, body: Reply()) as (url, requests):
        chat = endpoint(url)
        chat.complete(ASK, 32)
    assert requests[0].key == "Bearer secret"
    assert "secret" not in repr(chat)


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_tokens_of_a_chat_are_listed_by_a_server_that_can(base, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda n, body: Reply(b'{"count": 2, "tokens": [5, 7], "max_model_len": 9}')) as (url, requests):
        assert endpoint(url + base).tokenize(ASK) == [5, 7]
    assert requests[0].path == "/tokenize"
    assert requests[0].key == "Bearer secret"
    assert requests[0].body == {"model": "small-vlm", "messages": ASK, "add_generation_prompt": True}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"none", 404),
        Reply(b"<html>"),
        Reply(b"[5, 7]"),
        Reply(b'{"tokens": []}'),
        Reply(b'{"tokens": [5], "count": 2}'),
    ],
    ids=lambda reply: str(reply.body),
)
def test_a_server_that_lists_no_tokens_of_a_chat_is_no_error(reply):
    with serving(lambda n, body: reply) as (url, _):
        assert endpoint(url).tokenize(ASK) is None


def test_a_server_that_is_not_there_is_an_error_of_every_request():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = endpoint(f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(EndpointError, match="cannot be reached"):
            gone.tokenize(ASK)
        with pytest.raises(EndpointError, match="cannot be reached"):
            gone.served_models()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"x"',
        b'{"data": [1]}',
        b'{"data": [{"id": 5}]}',
        b'{"data": [{}]}',
        b'{"data": {"a": 1}}',
        b"[" * 100_000,
    ],
    ids=lambda body: body[:20].decode(),
)
def test_a_server_that_lists_no_models_is_one_line(body):
    refused = pytest.raises(EndpointError, match="does not list the server's models")
    with serving(lambda n, request: Reply(), Reply(body)) as (url, _), refused:
        endpoint(url).served_models()


def test_a_key_that_a_server_repeats_is_not_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    reply, refusal = Reply(b"Incorrect API key: sk-secret", 401), pytest.raises(EndpointError, match="status 401")
    with serving(lambda n, request: Reply(), reply) as (url, _), refusal as refused:
        endpoint(url).served_models()
    assert "sk-secret" not in str(refused.value)


FAULTS = {
    "busy": Reply(b"later", 429),
    "broken": Reply(b"oh", 500),
    "overloaded": Reply(b"oh", 503),
    "cut off": Reply(cut=True),
    "no JSON": Reply(b"<html>"),
    "no completion": Reply(b'{"choices": []}'),
    "a list": Reply(b"[]"),
    "content of another kind": Reply([{"type": "text"}]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_may_pass_is_tried_again_after_ever_longer_waits(fault):
    waits = []
    with serving(lambda n, body: FAULTS[fault] if n < 3 else Reply("complete")) as (url, requests):
        assert endpoint(url, waits).complete(ASK, 32) == "complete"
    assert waits == [1, 2, 4]
    assert len(requests) == 4


def test_a_server_that_hangs_is_asked_again():
    with serving(lambda n, body: Reply("complete", wait=1.0 if n == 0 else 0)) as (url, requests):
        assert endpoint(url, timeout=0.2).complete(ASK, 32) == "complete"
    assert len(requests) == 2


@pytest.mark.parametrize(("asked", "waited"), [("7", 7), ("86400", 60), ("soon", 1), ("-1", 1), ("٧", 1)])
def test_a_server_may_say_how_long_to_wait_within_reason(asked, waited):
    waits = []
    replies = [Reply(b"", 429, {"Retry-After": asked.encode("utf-8").decode("latin-1")}), Reply()]
    with serving(lambda n, body: replies[n]) as (url, _):
        endpoint(url, waits).complete(ASK, 32)
    assert waits == [waited]


def test_it_gives_up_and_says_on_what():
    with (
        serving(lambda n, body: Reply(b"the GPU is on fire", 500)) as (url, requests),
        pytest.raises(EndpointError, match="status 500: the GPU is on fire, 4 times"),
    ):
        endpoint(url).complete(ASK, 32)
    assert len(requests) == 4


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "requires a key in OPENAI_API_KEY, and none is set"),
        (403, "requires a key"),
        (404, "has no model 'small-vlm'"),
        (400, "refused the request with status 400: too many pictures"),
        (302, "refused the request with status 302"),
        (307, "refused the request with status 307"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(status, words):
    reply = Reply(b"too many pictures", status, {"Location": "http://127.0.0.1:9/"} if status < 400 else {})
    with serving(lambda n, body: reply) as (url, requests), pytest.raises(EndpointError, match=words):
        endpoint(url).complete(ASK, 32)
    assert len(requests) == 1


def test_a_key_stands_in_no_message(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with (
        serving(lambda n, body: Reply(b"the key sk-very-secret is revoked", 401)) as (url, _),
        pytest.raises(EndpointError, match="was refused") as refused,
    ):
        endpoint(url).complete(ASK, 32)
    assert "secret" not in str(refused.value)


def test_a_server_that_is_not_there_is_named_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    waits = []
    with pytest.raises(EndpointError, match=r"cannot be reached .*is the server running"):
        endpoint(url, waits).complete(ASK, 32)
    assert waits == []


def test_no_answer_is_no_text():
    with serving(lambda n, body: Reply(None)) as (url, _):
        assert endpoint(url).complete(ASK, 32) == ""


def test_a_proxy_is_not_asked_for_what_is_on_this_machine(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(lambda n, body: Reply()) as (url, _):
        assert endpoint(url).complete(ASK, 32) == "complete"


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/passwd", "http://", "http://me:word@host/v1", "http://host/v1?key=1", ""]
)
def test_what_is_no_address_of_an_endpoint_is_refused(url):
    with pytest.raises(EndpointError, match=r"not the URL of an endpoint|remove user"):
        endpoint(url)


def test_settings_for_openais_own_servers_are_not_sent(monkeypatch):
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer mine")
    with serving(lambda n, body: Reply()) as (url, requests):
        assert endpoint(url).complete(ASK, 32) == "complete"
    assert requests[0].key is None
    assert "mine" not in str(requests[0].headers)


def test_retries_are_counted():
    with serving(lambda n, body: Reply(b"later", 503) if n < 2 else Reply()) as (url, _):
        assert endpoint(url).completion(ASK, 32).calls == 3


@pytest.mark.parametrize("status", [200, 500])
def test_no_more_than_so_much_of_a_response_is_read(status, monkeypatch):
    monkeypatch.setattr(http, "MAX_BYTES", 1000)
    with serving(lambda n, body: Reply(b"x" * 100_000, status)) as (url, _):
        response = []
        monkeypatch.setattr(client, "_shown", lambda body: response.append(body) or "")
        with pytest.raises(EndpointError):
            endpoint(url, attempts=1).complete(ASK, 32)
    assert response == [b"x" * 1000]


def test_the_library_is_imported_by_the_first_call_only():
    script = "import sys; import vlm_agent.agents; assert not {'openai', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
