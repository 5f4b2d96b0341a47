"""The chat client against a real server: its requests, its retries, and its errors."""

import gzip
import json
import socket
import subprocess
import sys

import pytest
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents.llm import client, http
from vlm_agent.agents.llm.client import CallError, ChatEndpoint, EndpointError
from vlm_agent.agents.llm.completion import Completion

MESSAGES = [{"role": "user", "content": "what now?"}]


def endpoint(url: str, waits: list | None = None, **options) -> ChatEndpoint:
    waits = [] if waits is None else waits
    return ChatEndpoint(url, "small-vlm", **{"timeout": 5.0, "attempts": 4, "sleep": waits.append} | options)


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_a_request_names_the_model_and_has_temperature_0(base):
    with serving(lambda n, body: Reply("tap at 7 90")) as (url, requests):
        assert endpoint(url + base).completion(MESSAGES, 32).text == "tap at 7 90"
    assert requests[0].path == "/v1/chat/completions"
    assert requests[0].body == {"model": "small-vlm", "messages": MESSAGES, "temperature": 0, "max_tokens": 32}
    assert requests[0].key is None


def test_the_key_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda n, body: Reply()) as (url, requests):
        chat = endpoint(url)
        chat.completion(MESSAGES, 32)
    assert requests[0].key == "Bearer secret"
    assert "secret" not in repr(chat)


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_tokenize_returns_the_ids_of_the_server(base, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(lambda n, body: Reply(b'{"count": 2, "tokens": [5, 7], "max_model_len": 9}')) as (url, requests):
        assert endpoint(url + base).tokenize(MESSAGES) == [5, 7]
    assert requests[0].path == "/tokenize"
    assert requests[0].key == "Bearer secret"
    assert requests[0].body == {"model": "small-vlm", "messages": MESSAGES, "add_generation_prompt": True}


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
def test_tokenize_returns_none_if_the_server_does_not_support_it(reply):
    with serving(lambda n, body: reply) as (url, _):
        assert endpoint(url).tokenize(MESSAGES) is None


def test_every_kind_of_request_to_an_unreachable_server_is_an_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = endpoint(f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(EndpointError, match="cannot be reached"):
            gone.tokenize(MESSAGES)
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
def test_a_server_that_does_not_list_its_models_is_an_error(body):
    error = pytest.raises(EndpointError, match="does not list the server's models")
    with serving(lambda n, request: Reply(), Reply(body)) as (url, _), error:
        endpoint(url).served_models()


def test_a_key_in_a_response_is_removed_from_the_message(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    reply, raises = Reply(b"Incorrect API key: sk-secret", 401), pytest.raises(EndpointError, match="status 401")
    with serving(lambda n, request: Reply(), reply) as (url, _), raises as error:
        endpoint(url).served_models()
    assert "sk-secret" not in str(error.value)


def test_the_message_of_a_server_is_printable():
    reply = Reply("\x1b[2J\x07no \u202epicture".encode(), 400)
    with serving(lambda n, body: reply) as (url, _), pytest.raises(CallError, match="picture") as error:
        endpoint(url).completion([], 16)
    assert str(error.value).isprintable()


FAULTS = {
    "busy": Reply(b"later", 429),
    "broken": Reply(b"oh", 500),
    "overloaded": Reply(b"oh", 503),
    "locked": Reply(b"oh", 409),
    "too early": Reply(b"oh", 425),
    "overloaded, as some servers say": Reply(b"oh", 529),
    "behind a proxy": Reply(b"oh", 522),
    "cut off": Reply(cut=True),
    "no JSON": Reply(b"<html>"),
    "no completion": Reply(b'{"choices": []}'),
    "a list": Reply(b"[]"),
    "content of another kind": Reply([{"type": "text"}]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_transient_failures_are_retried_with_exponential_backoff(fault):
    waits = []
    with serving(lambda n, body: FAULTS[fault] if n < 3 else Reply("complete")) as (url, requests):
        assert endpoint(url, waits).completion(MESSAGES, 32).text == "complete"
    assert waits == [1, 2, 4]
    assert len(requests) == 4


def test_a_server_may_be_away_for_a_day(monkeypatch):
    def away(*_) -> Completion:
        if len(waits) < 1500:
            raise client._TransientError("busy")
        return Completion("tap")

    waits: list[float] = []
    monkeypatch.setattr(ChatEndpoint, "_answered", away)
    assert endpoint("http://a:1", waits, attempts=2000).completion(MESSAGES, 16).text == "tap"
    assert waits[:7] == [1, 2, 4, 8, 16, 32, 60] and waits[-1] == 60


def test_a_request_is_repeated_after_a_timeout():
    with serving(lambda n, body: Reply("complete", wait=1.0 if n == 0 else 0)) as (url, requests):
        assert endpoint(url, timeout=0.2).completion(MESSAGES, 32).text == "complete"
    assert len(requests) == 2


@pytest.mark.parametrize(("retry_after", "seconds"), [("7", 7), ("86400", 60), ("soon", 1), ("-1", 1), ("٧", 1)])
def test_retry_after_is_respected_up_to_a_limit(retry_after, seconds):
    waits = []
    replies = [Reply(b"", 429, {"Retry-After": retry_after.encode("utf-8").decode("latin-1")}), Reply()]
    with serving(lambda n, body: replies[n]) as (url, _):
        endpoint(url, waits).completion(MESSAGES, 32)
    assert waits == [seconds]


def test_the_last_failure_is_the_error_after_all_attempts():
    with (
        serving(lambda n, body: Reply(b"the GPU is on fire", 500)) as (url, requests),
        pytest.raises(EndpointError, match="status 500: the GPU is on fire, 4 times"),
    ):
        endpoint(url).completion(MESSAGES, 32)
    assert len(requests) == 4


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "requires a key in OPENAI_API_KEY, and none is set"),
        (402, "requires a payment .status 402: too many pictures"),
        (403, r"refused the request with status 403: too many pictures \(OPENAI_API_KEY is not set\)"),
        (404, "has no model 'small-vlm'"),
        (400, "refused the request with status 400: too many pictures"),
        (501, "refused the request with status 501"),
        (505, "refused the request with status 505"),
        (302, "refused the request with status 302"),
        (307, "refused the request with status 307"),
    ],
)
def test_permanent_failures_are_not_retried(status, words):
    reply = Reply(b"too many pictures", status, {"Location": "http://127.0.0.1:9/"} if status < 400 else {})
    with serving(lambda n, body: reply) as (url, requests), pytest.raises(EndpointError, match=words):
        endpoint(url).completion(MESSAGES, 32)
    assert len(requests) == 1


def test_the_key_of_a_refused_request_is_not_in_the_message(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with (
        serving(lambda n, body: Reply(b"the key sk-very-secret is revoked", 401)) as (url, _),
        pytest.raises(EndpointError, match="server rejected the one that is set") as error,
    ):
        endpoint(url).completion(MESSAGES, 32)
    assert "secret" not in str(error.value)


def test_white_space_around_the_key_is_not_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret\r\n")
    with (
        serving(lambda n, body: Reply(b"the key sk-very-secret is revoked", 401)) as (url, requests),
        pytest.raises(EndpointError) as error,
    ):
        endpoint(url).completion(MESSAGES, 32)
    assert len(requests) == 1 and "secret" not in str(error.value)


@pytest.mark.parametrize("key", ["sk-very\u2011secret", "sk-very\nsecret"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(EndpointError, match="OPENAI_API_KEY has characters that no key has") as error:
        endpoint("http://127.0.0.1:9/v1").completion(MESSAGES, 32)
    assert "secret" not in str(error.value)


def test_an_unreachable_server_is_an_error_without_retries():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    waits = []
    with pytest.raises(EndpointError, match=r"cannot be reached .*is the server running"):
        endpoint(url, waits).completion(MESSAGES, 32)
    assert waits == []


def test_a_server_that_accepts_no_connection_is_an_error_without_retries():
    waits = []
    with socket.socket() as full, socket.socket() as only:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        only.connect(full.getsockname())  # the system drops further ones
        with pytest.raises(EndpointError, match=r"cannot be reached .*is the server running"):
            endpoint(f"http://127.0.0.1:{full.getsockname()[1]}", waits, timeout=0.1).completion(MESSAGES, 32)
    assert waits == []


def test_a_refusal_in_another_charset_is_shown():
    reply = Reply(b"too many pictures", 400, {"Content-Type": "text/plain; charset=utf-16"})
    with serving(lambda n, body: reply) as (url, _), pytest.raises(CallError, match="too many pictures"):
        endpoint(url).completion(MESSAGES, 32)


@pytest.mark.parametrize(
    ("read", "written", "tokens"),
    [(7, 0, (7, 0)), (1 << 32, 2, (1 << 32, 2)), (10**30, 2, None), (7, -1, None), (True, 2, None), ("7", 2, None)],
)
def test_tokens_that_cannot_be_a_count_are_unknown(read, written, tokens):
    usage = {"prompt_tokens": read, "completion_tokens": written}
    body = json.dumps({"choices": [{"message": {"content": "tap"}}], "usage": usage}).encode()
    with serving(lambda n, request: Reply(body)) as (url, _):
        assert endpoint(url).completion(MESSAGES, 32).tokens == tokens


def test_a_completion_without_content_is_an_empty_text():
    with serving(lambda n, body: Reply(None)) as (url, _):
        assert endpoint(url).completion(MESSAGES, 32).text == ""


def test_proxies_are_not_used_for_localhost(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(lambda n, body: Reply()) as (url, _):
        assert endpoint(url).completion(MESSAGES, 32).text == "complete"


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000", "file:///etc/passwd", "http://", "http://me:word@host/v1", "http://host/v1?key=1", ""),
        *("http://localhost:8000v1", "http://localhost:99999/v1", "http://[::1", "http://a..b/v1", "http://a\x01b/v1"),
    ],
)
def test_an_invalid_url_is_an_error(url):
    with pytest.raises(EndpointError, match=r"not the URL of an endpoint|remove user"):
        endpoint(url)


def test_environment_settings_for_openai_servers_are_not_sent(monkeypatch):
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer mine")
    with serving(lambda n, body: Reply()) as (url, requests):
        assert endpoint(url).completion(MESSAGES, 32).text == "complete"
    assert requests[0].key is None
    assert "mine" not in str(requests[0].headers)


def test_calls_include_retries():
    with serving(lambda n, body: Reply(b"later", 503) if n < 2 else Reply()) as (url, _):
        assert endpoint(url).completion(MESSAGES, 32).calls == 3


@pytest.mark.parametrize("status", [200, 500])
def test_a_response_is_read_up_to_the_size_limit(status, monkeypatch):
    monkeypatch.setattr(http, "MAX_BYTES", 1000)
    with serving(lambda n, body: Reply(b"x" * 100_000, status)) as (url, _):
        response = []
        monkeypatch.setattr(client, "_shown", lambda body: response.append(body) or "")
        with pytest.raises(EndpointError):
            endpoint(url, attempts=1).completion(MESSAGES, 32)
    assert response == [b"x" * 1000]


def test_a_compressed_response_is_refused_before_it_is_decompressed():
    body = gzip.compress(b" " * 100_000_000)
    reply = Reply(body, headers={"Content-Encoding": "gzip"})
    with serving(lambda n, body: reply) as (url, _), pytest.raises(EndpointError, match="response is compressed"):
        endpoint(url, attempts=1).completion(MESSAGES, 32)


def test_importing_agents_does_not_import_openai_or_torch():
    script = "import sys; import vlm_agent.agents; assert not {'openai', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
