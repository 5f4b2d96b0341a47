"""An agent behind a chat endpoint: what the model is shown, and what becomes of its answer."""

import base64
import threading
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import tiny
from chat_server import Reply, serving
from rich.console import Console

from vlm_agent.agents.chat import ChatEndpoint, Completion, EndpointError
from vlm_agent.agents.endpoint import EndpointAgent
from vlm_agent.datasets.images import decode_screen
from vlm_agent.episodes import Action
from vlm_agent.evaluation.offline import Benchmark, evaluate
from vlm_agent.evaluation.sources import Endpoint
from vlm_agent.training.recipe import LanguageRecipe

EPISODE = tiny.episode(1)
ACTIONS = [tiny.LANGUAGE.render(step.action) for step in EPISODE.steps]


def agent(url: str = "http://localhost:1", **options) -> EndpointAgent:
    chat = ChatEndpoint(url, "small-vlm", attempts=2, sleep=lambda seconds: None)
    return EndpointAgent(chat, tiny.LANGUAGE, **options)


def asked(past_screens: int, number: int = 4, **senses) -> list[dict]:
    step = EPISODE.steps[number]
    return agent(past_screens=past_screens, **senses).messages(EPISODE.goal, EPISODE.steps[:number], step.screenshot)


def texts(messages: list[dict]) -> list[str]:
    return [turn["content"] if isinstance(turn["content"], str) else turn["content"][0]["text"] for turn in messages]


def screens(messages: list[dict]) -> list[np.ndarray]:
    urls = [turn["content"][1]["image_url"]["url"] for turn in messages if turn["role"] == "user"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [decode_screen(base64.b64decode(url.partition(",")[2])) for url in urls]


def test_past_screens_and_actions_take_turns_and_older_actions_are_told():
    messages = asked(past_screens=2)
    assert [turn["role"] for turn in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    said = texts(messages)
    assert tiny.LANGUAGE.instructions in said[0]
    assert said[1].splitlines() == [f"Goal: {EPISODE.goal}", *_told(ACTIONS[:2]), "Screen 3:"]
    assert said[2:] == [ACTIONS[2], "Screen 4:", ACTIONS[3], "Screen 5:"]
    assert all(map(np.array_equal, screens(messages), [step.screenshot for step in EPISODE.steps[2:5]]))


def _told(actions: list[str]) -> list[str]:
    return [f"Action {number}: {action}" for number, action in enumerate(actions, 1)]


@pytest.mark.parametrize(("past_screens", "shown"), [(0, 1), (1, 2), (4, 5), (9, 5)])
def test_so_many_screens_are_shown_and_every_action_is_known(past_screens, shown):
    messages = asked(past_screens)
    assert len(screens(messages)) == shown
    assert all(any(action in said for said in texts(messages)) for action in ACTIONS[:4])


def test_senses_can_be_taken_away():
    assert {screen.max() for screen in screens(asked(past_screens=2, grey=True))} == {128}
    forgetful = asked(past_screens=2, remember=False)
    assert texts(forgetful)[1:] == [f"Goal: {EPISODE.goal}\nScreen 1:"]
    plain = agent()
    assert plain.on_grey_screens() == replace(plain, grey=True)
    assert plain.without_history() == replace(plain, remember=False)


@pytest.mark.parametrize(
    ("text", "action"), [(" press back\n", Action.press("back")), ("I press back", None), ("", None), (None, None)]
)
def test_an_answer_is_read_as_it_stands(text, action):
    with serving(lambda n, body: Reply(text)) as (url, _):
        answer = agent(url).act(EPISODE.goal, (), EPISODE.steps[0].screenshot)
    assert answer.action == action
    assert answer.text == (text or "")


def what_was_done(n: int, body: dict) -> Reply:
    """Knows the demonstration by the number of the screen; every third call fails at first."""
    number = int(texts(body["messages"])[-1].split("Screen ")[1].rstrip(":"))
    return Reply(ACTIONS[number - 1]) if n % 3 else Reply(b"busy", 503)


def test_every_step_is_asked_for_and_answers_come_back_in_order():
    with serving(what_was_done) as (url, _):
        eager = replace(agent(url, workers=4), chat=ChatEndpoint(url, "vlm", attempts=9, sleep=lambda seconds: None))
        answers = eager.answer_episodes([EPISODE, EPISODE])
    assert [[answer.text for answer in episode] for episode in answers] == [ACTIONS, ACTIONS]


def test_calls_are_under_way_together():
    meeting = threading.Barrier(3, timeout=20)

    class Meeting(ChatEndpoint):
        def completion(self, messages, max_tokens):
            meeting.wait()
            return Completion("complete")

    three = replace(EPISODE, steps=EPISODE.steps[:3])
    together = EndpointAgent(Meeting("http://localhost:1", "vlm"), tiny.LANGUAGE, workers=3)
    assert len(together.answer_episodes([three])[0]) == 3


def test_the_first_failure_ends_it():
    with (
        serving(lambda n, body: Reply(b"no such model", 404)) as (url, heard),
        pytest.raises(EndpointError, match="no such model"),
    ):
        agent(url, workers=1).answer_episodes([EPISODE] * 4)
    assert len(heard) < 20


def test_an_endpoint_is_scored_like_a_checkpoint_and_resumed_after_a_fault(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(2)], "test")
    source = lambda url: Endpoint(  # noqa: E731
        ChatEndpoint(url, "small-vlm", attempts=1), LanguageRecipe(bins=tiny.BINS), past_screens=9, workers=1
    )
    score = lambda url: evaluate(  # noqa: E731
        source(url), Benchmark(shards, "test"), tmp_path / "out", Console(file=StringIO())
    )
    with (
        serving(lambda n, body: Reply(b"gone", 410) if n == 12 else Reply("press enter")) as (url, _),
        pytest.raises(EndpointError, match="410"),
    ):
        score(url)
    with serving(lambda n, body: Reply("press enter")) as (url, heard):
        scores = score(url)
    assert len(heard) == 20  # the first pass was done; grey screens and no history remained
    assert scores["trained"]["official"]["general"]["partial_match"] == 20
    assert scores["trained"]["about"]["settled_by_prefill"] is None
    assert "small-vlm at http://127.0.0.1" in (tmp_path / "out" / "report.html").read_text()
