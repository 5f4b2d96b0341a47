"""After SIGKILL at any moment, the same command resumes and writes the bytes of an uninterrupted run."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.data.conversions import CLI, tree, write_files
from helpers.data.made_episodes import ACTIONS

from vlm_agent.cli import QUARANTINED

KILLS_OF_ONE_PROCESS, KILLS_WITH_WORKERS = 47, 3
"""Few of the second kind: the start of a command with two workers, and theirs, take most of its time."""

FILES = "abc de fga hb ic"
"""The last three files have episodes of the first."""

RENAMES = 1 + 2 * 5 + 1 + 2 * 3 + 2
"""At least: plan, shards and entries, duplicates, shards and entries of three files again, quarantine, manifest."""

SECONDS_TO_END = 20


class _Preloaded:
    """Commands in forks of `preloaded_cli.py`; `start` returns an object with kill and wait, as Popen does."""

    def __init__(self, server: subprocess.Popen):
        self._server = server

    def start(self, arguments: list[str], renames: int | None = None, before: bool = False) -> "_Preloaded":
        self._pid = int(self._ask(json.dumps({"arguments": arguments, "renames": renames, "before": before})))
        return self

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        return int(self._ask(""))

    def _ask(self, line: str) -> str:
        self._server.stdin.write(line + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline()


@pytest.fixture(scope="module")
def preloaded():
    with subprocess.Popen(
        [sys.executable, Path(__file__).parents[2] / "helpers" / "programs" / "preloaded_cli.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        yield _Preloaded(server)
        server.stdin.close()


def _arguments(inputs, output, workers=1):
    return ["convert", "--input", str(inputs), "--output", str(output), "--workers", str(workers)]


def _start_cli(arguments):
    command = [*CLI, *arguments[1:]]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_killed_at_any_rename_it_ends_with_the_same_bytes(preloaded, tmp_path):
    """Whatever a run leaves behind it has renamed into place, so these are all the states that a kill can leave."""
    inputs = write_files(tmp_path / "in", FILES, actions=ACTIONS[:1], size=(8, 8))
    assert preloaded.start(_arguments(inputs, tmp_path / "undisturbed")).wait() == QUARANTINED
    expected = tree(tmp_path / "undisturbed")
    kills = 0
    for renames, before in ((number, before) for number in itertools.count(1) for before in (True, False)):
        output = tmp_path / f"{renames} {before}"
        status = preloaded.start(_arguments(inputs, output), renames, before).wait()
        assert (output / "manifest.json").exists() <= (tree(output) == expected)
        if status == QUARANTINED:
            break
        assert status == -signal.SIGKILL
        kills += 1
        assert preloaded.start(_arguments(inputs, output)).wait() == QUARANTINED
        assert tree(output) == expected, f"killed {'before' if before else 'after'} rename {renames}"
    assert kills >= 2 * RENAMES


def _kill_often(kills, start, until_killed, output, expected):
    """Starts a command, kills it after `until_killed`, and again, until it was killed so often; it has to come to its
    end then. Wherever it came to its end before, its output is compared and another one begun. Gives how many entries
    each kill found."""
    rng, entries_found = random.Random(3), []
    while len(entries_found) < kills:
        process = start()
        until_killed(process, rng)
        process.kill()
        status = process.wait()
        if status == -signal.SIGKILL:
            entries_found.append(len(_entries(output)))
            continue
        assert status == QUARANTINED
        assert tree(output) == expected
        shutil.rmtree(output)
    assert start().wait() == QUARANTINED
    assert tree(output) == expected
    return entries_found


def _entries(output):
    return list(output.glob(".conversion/*/*.json"))


def test_killed_at_random_moments_it_ends_with_the_same_bytes(preloaded, tmp_path):
    inputs, output = write_files(tmp_path / "in", FILES, actions=ACTIONS[:4], size=(160, 80)), tmp_path / "out"
    began = time.monotonic()
    assert preloaded.start(_arguments(inputs, tmp_path / "undisturbed")).wait() == QUARANTINED
    longest = time.monotonic() - began
    entries_found = _kill_often(
        KILLS_OF_ONE_PROCESS,
        lambda: preloaded.start(_arguments(inputs, output)),
        lambda process, rng: time.sleep(rng.uniform(0, longest)),
        output,
        tree(tmp_path / "undisturbed"),
    )
    assert len(set(entries_found)) > 1, "all kills met the run before it had done anything"


def test_killed_at_random_moments_while_workers_convert_it_ends_with_the_same_bytes(tmp_path):
    """Only the parent is killed, and the next run starts while its workers may still be there."""
    inputs, output = write_files(tmp_path / "in", FILES, size=(480, 240)), tmp_path / "out"
    assert _start_cli(_arguments(inputs, tmp_path / "undisturbed", workers=2)).wait() == QUARANTINED

    def in_the_midst(process, rng):
        # After an entry or two more than there were: most of the time before that is imports.
        enough = len(_entries(output)) + rng.randint(1, 2)
        while process.poll() is None and len(_entries(output)) < enough:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))

    _kill_often(
        KILLS_WITH_WORKERS,
        lambda: _start_cli(_arguments(inputs, output, workers=2)),
        in_the_midst,
        output,
        tree(tmp_path / "undisturbed"),
    )


def test_workers_end_with_their_parent_however_it_dies(tmp_path):
    inputs = write_files(tmp_path / "in", "ab cd", size=(1200, 600))
    for fatal in (signal.SIGKILL, signal.SIGTERM):
        process = _start_cli(_arguments(inputs, tmp_path / "out", workers=2))
        children = _soon(lambda: len(found := _children(process.pid)) > 2 and found)  # noqa: B023 (called at once)
        process.send_signal(fatal)
        assert process.wait() == -fatal
        _soon(lambda: not any(map(_is_alive, children)))  # noqa: B023


def _soon(condition):
    """What the condition gives when it is true, as it has to be within some seconds."""
    end = time.monotonic() + SECONDS_TO_END
    while not (result := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return result


def _status(process: Path) -> list[str]:
    """State, parent … of a process in /proc; nothing when it has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _children(pid: int) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*") if _status(path)[1:2] == [str(pid)]]


def _is_alive(process: Path) -> bool:
    return _status(process)[:1] not in ([], ["Z"])
