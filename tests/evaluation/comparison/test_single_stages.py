"""Single stages of a comparison: in any order that their needs allow, several at once, stopped, and then the table."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from helpers import tiny
from helpers.agents.knowing_agent import write_shards
from helpers.evaluation import comparisons
from helpers.evaluation.comparisons import ends
from helpers.slurm.workplace import REPOSITORY as ROOT

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.errors import Stopped
from vlm_agent.files import file_lock

SECONDS = 300
Command = Callable[..., list[str]]


@pytest.fixture
def command(tmp_path) -> Command:
    """The arguments of the comparison of two agents on tiny shards into `out`."""
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(0), tiny.episode(1)])
    agents = comparisons.trained(tmp_path)
    agents["long"] = agents["one"] | {"name": "Long", "overrides": {"training.steps": 3000}}
    path = comparisons.write(tmp_path / "comparison.yaml", agents)
    return lambda *more: ["compare", str(path), "--output", str(tmp_path / "out"), "--shards", str(shards), *more]


def start(arguments: list[str]) -> subprocess.Popen:
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "vlm_agent.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def until(words: str, process: subprocess.Popen) -> None:
    """Reads the output of a process up to a line with the words."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return
    raise AssertionError(f"ended without {words!r}: {lines}")


def listed(command: Command, capsys) -> dict[str, list[str]]:
    """By stage, the other columns of --list-stages."""
    capsys.readouterr()
    assert main(command("--list-stages")) == OK
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    return {name: rest for name, *rest in lines}


@pytest.mark.parametrize("which", [(), ("--stage", "train-one-0"), ("--report",)])
def test_shards_that_do_not_exist_do_not_become_part_of_the_plan(command, tmp_path, which, capsys):
    assert main([*command(*which), "--shards", str(tmp_path / "nowhere")]) == FAILED
    assert f"{tmp_path / 'nowhere' / 'manifest.json'} is missing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_list_shows_kind_state_needs_and_output_and_writes_nothing(command, tmp_path, capsys):
    found = listed(command, capsys)
    runs = tmp_path / "out/runs"
    assert list(found)[:3] == ["train-one-0", "offline-one-0", "online-one-0"]
    assert found["train-one-0"] == ["1", "open", "-", str(runs / "one_0")]
    assert found["online-other-0"] == ["1", "open", "train-other-0", str(tmp_path / "out/online/other_0")]
    assert not (tmp_path / "out").exists()


def test_hours_are_estimated_for_trainings_evaluations_and_prompts(tmp_path, capsys):
    shards = write_shards(tmp_path / "shards", ["train", "test"])
    kept = {"readers": {"text": "none", "widgets": "edges"}, "calls": "{output}/calls"}
    reader = str(ROOT / "eval/agents/vision_tasker.yaml")
    reads = {"name": "Asks", "agent": reader, "served": True, "overrides": kept}
    released = {"name": "Released", "agent": str(ROOT / "eval/agents/ui_tars.yaml")}
    (tmp_path / "asks.yaml").write_text("agent: endpoint\n")  # the comparison names the server
    served = {"name": "Served", "agent": str(tmp_path / "asks.yaml"), "served": True}
    agents = {"one": comparisons.trained(tmp_path)["one"], "asks": reads, "released": released, "posted": served}
    path = comparisons.write(tmp_path / "comparison.yaml", agents, served=comparisons.served(), benchmark=None)
    words = ["compare", str(path), "--output", str(tmp_path / "out"), "--shards", str(shards), "--list-stages"]
    assert main([*words, "--hours", "H100"]) == OK
    hours = {line.split("\t")[0]: line.split("\t")[5] for line in capsys.readouterr().out.splitlines()}
    assert float(hours["train-one-0"]) > float(hours["offline-one-0"].removeprefix(">")) > 0
    assert float(hours["offline-asks-0"]) > 0
    assert float(hours["offline-released-0"]) > 0 and float(hours["offline-posted-0"]) > 0
    assert {hours[name] for name in ("online-one-0", "chats-asks-0", "train-served-0")} == {"-"}
    assert not (tmp_path / "out").exists()
    assert main([*words, "--hours", "H10000"]) == FAILED
    assert "H10000: not in the table" in capsys.readouterr().err


def test_stages_at_once_run_once_each_also_of_an_added_seed(command, tmp_path, capsys):
    added = ("--seeds", "0", "1")
    stages = [("--stage", "train-one-0")] * 2 + [(*added, "--stage", "train-one-1")]
    processes = [start(command(*stage)) for stage in stages]
    outputs = [process.communicate(timeout=SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [OK] * 3, outputs
    assert ends(tmp_path / "out") == {"train-one-0": [OK], "train-one-1": [OK]}
    assert sum("train-one-0 is done; nothing to do" in output for output in outputs[:2]) == 1
    for more, done in {(): ["train-one-0"], added: ["train-one-0", "train-one-1"]}.items():
        found = listed(lambda *words, more=more: command(*more, *words), capsys)
        assert [name for name, (_, state, *_) in found.items() if state == "done"] == done


def test_a_stage_waits_for_another_process_that_runs_it(command, tmp_path):
    assert main(command("--report")) == FAILED  # writes the plan
    lock = tmp_path / "out/stages/train-one-0.lock"
    with file_lock(lock, "", owner="process 1 on node1"):
        process = start(command("--stage", "train-one-0"))
        until("waiting for another process that runs the stage train-one-0 of", process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == Stopped.STATUS, output
    assert ends(tmp_path / "out") == {}


def test_a_stop_signal_saves_the_training_of_a_stage(command, tmp_path):
    """The signal that a Slurm job forwards, and repeats until the process has ended."""
    process = start(command("--stage", "train-long-0"))
    until("loss", process)
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == Stopped.STATUS, output
    assert "stopped by SIGTERM; run the same command again to resume" in output
    assert ends(tmp_path / "out") == {"train-long-0": [Stopped.STATUS]}
    assert list((tmp_path / "out/runs/long_0/checkpoints").glob("*/whole.json"))


def test_a_stage_that_cannot_run_says_why(command, tmp_path, capsys):
    assert main(command("--stage", "online-one-0")) == FAILED
    assert "online-one-0 needs earlier stages: train-one-0 has not run" in capsys.readouterr().err
    assert main(command("--stage", "train-two-0")) == FAILED
    assert "the comparison has no stage train-two-0; it has train-one-0, offline-one-0," in capsys.readouterr().err


def test_a_report_names_agents_without_a_result_and_how_their_first_stage_ended(command, tmp_path, capsys):
    assert main(command("--report")) == FAILED  # writes the plan
    stages = tmp_path / "out/stages"
    stages.mkdir()
    (stages / "train-other-0.jsonl").write_text('{"command": ""}\n{"status": 7, "seconds": 1, "peak_gb": 1}\n')
    (stages / "train-long-0.jsonl").write_text('{"command": ""}\n')
    capsys.readouterr()
    assert main(command("--report")) == FAILED
    error = capsys.readouterr().err
    assert "one, seed 0: train-one-0 has not run" in error
    assert f"other, seed 0: train-other-0 failed with status 7; see {tmp_path / 'out/logs/train-other-0.log'}" in error
    assert "long, seed 0: train-long-0 was interrupted, or is running" in error
    assert not (tmp_path / "out/comparison.json").exists()


def test_a_mistake_in_a_recipe_becomes_part_of_no_plan(tmp_path, capsys):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(0), tiny.episode(1)])
    agents = comparisons.trained(tmp_path)
    agents["one"] = agents["one"] | {"overrides": {"training.stepz": 5}}
    path = comparisons.write(tmp_path / "comparison.yaml", agents)
    words = ["compare", str(path), "--output", str(tmp_path / "out"), "--shards", str(shards)]
    for more in ([], ["--report"]):
        assert main([*words, *more]) == FAILED
        assert "training.stepz" in capsys.readouterr().err
        assert not (tmp_path / "out/plans").exists()


def test_a_command_to_serve_that_no_shell_could_split_is_refused_at_once(tmp_path, capsys):
    words = ["compare", str(ROOT / "eval/comparisons/five_systems.yaml"), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        main([*words, "--model", "m", "--serve", "vllm serve 'Qwen --port {port}"])
    assert "--serve: No closing quotation" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
