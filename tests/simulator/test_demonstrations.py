"""Simulated data sets: the same bytes for the same arguments, and nothing shared between splits."""

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from helpers.data.aitw_episodes import read_episodes
from rich.console import Console

from vlm_agent.cli import FAILED, INTERRUPTED, main
from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.selection import read_splits
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.errors import DatasetError
from vlm_agent.simulator.demonstrations import phone_seed, simulate, simulate_episode, simulated_tasks

SMALL = (112, 64)


def quiet() -> Console:
    return Console(file=io.StringIO())


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("simulated") / "data"
    simulate(output, 40, seed=3, sizes=(SMALL, (128, 72)), workers=1, console=quiet())
    return output


def test_without_thoughts_the_data_are_what_they_were_before_the_option_existed(tmp_path):
    simulate(tmp_path / "data", 10, seed=3, sizes=(SMALL, (128, 72)), workers=1, console=quiet())
    contents = hashlib.sha256()
    for path in sorted(path for path in (tmp_path / "data").rglob("*") if path.is_file()):
        contents.update(str(path.relative_to(tmp_path / "data")).encode())
        contents.update(gzip.decompress(path.read_bytes()) if path.suffix != ".json" else path.read_bytes())
    assert contents.hexdigest() == "7f952f4535b8d4c59b10d640f5cdbec0ee0f63ec60d959ab528abb27d007a998"


def with_thoughts(folder: Path, scale: int) -> ShardDataset:
    """The shards of six simulated episodes."""
    words = ("--episodes", "6", "--thoughts", "--size", "112x64", "--scale", str(scale))
    assert main(["simulate", "--output", str(folder / "data"), *words, "--workers", "1"]) == 0
    convert("aitw", [folder / "data"], folder / "shards", [folder / "data/splits.json"], quiet(), workers=1)
    return ShardDataset(folder / "shards")


@pytest.fixture(scope="module")
def thoughts(tmp_path_factory) -> ShardDataset:
    return with_thoughts(tmp_path_factory.mktemp("thoughts"), 1)


def test_the_scale_changes_only_pixels(thoughts, tmp_path):
    shards = (thoughts, with_thoughts(tmp_path, 2))
    assert len(shards[0]) == len(shards[1])
    for number in range(len(shards[0])):
        plain, scaled = (dataset[number] for dataset in shards)
        assert (plain.id, plain.goal) == (scaled.id, scaled.goal)
        for one, other in zip(plain.steps, scaled.steps, strict=True):
            assert one.size == (112, 64) and other.size == (224, 128)
            one, other = (replace(step, screenshot=None, stored_size=None) for step in (one, other))
            assert astuple(one) == astuple(other)


def test_thoughts_pass_from_the_expert_through_records_to_shards(thoughts):
    stored = {(episode := thoughts.without_pixels(index)).id: episode for index in range(len(thoughts))}
    for seed in range(4):
        original, _ = simulate_episode(seed, "train", SMALL, thoughts=True)
        texts = [step.notes for step in original.steps]
        assert None not in texts and [step.notes for step in stored[original.id].steps] == texts
        plans = [step.notes["plan"] for step in original.steps]
        assert [step.notes["plan"] for step in stored[original.id].steps] == plans


def test_the_number_of_workers_changes_no_byte(written, tmp_path):
    simulate(tmp_path / "again", 40, seed=3, sizes=(SMALL, (128, 72)), workers=2, console=quiet())
    assert digest(tmp_path / "again") == digest(written)


def test_what_was_written_reads_back_as_the_episodes_that_were_simulated(written):
    splits = read_splits([written / "splits.json"]).labels
    groups = json.loads((written / "groups.json").read_text())
    episodes = [episode for path in sorted(written.glob("*/*")) for episode in read_episodes(path)]
    assert len(episodes) == 40
    assert {episode.id for episode in episodes} == set(splits)
    assert sorted(list(splits.values()).count(split) for split in set(splits.values())) == [4, 4, 32]
    assert set(groups["memory_goals"]) <= set(splits)
    numbers = {str(phone_seed((3 << 32) + index, "train")): (3 << 32) + index for index in range(32)}
    for episode in [episode for episode in episodes if episode.id in numbers][:5]:
        size = episode.steps[0].size
        original, _ = simulate_episode(numbers[episode.id], "train", size)
        assert [step.action for step in episode.steps] == [step.action for step in original.steps]
        assert [step.elements for step in episode.steps] == [step.elements for step in original.steps]
        assert all((a.screenshot == b.screenshot).all() for a, b in zip(episode.steps, original.steps, strict=True))
        assert episode.goal == original.goal
        assert episode.device_type == f"simulated_{size[1]}x{size[0]}"


def test_a_folder_with_something_in_it_is_refused(written):
    with pytest.raises(DatasetError, match="not an empty folder"):
        simulate(written, 5, console=quiet())


def test_what_an_interrupted_run_left_does_not_matter(written, tmp_path):
    (tmp_path / ".data.partial").mkdir()
    (tmp_path / ".data.partial" / "rubbish").write_text("x")
    simulate(tmp_path / "data", 40, seed=3, sizes=(SMALL, (128, 72)), workers=1, console=quiet())
    assert digest(tmp_path / "data") == digest(written)


def wait_until(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def simulating(folder: Path) -> Iterator[tuple[subprocess.Popen, list[Path]]]:
    """`vlm-agent simulate` with hours of work, and its two workers in /proc after the first bytes of output."""
    command = [sys.executable, "-m", "vlm_agent.cli", "simulate", "--output", folder / "data", "--workers", "2"]
    with subprocess.Popen([*command, "--episodes", "20000"], stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: any(path.stat().st_size for path in folder.glob(".data.partial/*/*")))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        pids = [Path("/proc", child) for child in children]
        yield process, [path for path in pids if b"spawn_main" in (path / "cmdline").read_bytes()]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_simulation_ends_at_once_and_leaves_no_worker_that_writes_into_the_next_one(tmp_path, stop):
    with simulating(tmp_path) as (process, workers):
        assert len(workers) == 2
        process.send_signal(stop)
        assert process.wait(timeout=30) in (INTERRUPTED, -signal.SIGKILL)
        wait_until(lambda: not any(worker.exists() for worker in workers), 10)
        assert "Traceback" not in process.stderr.read()


def test_a_worker_that_is_killed_for_memory_is_an_error_in_one_line(tmp_path):
    with simulating(tmp_path) as (process, workers):
        os.kill(int(workers[0].name), signal.SIGKILL)
        assert process.wait(timeout=30) == FAILED
        assert process.stderr.read() == (
            "vlm-agent simulate: a process that simulates was killed, possibly for lack of memory; run the same "
            "command again, with fewer --workers if needed\n"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shares", [{}, {"train": 0.5}, {"train": 1.0, "dev": 0.0}, {"train": 1.5, "test": -0.5}])
def test_invalid_shares_are_refused(tmp_path, shares):
    with pytest.raises(DatasetError):
        simulate(tmp_path / "data", 5, splits=shares, console=quiet())
    assert not (tmp_path / "data").exists()


def test_phones_are_never_shared_between_splits_and_subsets_come_equally_often():
    seeds = {split: {phone_seed(index, split) for index in range(2000)} for split in ("train", "validation", "test")}
    assert len(set.union(*seeds.values())) == 6000
    subsets = [task.subset for task in simulated_tasks(150, 0, "train")]
    assert all(18 <= subsets.count(subset) <= 42 for subset in SUBSETS)
