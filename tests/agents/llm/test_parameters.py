"""Parameters that a model refuses: one more request without them, remembered for all later requests."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import ChatEndpoint, RefusedError
from vlm_agent.agents.llm.completion import refused_parameters

MESSAGES = [{"role": "user", "content": "what now?"}]
LIMIT_NOTE = "requested with max_completion_tokens, because the model refuses max_tokens"
TEMPERATURE_NOTE = "requested without temperature 0, which the model refuses"


def error(message: str, status: int = 400, **more) -> Reply:
    return Reply(json.dumps({"error": {"message": message, "type": "invalid_request_error"} | more}).encode(), status)


def reasoning_model(_: int, body: dict) -> Reply:
    """A model that answers as OpenAI's o-series and GPT-5 answer."""
    if "max_tokens" in body:
        return error("Use 'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter")
    if body.get("temperature", 1) != 1:
        return error("Only the default (1) value.", param="temperature", code="unsupported_value")
    return Reply("press home")


def endpoint(url: str) -> ChatEndpoint:
    return ChatEndpoint(url, "vlm", attempts=1)


def test_refused_parameters_cost_one_request_each_and_not_one_per_step():
    with serving(reasoning_model) as (url, requests):
        chat = endpoint(url)
        replies = [chat.completion(MESSAGES, 32) for _ in range(3)]
    assert [(one.text, one.calls, one.notes) for one in replies] == [
        ("press home", calls, (LIMIT_NOTE, TEMPERATURE_NOTE)) for calls in (3, 1, 1)
    ]
    assert requests[-1].body == {"model": "vlm", "messages": MESSAGES, "max_completion_tokens": 32}
    assert len(requests) == 5


def test_threads_and_the_calls_on_disk_share_what_the_model_refuses(tmp_path):
    with serving(reasoning_model) as (url, requests), ThreadPoolExecutor(8) as pool:
        calls = Calls(endpoint(url), tmp_path)
        texts = pool.map(lambda n: calls.completion([{"role": "user", "content": str(n)}], 32).text, range(16))
        assert set(texts) == {"press home"}
    assert len(requests) == 18


def test_a_temperature_that_is_accepted_stays_0():
    with serving(lambda n, body: reasoning_model(n, body | {"temperature": 1})) as (url, requests):
        endpoint(url).completion(MESSAGES, 32)
    assert requests[-1].body["temperature"] == 0


@pytest.mark.parametrize(
    ("message", "status", "refused"),
    [
        ("litellm.UnsupportedParamsError: gpt-5 models don't support temperature=0.0. Only temperature=1 is", 400, "t"),
        ("invalid temperature: only 1 is allowed for this model", 400, "t"),
        ("`temperature` is deprecated for this model.", 400, "t"),
        ("`temperature` must be strictly positive", 422, "t"),
        ("o1 does not support parameters: ['temperature', 'max_tokens']", 400, "mt"),
        ("Unrecognized request argument supplied: max_tokens", 400, "m"),
        ("body.max_tokens: Extra inputs are not permitted", 422, "m"),
        ("max_tokens is too large: 99. This model supports at most 16 completion tokens", 400, ""),
        ("'max_tokens' must be smaller than the context", 400, ""),
        ("this model does not support pictures", 400, ""),
    ],
)
def test_servers_that_refuse_a_parameter_in_their_own_words_are_read(message, status, refused):
    names = {"m": "max_tokens", "t": "temperature"}
    expected = {names[letter] for letter in refused}
    assert refused_parameters(error(message).body) == expected
    with serving(lambda n, body: error(message, status) if not n else Reply()) as (url, requests):
        chat = endpoint(url)
        if not expected:
            with pytest.raises(RefusedError):
                chat.completion(MESSAGES, 32)
            return
        assert chat.completion(MESSAGES, 32).text == "complete"
    assert not expected & set(requests[1].body)


def test_a_refusal_that_remains_without_the_parameters_is_the_error_and_nothing_is_remembered():
    message = "unsupported: pictures, max_tokens, temperature"
    with serving(lambda n, body: error(message) if n < 2 else Reply()) as (url, requests):
        chat = endpoint(url)
        with pytest.raises(RefusedError, match=message):
            chat.completion(MESSAGES, 32)
        chat.completion(MESSAGES, 32)
    assert {"max_tokens", "temperature"} <= set(requests[2].body)
    assert len(requests) == 3
