"""Proxies of the environment that the HTTP client cannot use are errors that name the variable."""

import os

import pytest

from vlm_agent.agents.llm.client import ChatEndpoint, EndpointError
from vlm_agent.models import hub
from vlm_agent.models.proxies import ProxyError, proxy_in_words, proxy_of

URL = "http://models.invalid:8000/v1"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:7890", "ALL_PROXY=socks5://127.0.0.1:7890: a SOCKS proxy needs"),
        ("all_proxy", "socks://127.0.0.1:7890/", "all_proxy=socks://127.0.0.1:7890/: write socks5://HOST:PORT"),
        ("http_proxy", "socks5h://me:word@h:1", "http_proxy=socks5h://…@h:1: a SOCKS proxy needs"),
        ("HTTP_PROXY", "socks4://h:1", "pip install socksio"),
        ("HTTP_PROXY", "ftp://me:p@word@h:1", "HTTP_PROXY=ftp://…@h:1: proxies of scheme 'ftp' are not supported"),
        ("HTTP_PROXY", "http://me:word@h:port", "HTTP_PROXY=http://…@h:port: this is not the URL of a proxy"),
        ("HTTP_PROXY", "socks5:127.0.0.1:80", "this is not the URL of a proxy"),
        ("ALL_PROXY", "http://[::1", "this is not the URL of a proxy"),
        ("ALL_PROXY", "\x1b]0;x\x07socks5://h", "not supported"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(name, value, words, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(EndpointError) as error:
        ChatEndpoint(URL, "m", attempts=1).completion([], 16)
    message = str(error.value)
    assert words in message
    assert "NO_PROXY=models.invalid" in message
    assert message.isprintable()
    assert "word" not in message


def test_a_proxy_for_other_hosts_does_not_matter(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://h:1")
    with pytest.raises(EndpointError, match="cannot be reached"):
        ChatEndpoint(URL, "m", attempts=1).completion([], 16)
    monkeypatch.setenv("ALL_PROXY", "socks5://h:1")
    monkeypatch.setenv("NO_PROXY", "models.invalid")
    with pytest.raises(EndpointError, match="cannot be reached"):
        ChatEndpoint(URL, "m", attempts=1).completion([], 16)


def test_a_proxy_that_does_not_answer_is_in_the_error(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://me:word@127.0.0.1:9")
    with pytest.raises(EndpointError, match=r"cannot be reached through HTTP_PROXY=http://…@127.0.0.1:9 \("):
        ChatEndpoint(URL, "m", attempts=1).completion([], 16)


def test_the_variable_of_the_scheme_comes_before_that_of_all(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "http://a:1")
    monkeypatch.setenv("HTTPS_PROXY", "b:2")
    assert proxy_in_words(URL) == "ALL_PROXY=http://a:1"
    assert (proxy_in_words("https://x"), proxy_of("https://x")) == ("HTTPS_PROXY=b:2", "http://b:2")


def test_names_of_checkpoints_need_a_proxy_that_can_be_used(monkeypatch):
    from huggingface_hub import close_session

    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:7890")
    close_session()
    hub._is_reachable.cache_clear()
    with pytest.raises(ProxyError, match="a SOCKS proxy needs"):
        hub._is_reachable()
    close_session()
