"""Loader processes prepare screens: predictions are the same to the bit, and errors and Ctrl-C end in one line."""

import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import psutil
import pytest
from helpers import tiny
from helpers.agents.knowing_agent import Knowing
from helpers.agents.prepared_agent import Prepared
from helpers.agents.preparing_agent import PreparingAgent
from helpers.models import families
from rich.console import Console

from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.datasets.shards.schema import to_row
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline import loading, parts
from vlm_agent.evaluation.offline.loading import default_workers
from vlm_agent.evaluation.offline.run import evaluate
from vlm_agent.files.jobs import ArrayTask

EPISODES = [tiny.episode(number, tiny.ACTIONS[number % 3 :], size=(96, 50)) for number in range(7)]


def score(settings, shards: Path, output: Path, **options) -> dict[str, bytes]:
    """The files of the evaluation that hold its results."""
    benchmark = Benchmark(shards=shards, split="test")
    evaluate(settings, benchmark, output, Console(file=StringIO()), **options)
    return {path.name: path.read_bytes() for path in output.iterdir() if path.suffix in (".parquet", ".json")}


def vlm_agent(name: str) -> VlmAgent:
    family = families.family(name)
    return VlmAgent(family.model, family.words, family.sentences, batch_tokens=600)


@pytest.fixture
def shards(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(parts, "EPISODES_PER_PART", 3)
    return tiny.write_shards(tmp_path / "shards", EPISODES, split="test")


@pytest.mark.parametrize(("name", "numbers"), [("llama_vit", (0, 1, 2)), ("qwen2_5_vl", (0, 2))])
def test_predictions_are_the_same_to_the_bit_with_any_number_of_processes(name, numbers, shards, tmp_path):
    agent = Prepared(prepared=vlm_agent(name))
    first, *others = (score(agent, shards, tmp_path / str(workers), workers=workers) for workers in numbers)
    assert len(first) >= 5
    assert all(other == first for other in others)


def test_an_agent_trained_under_a_control_is_evaluated_under_it(shards, tmp_path):
    agent = Prepared(prepared=ControlledAgent(vlm_agent("llama_vit"), CONTROLS["grey_screens"]))
    results = [score(agent, shards, tmp_path / str(workers), controls=False, workers=workers) for workers in (0, 2)]
    assert results[0] == results[1]


def test_a_screen_is_prepared_once_for_all_passes(shards):
    agent = vlm_agent("qwen2_5_vl")
    whole, single = agent.preparation()(EPISODES[0]), agent.preparation()(EPISODES[0])
    pairs = zip(whole.sentences[0].screens, single.sentences[0].screens, strict=True)
    assert all(first is second for first, second in pairs)
    assert all(step.screenshot is None for step in whole.episode.steps)


def test_agents_without_a_preparation_are_asked_for_whole_episodes(tmp_path):
    from helpers.agents.knowing_agent import write_shards

    shards = write_shards(tmp_path / "shards", ["test"])
    by_default, without = (
        score(Knowing(folder=tmp_path), shards, tmp_path / str(workers), workers=workers) for workers in (None, 0)
    )
    assert by_default == without
    with pytest.raises(UserError, match="--workers 2 has no effect: this agent prepares no screens"):
        score(Knowing(folder=tmp_path), shards, tmp_path / "2", workers=2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "damage", [lambda image: b"no image", lambda image: image[: len(image) // 2]], ids=["no", "cut"]
)
def test_a_screen_that_cannot_be_decoded_is_one_line_that_names_episode_and_step(workers, damage, tmp_path):
    with ShardWriter(tmp_path / "shards" / "general.parquet") as shard:
        for episode in EPISODES:
            row = to_row(episode, "test")
            if episode.id == "4":
                row["steps"][1]["screenshot"]["bytes"] = damage(row["steps"][1]["screenshot"]["bytes"])
            shard.write_row(row)
    file = {"shard": "general.parquet", "subset": "general", "episodes_written": len(EPISODES)}
    write_manifest(tmp_path / "shards", {"files": [file]})
    with pytest.raises(DatasetError, match=r"^[^\n]*episode 4, step 1: the screen cannot be decoded[^\n]*$"):
        score(Prepared(prepared=vlm_agent("llama_vit")), tmp_path / "shards", tmp_path / "out", workers=workers)


def dies_at_the_third(episode: Episode) -> int:
    if episode.id == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    return len(episode)


def test_a_process_that_is_killed_is_one_line(shards, tmp_path):
    with pytest.raises(DatasetError, match=r"^a process that prepares screens died at episode \d[^\n]*$"):
        score(Prepared(prepared=PreparingAgent(dies_at_the_third)), shards, tmp_path / "out", controls=False, workers=2)


_INTERRUPTED = """
import sys, time
import numpy
sys.path.insert(0, {helpers!r})
from helpers.agents.prepared_agent import Prepared
from helpers.agents.preparing_agent import PreparingAgent
from vlm_agent.cli import evaluate, main
from helpers.agents.preparing_agent import PreparingAgent
class Slow(PreparingAgent):
    def answer_prepared(self, prepared):
        print("answers", flush=True)
        time.sleep(600)
large = lambda episode: numpy.zeros((5, 3, 448, 448), "uint8")
evaluate.agent_options.chosen_agent = lambda *_, **__: Prepared(prepared=Slow(large))
sys.exit(main(["evaluate", "--checkpoint", "RUN", "--shards", {shards!r}, "--output", {output!r}, "--workers", "2"]))
"""


def test_ctrl_c_ends_all_processes_with_one_message(shards, tmp_path):
    tests = Path(__file__).parents[2]
    script = _INTERRUPTED.format(helpers=str(tests), shards=str(shards), output=str(tmp_path / "out"))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "answers\n"
    children = psutil.Process(process.pid).children(recursive=True)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")
    assert time.monotonic() - began < 30
    assert children
    assert not psutil.wait_procs(children, timeout=10)[1]


def test_a_killed_evaluation_leaves_no_process_and_no_lock(tmp_path, monkeypatch):
    """What is prepared is too large for a pipe: its writers would wait for a reader."""
    monkeypatch.setattr(parts, "EPISODES_PER_PART", 1)
    shards, output = tiny.write_shards(tmp_path / "shards", EPISODES, split="test"), tmp_path / "out"
    script = _INTERRUPTED.format(helpers=str(Path(__file__).parents[2]), shards=str(shards), output=str(output))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "answers\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.kill()
    process.communicate(timeout=60)
    assert not psutil.wait_procs(children, timeout=10)[1]
    with parts.lock_output(output, ArrayTask()):
        pass


def test_an_error_in_a_loader_process_keeps_its_cause(shards, tmp_path):
    with pytest.raises(RuntimeError, match="the cause"):
        score(Prepared(prepared=PreparingAgent(failing)), shards, tmp_path / "out", controls=False, workers=1)


def failing(episode: Episode) -> int:
    raise RuntimeError("the cause")


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 0), (3, 1), (16, 8), (64, 8)])
def test_the_default_leaves_half_of_the_cores(cores, workers, monkeypatch):
    monkeypatch.setattr(loading.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert default_workers() == workers
