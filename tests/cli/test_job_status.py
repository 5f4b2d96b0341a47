"""`vlm-agent status` and `inspect` of jobs that can be resumed: what is done, of how many, and what comes next."""

import fcntl
import json

import pytest
from helpers import tiny
from helpers.data.feature_shards import write_several

from vlm_agent.agents import Answer
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.cli import FAILED, OK, main

AGENT = "agent: scripted\nactions: [complete]\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """`shards` of 40 test episodes, and an agent file."""
    folder = tmp_path_factory.mktemp("jobs")
    tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(40)], split="test")
    (folder / "agent.yaml").write_text(AGENT)
    return folder


def _status(capsys, folder):
    assert main(["status", str(folder)]) == OK
    return " ".join(capsys.readouterr().out.split())


def _evaluate(place, output, *words):
    agent, shards = ("--agent", str(place / "agent.yaml")), ("--shards", str(place / "shards"))
    return main(["evaluate", *agent, *shards, "--controls", "none", "--output", str(output), *words])


def test_an_evaluation_by_a_job_array_shows_its_parts_and_then_asks_for_its_end(place, tmp_path, capsys):
    output = tmp_path / "evaluation"
    assert _evaluate(place, output, "--shard-index", "0", "--shard-count", "2") == OK
    text = _status(capsys, output)
    assert "an evaluation, not complete; unless a job array writes it now, run the same `vlm-agent evaluate`" in text
    assert "done 2 of 3 parts of 16 episodes ETA" in text
    assert _evaluate(place, output, "--shard-index", "1", "--shard-count", "2") == OK
    text = _status(capsys, output)
    assert f"all parts are done; run `vlm-agent evaluate --finish --output {output}` done 3 of 3" in text
    assert main(["evaluate", "--finish", "--output", str(output)]) == OK
    text = _status(capsys, output)
    assert f"an evaluation, complete; `vlm-agent view {output}` shows it done 3 of 3 parts" in text
    with (output / "parts" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "an evaluation, running" in _status(capsys, output)


def test_an_evaluation_with_unanswered_steps_is_not_complete(place, tmp_path, capsys, monkeypatch):
    output, fails = tmp_path / "evaluation", lambda *_: Answer("", None, failed="the server is down")
    with monkeypatch.context() as down:
        down.setattr(ScriptedAgent, "act", fails)
        assert _evaluate(place, output) == FAILED
    text = _status(capsys, output)
    assert "an evaluation, not complete: some parts failed; run the same `vlm-agent evaluate` again to resume" in text
    steps = 40 * len(tiny.episode())
    assert f"failed trained: {steps} step(s) without an answer; first: episode 0, step 0: the server is down" in text
    assert text.count("the server is down") == 1
    assert _evaluate(place, output) == OK
    assert "an evaluation, complete" in _status(capsys, output)


def test_an_online_evaluation_shows_the_tasks_of_each_run(place, tmp_path, capsys):
    output = tmp_path / "online"
    words = ["evaluate", "--online", "--agent", str(place / "agent.yaml"), "--controls", "none", "--tasks", "2"]
    assert main([*words, "--output", str(output)]) == OK
    assert "an online evaluation, complete" in _status(capsys, output)
    (output / "trained" / "00001" / "result.json").unlink()
    text = _status(capsys, output)
    assert "an online evaluation, not complete; unless" in text
    assert "run the same `vlm-agent evaluate --online` again to resume" in text
    assert "trained 1 of 2, " in text


def test_a_comparison_shows_its_stages_and_those_that_failed(place, tmp_path, capsys):
    (tmp_path / "two.yaml").write_text(
        f"name: two\nsizes: {{episodes: 2, tasks: 1}}\nagents:\n"
        f"  one: {{name: one, agent: {place / 'agent.yaml'}}}\n  two: {{name: two, agent: {place / 'agent.yaml'}}}\n"
    )
    compare = ["compare", str(tmp_path / "two.yaml"), "--output", str(tmp_path / "out")]
    compare += ["--shards", str(place / "shards")]
    assert main([*compare, "--stage", "offline-one-0"]) == OK
    text = _status(capsys, tmp_path / "out")
    assert "a comparison, not complete; unless a job array writes it now, run the same `vlm-agent compare`" in text
    assert "done 1 of 4 stages" in text
    with (tmp_path / "out" / "stages" / "online-one-0.jsonl").open("w") as file:
        file.write(json.dumps({"command": "x"}) + "\n" + json.dumps({"status": 1, "seconds": 1, "peak_gb": 1}) + "\n")
    text = _status(capsys, tmp_path / "out")
    assert "some parts failed; run the same `vlm-agent compare` again to resume" in text
    assert "failed online-one-0 with status 1; see" in text


def test_features_show_their_shards(tmp_path, capsys):
    shards = write_several(tmp_path / "shards")
    output = tmp_path / "features"
    words = ["features", str(shards), "--extractor", "phone_vlm_tiny", "--output", str(output)]
    assert main([*words, "--shard-index", "0", "--shard-count", "2"]) == OK
    text = _status(capsys, output)
    assert "features, not complete; unless a job array writes it now" in text
    assert main([*words, "--shard-index", "1", "--shard-count", "2"]) == OK
    assert f"all parts are done; run `vlm-agent features --finish --output {output}`" in _status(capsys, output)
    assert main(["features", "--finish", "--output", str(output)]) == OK
    assert "features, complete" in _status(capsys, output)


def test_inspect_of_another_output_says_what_it_is_and_what_shows_it(place, tmp_path, capsys):
    output = tmp_path / "evaluation"
    assert _evaluate(place, output) == OK
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for folder, advice in (
        (
            output,
            f"{output} holds an evaluation, not shards; `vlm-agent status {output}` shows its progress; `vlm-agent",
        ),
        (run, f"{run} is a run, not shards; `vlm-agent status {run}` shows its progress, and `vlm-agent evaluate"),
        (tmp_path, f"{tmp_path} has no manifest.json: it is not a folder of shards; name the output of"),
    ):
        capsys.readouterr()
        assert main(["inspect", str(folder)]) == FAILED
        error = capsys.readouterr().err
        assert advice in error
        assert "convert` again" not in error


def test_a_folder_of_nothing_known_is_refused(tmp_path, capsys):
    assert main(["status", str(tmp_path)]) == FAILED
    assert "nor does it hold the plan of another job that can be resumed" in capsys.readouterr().err
