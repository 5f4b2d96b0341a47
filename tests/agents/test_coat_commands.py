"""The prompting agent by the commands: its scores, and what its calls cost."""

import json
import signal
import threading
import time
from io import StringIO

import pytest
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.agents.coat_steps import CALL, FILE, PLAIN, text_of
from rich.console import Console

from vlm_agent.agents.coat import CoatAgentSettings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.sources.aitz import read_steps
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import Episode, Step
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.evaluation.predictions import read_predictions


@pytest.fixture
def shards(tmp_path):
    return tiny.write_shards(tmp_path / "shards", [PLAIN, tiny.episode(2)], "test")


def texts_at(episode: Episode, number: int) -> tuple[str, str]:
    """Description of the screen, and result of the action before."""
    steps = episode.steps
    return steps[number].notes["screen"], steps[number - 1].notes["result"] if number else ""


def gold_call(step: Step) -> str:
    """The demonstrated action in call form."""
    action, (y, x) = step.action, (round(1000 * value) for value in step.action.touch_yx)
    if action.is_tap:
        return json.dumps({"ACTION": "click_element", "ARGS": {"bbox": [x - 5, y - 5, x + 5, y + 5]}})
    if action.is_swipe:
        return json.dumps({"ACTION": "scroll", "ARGS": {"direction": action.direction}})
    names = {"home": ("press_home", {}), "complete": ("stop", {"task_status": "success"})}
    name, arguments = names[action.name]
    return json.dumps({"ACTION": name, "ARGS": arguments})


def test_the_real_episode_is_prompted_and_scored(tmp_path, shared):
    """A served oracle answers every step of AitZ's published episode with its gold action: all of AitZ's metrics are
    100; and its texts are where they belong."""
    (path,) = (shared / "data/aitz_episode").glob("*.json")
    entries = list(read_steps(path))
    episode = Episode("1", "google_apps", entries[0].goal, tuple(entry.step for entry in entries))
    shards = tiny.write_shards(tmp_path / "shards", [episode], "test")

    def answer(n: int, body: dict) -> Reply:
        text = text_of(body["messages"])
        earlier = text.partition("in order:\n")[2].partition("\n\n")[0].splitlines()
        number = len(earlier)
        assert earlier == [f"{n}. {step.notes['action']}" for n, step in enumerate(episode.steps[:number], 1)]
        screen, result = (" ".join(words.split()) for words in texts_at(episode, number))
        assert f"in words: {screen}\n" in text and result in text
        return Reply(gold_call(episode.steps[number]))

    with serving(answer) as (url, _):
        (tmp_path / "coat.yaml").write_text(FILE.format(url=url).replace("cot", "coat"))
        command = ["evaluate", "--agent", str(tmp_path / "coat.yaml"), "--benchmark", "eval/aitz.yaml"]
        assert main([*command, "--shards", str(shards), "--output", str(tmp_path / "out"), "--controls", "none"]) == OK
    scores = json.loads((tmp_path / "out" / "metrics.json").read_text())["trained"]["aitz"]
    assert {cell["value"] for table in scores.values() for cell in table.values()} <= {100, None}
    report = (tmp_path / "out" / "report.html").read_text()
    assert "4 steps: annotation, made with goal and true action known" in report
    assert "a template: action and touched element" in report
    rows = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert [row.box is not None for row in rows] == [row.gold.is_tap for row in rows]


def test_evaluate_prints_estimate_and_spending_and_asks_nothing_twice(tmp_path, shards, capsys):
    path, output = tmp_path / "coat.yaml", tmp_path / "out"
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        path.write_text(FILE.format(url=url))
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        command += ["--controls", "none"]
        assert main([*command, "--agent.price", "{read: 1, written: 2}"]) == OK
        out = capsys.readouterr().out
        assert out.index("Estimate for 10 steps, from 10: 10 calls,") < out.index("New: 10 calls,")
        assert "cost " in out
        other = [*command[:-3], str(tmp_path / "other"), "--controls", "none", "--agent.calls", str(output / "calls")]
        assert main(other) == OK
        assert "New: 0 calls, 0 tokens read, 0 written (10 replies from disk)" in capsys.readouterr().out
    assert len(requests) == 10
    first, second = (folder / "predictions.parquet" for folder in (output, tmp_path / "other"))
    assert first.read_bytes() == second.read_bytes()


def test_the_limit_of_cost_stops_an_evaluation_and_a_higher_one_completes_it(tmp_path, shards, capsys):
    usage = {"prompt_tokens": 0, "completion_tokens": 512}
    content = json.dumps({"choices": [{"message": {"content": CALL}}], "usage": usage}).encode()
    path, output = tmp_path / "coat.yaml", tmp_path / "out"
    with serving(lambda n, body: Reply(content)) as (url, requests):
        path.write_text(FILE.format(url=url) + "price: {read: 0, written: 1000000}\n")
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output)]
        command += ["--controls", "none"]
        assert main([*command, "--agent.max_cost", "2100", "--agent.concurrency", "1"]) == FAILED
        captured = capsys.readouterr()
        assert "have cost 2048.00 of at most 2100.00" in captured.err
        assert "New: 4 calls" in captured.out
        assert len(requests) == 4
        assert main([*command, "--agent.max_cost", "6000"]) == OK
    assert len(requests) == 10


def test_act_and_online_tasks(tmp_path, capsys):
    path, trace = tmp_path / "coat.yaml", tmp_path / "trace"
    done = '{"THINK": "done", "ACTION": "stop", "ARGS": {"task_status": "success"}}'
    with serving(lambda n, body: Reply(done)) as (url, _):
        path.write_text(FILE.format(url=url))
        command = ["act", "--agent", str(path), "--device", "simulated:general/test/7", "--trace", str(trace)]
        assert main(command) == FAILED  # it declares the goal reached without reaching it
        assert "Estimate for 30 steps, from 1: 30 calls" in (out := capsys.readouterr().out) and "New: 1 calls" in out
        assert [step.answer for step in read_trace(trace).steps] == [done]
        assert len(list((trace / "calls").rglob("*.json"))) == 1
        online = ["evaluate", "--online", "--agent", str(path), "--tasks", "1", "--output", str(tmp_path / "online")]
        assert main([*online, "--controls", "none"]) == OK
        assert "New: 1 calls" in capsys.readouterr().out


def test_an_online_task_without_an_answer_is_repeated_by_the_same_command_and_the_others_are_finished(tmp_path, capsys):
    path, output, failing = tmp_path / "coat.yaml", tmp_path / "online", []
    done = '{"ACTION": "stop", "ARGS": {"task_status": "success"}}'

    def answer(n: int, body: dict) -> Reply:
        goal = text_of(body["messages"]).splitlines()[0]
        failing.extend([] if failing else [goal])
        return Reply(b"too large", 413) if goal == failing[0] else Reply(done)

    command = ["evaluate", "--online", "--agent", str(path), "--tasks", "3", "--output", str(output)]
    command += ["--controls", "none"]
    with serving(answer) as (url, requests):
        path.write_text(FILE.format(url=url))
        assert main(command) == FAILED
        assert "could not answer in 1 task(s); first error: " in capsys.readouterr().err
        assert len(requests) == 3
        assert len(list(output.glob("trained/*/result.json"))) == 2
        failing[0] = "none"
        assert main(command) == OK
        assert len(requests) == 4


def test_ctrl_c_ends_online_tasks_that_wait_for_the_server(tmp_path):
    """The server is busy for a minute, so without an end of the waits this test takes minutes."""

    def answer(n: int, body: dict) -> Reply:
        if n == 1:
            thread = threading.main_thread().ident
            threading.Timer(0.5, signal.pthread_kill, [thread, signal.SIGINT]).start()
        return Reply(b"busy", 503, {"Retry-After": "60"})

    with serving(answer) as (url, requests):
        settings = CoatAgentSettings(endpoint=url, model="vlm", mode="cot")
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            evaluate_online(settings, tmp_path, Console(file=StringIO()), tasks=3, controls=False, workers=2)
        assert time.monotonic() - start < 30
        assert len(requests) == 2
