"""An agent behind a chat endpoint: its prompts, and the decoding of its answers."""

import base64
import json
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from rich.console import Console

from vlm_agent.agents import NoAnswerError, demonstrated
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.endpoint import EndpointAgent, EndpointSettings
from vlm_agent.agents.llm.calls import Calls, CostLimitError
from vlm_agent.agents.llm.client import ChatEndpoint, EndpointError
from vlm_agent.agents.llm.completion import Completion
from vlm_agent.agents.loading import agent_settings
from vlm_agent.cli import OK, main
from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import evaluate
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.evaluation.viewing.catalogue import entries_in

EPISODE = tiny.episode(1)
ACTIONS = [tiny.LANGUAGE.encode(step.action) for step in EPISODE.steps]


class NotKept(ChatEndpoint):
    """Calls without a folder of replies."""

    def stop(self) -> None:
        pass


def agent(url: str = "http://localhost:1", **options) -> EndpointAgent:
    chat = NotKept(url, "small-vlm", attempts=2, sleep=lambda seconds: None)
    return EndpointAgent(chat, tiny.LANGUAGE, **options)


def messages_of(past_screens: int, number: int = 4) -> list[dict]:
    history = demonstrated(EPISODE, number)
    return agent(past_screens=past_screens).messages(EPISODE.goal, history, EPISODE.steps[number].screen)


def texts(messages: list[dict]) -> list[str]:
    return [turn["content"] if isinstance(turn["content"], str) else turn["content"][0]["text"] for turn in messages]


def screens(messages: list[dict]) -> list[np.ndarray]:
    urls = [turn["content"][1]["image_url"]["url"] for turn in messages if turn["role"] == "user"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [decode_screen(base64.b64decode(url.partition(",")[2])) for url in urls]


def test_past_screens_alternate_with_actions_and_older_actions_are_text():
    messages = messages_of(past_screens=2)
    assert [turn["role"] for turn in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    prompts = texts(messages)
    assert tiny.LANGUAGE.instructions in prompts[0]
    assert prompts[1].splitlines() == [f"Goal: {EPISODE.goal}", *_numbered(ACTIONS[:2]), "Screen 3:"]
    assert prompts[2:] == [ACTIONS[2], "Screen 4:", ACTIONS[3], "Screen 5:"]
    assert all(map(np.array_equal, screens(messages), [step.screenshot for step in EPISODE.steps[2:5]]))


@pytest.mark.parametrize("past_screens", [0, 1, 2])
def test_an_action_that_the_phone_refused_is_not_claimed(past_screens):
    history = demonstrated(EPISODE, 2)
    for number in range(2):
        turns = [replace(turn, failed=place == number) for place, turn in enumerate(history)]
        messages = agent(past_screens=past_screens).messages(EPISODE.goal, turns, EPISODE.steps[2].screen)
        lines = "\n".join(texts(messages)[1:]).splitlines()
        (place,) = (
            n for n, line in enumerate(lines) if line == "(Last action: the phone did not perform this action.)"
        )
        assert lines[place - 1].endswith(ACTIONS[number])
    assert not any("did not perform" in text for text in texts(messages_of(past_screens)))


def _numbered(actions: list[str]) -> list[str]:
    return [f"Action {number}: {action}" for number, action in enumerate(actions, 1)]


@pytest.mark.parametrize(("past_screens", "shown"), [(0, 1), (1, 2), (4, 5), (9, 5)])
def test_the_prompt_has_the_chosen_number_of_screens_and_all_actions(past_screens, shown):
    messages = messages_of(past_screens)
    assert len(screens(messages)) == shown
    assert all(any(action in prompt for prompt in texts(messages)) for action in ACTIONS[:4])


@pytest.mark.parametrize("control", ["grey_screens", "no_history"])
def test_under_a_control_the_prompt_contains_only_permitted_information(control):
    with serving(lambda n, body: Reply("press back")) as (url, requests):
        controlled = ControlledAgent(agent(url, past_screens=9), CONTROLS[control])
        controlled.act(EPISODE.goal, demonstrated(EPISODE, 4), EPISODE.steps[4].screen)
        controlled.answer_episodes([EPISODE])
    shown = [call.body["messages"] for call in requests]
    assert len(shown) == 1 + len(EPISODE)
    if control == "grey_screens":
        assert {(screen.min(), screen.max()) for messages in shown for screen in screens(messages)} == {(128, 128)}
        assert len(screens(shown[0])) == 5
    else:
        assert {tuple(texts(messages)[1:]) for messages in shown} == {(f"Goal: {EPISODE.goal}\nScreen 1:",)}


@pytest.mark.parametrize(
    ("text", "action"), [(" press back\n", Action.press("back")), ("I press back", None), ("", None), (None, None)]
)
def test_an_answer_is_decoded_without_surrounding_white_space(text, action):
    with serving(lambda n, body: Reply(text)) as (url, _):
        answer = agent(url).act(EPISODE.goal, (), EPISODE.steps[0].screen)
    assert answer.action == action
    assert answer.text == (text or "")


def demonstrate(n: int, body: dict) -> Reply:
    """Replies with the demonstrated action for the number of the screen; every third call fails."""
    number = int(texts(body["messages"])[-1].split("Screen ")[1].rstrip(":"))
    return Reply(ACTIONS[number - 1]) if n % 3 else Reply(b"busy", 503)


def test_every_step_is_answered_and_answers_are_in_order():
    with serving(demonstrate) as (url, _):
        eager = replace(agent(url, workers=4), calls=ChatEndpoint(url, "vlm", attempts=9, sleep=lambda seconds: None))
        answers = eager.answer_episodes([EPISODE, EPISODE])
    assert [[answer.text for answer in episode] for episode in answers] == [ACTIONS, ACTIONS]


def test_calls_are_concurrent():
    meeting = threading.Barrier(3, timeout=20)

    class Meeting(ChatEndpoint):
        def completion(self, messages, max_tokens):
            meeting.wait()
            return Completion("complete")

    three = replace(EPISODE, steps=EPISODE.steps[:3])
    concurrent = EndpointAgent(Meeting("http://localhost:1", "vlm"), tiny.LANGUAGE, workers=3)
    assert len(concurrent.answer_episodes([three])[0]) == 3


def test_the_first_failure_cancels_the_remaining_calls():
    with (
        serving(lambda n, body: Reply(b"no such model", 404)) as (url, requests),
        pytest.raises(EndpointError, match="no such model"),
    ):
        agent(url, workers=1).answer_episodes([EPISODE] * 4)
    assert len(requests) < 20


def _check_failed_steps_are_stated(output, shards, capsys):
    line = "predictions.parquet: the agent failed to answer 1 step(s), which count as wrong; run the same evaluate"
    page = output.parent / "page.html"
    for more in ([], ["--against", str(output)], ["--report", str(page), "--shards", str(shards)]):
        assert main(["score", str(output), *more]) == OK
        assert capsys.readouterr().out.count(line) == (2 if "--against" in more else 1)
    assert main(["score", str(output / "predictions_no_history.parquet")]) == OK
    assert "failed to answer" not in capsys.readouterr().out
    assert "1, counted as wrong" in page.read_text(encoding="utf-8")
    (entry,) = [entry for entry in entries_in(output) if entry.kind == "evaluation"]
    assert entry.figures.count("1 failed step(s), counted as wrong") == 1


def test_a_step_whose_call_fails_is_listed_and_the_same_command_requests_it_alone(tmp_path, capsys):
    shards, output = (
        tiny.write_shards(tmp_path / "shards", [tiny.episode(0), tiny.episode(1)], "test"),
        tmp_path / "out",
    )

    def score(url: str) -> dict:
        settings = {"action_language": {"bins": tiny.BINS}, "past_screens": 9, "concurrency": 1}
        agent = EndpointSettings(endpoint=url, model="small-vlm", **settings)
        return evaluate(agent, Benchmark(shards=shards, split="test"), output, Console(file=StringIO()))

    failing = lambda n, body: Reply(b"gone", 410) if n == 3 else Reply("press enter")  # noqa: E731
    with serving(failing) as (url, requests), pytest.raises(NoAnswerError, match="status 410: gone"):
        score(url)
    assert len(requests) == 28  # without history, the first step of an episode is the same request as with it
    about = json.loads((output / "metrics.json").read_text())["trained"]["about"]
    _check_failed_steps_are_stated(output, shards, capsys)
    assert [line.partition(": ")[0] for line in about["failed_steps"]] == ["episode 0, step 3"]
    with serving(lambda n, body: Reply("press enter")) as (url, requests):
        scores = score(url)
    assert len(requests) == 1
    assert scores["trained"]["official"]["general"]["partial_match"] == 20
    assert scores["trained"]["about"]["settled_by_prefill"] is None
    assert "small-vlm at http://127.0.0.1" in (output / "report.html").read_text()


def evaluated(folder, reply: str, **options) -> tuple[dict, str, str]:
    """(metrics.json, terminal, report) of a served model that always answers `reply`."""
    shards, output, terminal = folder / "shards", folder / "out", StringIO()
    if not shards.exists():
        tiny.write_shards(shards, [tiny.episode(0), tiny.episode(1)], "test")
    with serving(lambda n, body: Reply(reply)) as (url, _):
        settings = EndpointSettings(endpoint=url, model="vlm", action_language={"bins": tiny.BINS}, **options)
        evaluate(settings, Benchmark(shards=shards, split="test"), output, Console(file=terminal, width=200))
    return json.loads((output / "metrics.json").read_text()), terminal.getvalue(), (output / "report.html").read_text()


def test_the_cost_is_estimated_counted_and_limited_as_that_of_every_served_agent(tmp_path):
    price = {"price": {"read": 0, "written": 1_000_000}, "concurrency": 1, "timeout": 5, "attempts": 1}
    with pytest.raises(CostLimitError, match=r"at most 140\.00"):
        evaluated(tmp_path, "press enter", max_cost=140, **price)
    _, terminal, _ = evaluated(tmp_path, "press enter", max_cost=1000, **price)
    assert "Estimate for 30 steps, from 10: 30 calls, " in terminal and ", cost " in terminal
    assert "New: " in terminal and "replies from disk" in terminal


def test_tasks_without_demonstrations_have_no_estimate_and_runs_under_control_have_that_of_the_agent():
    assert agent().estimate(list, 12) == "Estimate: none, because these tasks have no demonstration"
    asked = replace(agent(), calls=Calls(ChatEndpoint("http://localhost:1", "vlm"), Path("calls")))
    controlled = ControlledAgent(asked, CONTROLS["no_history"])
    assert controlled.estimate(lambda: [EPISODE], 5) == asked.estimate(lambda: [EPISODE], 5)
    assert controlled.spending() == "New: 0 calls, 0 tokens read, 0 written"


FENCED = "```text\npress enter\n```"


def test_fenced_answers_are_failures_with_an_example_that_names_the_setting(tmp_path):
    metrics, terminal, _ = evaluated(tmp_path, FENCED)
    assert metrics["trained"]["official"]["overall"]["parse_failures"] == 100
    assert "fenced_answers" not in metrics["trained"]["about"]
    [example] = [line for line in terminal.splitlines() if line.startswith("vlm: 100.0 % of the answers")]
    assert f"answer {FENCED!r}, expected {tiny.LANGUAGE.encode(tiny.episode(0).steps[0].action)!r}" in example
    assert example.endswith("code_fences: true")


def test_accepted_fences_are_decoded_and_counted_apart(tmp_path):
    metrics, terminal, report = evaluated(tmp_path, FENCED, code_fences=True)
    assert metrics["trained"]["official"]["general"]["partial_match"] == 20
    assert metrics["trained"]["official"]["overall"]["parse_failures"] == 0
    steps = len(tiny.episode(0)) + len(tiny.episode(1))
    assert metrics["trained"]["about"]["fenced_answers"] == steps
    [row] = [line.split() for line in terminal.splitlines() if line.split()[:2] == ["vlm", "0.0"]]
    assert row[-2:] == ["0.0", str(steps)]
    assert "Example" not in terminal
    assert f"{steps}, read as their content" in report


def test_an_unreadable_answer_is_shown_short_and_printable(tmp_path):
    _, terminal, _ = evaluated(tmp_path, "\x1b[2J\u202e[red]" + "x" * 500)
    [example] = [line for line in terminal.splitlines() if "Example" in line]
    assert "answer '\\x1b[2J\\u202e[red]xxx" in example
    assert "…'" in example
    assert example.isprintable()
    assert len(example) < 400
    assert "code_fences" not in example


def test_a_served_model_has_its_own_name(tmp_path):
    metrics, terminal, report = evaluated(tmp_path, "press enter")
    assert "trained" in metrics  # the key of files is stable
    assert "vlm " in terminal
    assert "<h1>vlm</h1>" in report
    assert "trained" not in terminal


def test_predictions_of_two_action_languages_or_of_accepted_fences_do_not_share_a_folder(tmp_path):
    evaluated(tmp_path, "press enter")
    with pytest.raises(DatasetError, match="language"):
        evaluated_in_language(tmp_path, tiny.BINS * 2)
    with pytest.raises(DatasetError, match="code_fences"):
        evaluated(tmp_path, "press enter", code_fences=True)


def test_an_online_evaluation_in_another_action_language_does_not_share_a_folder(tmp_path):
    def played(url: str, bins: int) -> None:
        settings = EndpointSettings(endpoint=url, model="vlm", action_language={"bins": bins})
        evaluate_online(settings, tmp_path / "out", Console(file=StringIO()), tasks=1, controls=False)

    with serving(lambda n, body: Reply("status complete")) as (url, _):
        played(url, tiny.BINS)
        with pytest.raises(DatasetError, match="language"):
            played(url, tiny.BINS * 2)


def test_replies_in_two_action_languages_do_not_mix_in_a_shared_folder_of_calls(tmp_path):
    asked = []
    languages = {"bins": tiny.BINS}, {"bins": tiny.BINS * 2}, {"name": "coat"}
    for language in (*languages, languages[0]):
        with serving(lambda n, body: Reply("press enter")) as (url, requests):
            settings = EndpointSettings(endpoint=url, model="vlm", action_language=language, calls=str(tmp_path))
            settings.load().answer_episodes([EPISODE])
        asked.append(len(requests))
    assert asked == [*[len(EPISODE)] * 3, 0]


def evaluated_in_language(folder, bins: int) -> None:
    settings = EndpointSettings(endpoint="http://localhost:1", model="vlm", action_language={"bins": bins})
    evaluate(settings, Benchmark(shards=folder / "shards", split="test"), folder / "out", Console(file=StringIO()))


def test_a_language_of_numbers_that_no_prompt_shows_is_refused_and_the_agent_that_shows_them_is_named(tmp_path):
    settings = {"endpoint": "http://localhost:1", "model": "vlm", "action_language": {"name": "element_index"}}
    file = tmp_path / "agent.yaml"
    file.write_text(json.dumps({"agent": "endpoint"} | settings))
    with pytest.raises(UserError, match=r"element_index.*agent: dynamic_planning.*mode: none"):
        agent_settings(str(file))
    file.write_text(json.dumps({"agent": "dynamic_planning", "mode": "none", "screen": "picture"} | settings))
    assert agent_settings(str(file)).language.build().needs_elements


def test_the_cause_of_empty_replies_is_in_metrics_terminal_and_report(tmp_path):
    body = {"choices": [{"message": {"content": None, "reasoning_content": "First"}, "finish_reason": "length"}]}
    metrics, terminal, report = evaluated(tmp_path, json.dumps(body).encode())
    steps = metrics["trained"]["official"]["overall"]["steps"]
    note = "cut off by the limit of 128 tokens during the reasoning"
    assert metrics["trained"]["about"]["replies"] == {"all": steps, f"empty, {note}": steps}
    line = f"{steps} of {steps} are empty: {steps} {note}; raise max_tokens in the agent file"
    assert f"replies of the served model: {line} or turn the model's thinking off" in terminal
    assert line in report


def test_an_answer_after_its_reasoning_is_read_and_counted(tmp_path):
    metrics, terminal, _ = evaluated(tmp_path, "<think>\nback or enter?\n</think>\n\npress enter")
    assert metrics["trained"]["official"]["general"]["partial_match"] == 20
    assert "with reasoning before </think>, which is not read" in terminal


def test_an_endpoint_replaces_the_server_of_an_agent_file():
    file = str(Path(__file__).parents[2] / "eval/agents/qwen25_mobile_use.yaml")
    named = agent_settings(file, endpoint="http://localhost:7/v1")
    assert (named.endpoint, named.model) == ("http://localhost:7/v1", agent_settings(file).model)
