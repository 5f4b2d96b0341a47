"""The script of `tests/chaos`: it notices what it is for, and half a minute of it finds nothing."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.damage import damage
from chaos.findings import differences, tracebacks
from chaos.phone import random_line, random_packet

SCRIPT = Path(__file__).parent / "run.py"


def test_every_traceback_in_a_log_is_named_by_its_error(tmp_path):
    (tmp_path / "a.log").write_text("fine\n")
    stack = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    f()\n'
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/b.log").write_text(f"step 1\n{stack}KeyError: 'x'\nstep 2\n{stack}ValueError: y\n")
    assert tracebacks(tmp_path) == ["b.log: KeyError: 'x'", "b.log: ValueError: y"]


ORPHAN = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "{second}", line 130, in _main
    preparation_data = reduction.pickle.load(from_parent)
EOFError: Ran out of input
"""


def test_a_child_whose_parent_was_killed_while_starting_it_is_no_finding(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(ORPHAN.format(second="/usr/lib/python3.11/multiprocessing/spawn.py"))
    assert tracebacks(tmp_path) == []
    log.write_text(ORPHAN.format(second="/site-packages/vlm_agent/datasets/convert/workers.py"))
    assert tracebacks(tmp_path) == ["a.log: EOFError: Ran out of input"]


def test_values_that_changed_went_missing_or_came_are_differences():
    expected = {"same": 1, "changed": {"step": 1}, "lost": 0}
    assert differences(expected, {"same": 1, "changed": {"step": 2}, "new": 0}) == [
        "changed: {'step': 1} became {'step': 2}",
        "lost: 0 became None",
        "new: None became 0",
    ]


def test_the_seed_determines_lines_packets_and_damage(tmp_path):
    def drawn(seed: int) -> list:
        rng = random.Random(seed)
        file = tmp_path / "file"
        file.write_bytes(bytes(1000))
        how = [damage(file, rng) for _ in range(5)]
        return [how, file.read_bytes(), *(make(rng) for make in (random_line, random_packet) for _ in range(100))]

    assert drawn(1) == drawn(1) != drawn(2)


def test_damage_changes_a_file(tmp_path):
    file = tmp_path / "file"
    for seed in range(50):
        file.write_bytes(b"\x01" * 500)
        damage(file, random.Random(seed))
        assert file.read_bytes() != b"\x01" * 500


@pytest.mark.slow
def test_half_a_minute_of_chaos_loses_nothing(tmp_path):
    command = [sys.executable, SCRIPT, "--minutes", "0.5", "--seed", "1", "--output", tmp_path / "chaos"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    counts = json.loads((tmp_path / "chaos/summary.json").read_text())["counts"]
    assert all(counts[name]["rounds"] for name in ("convert", "train", "evaluate", "damage"))
    assert all(counts["phone"][what] for what in ("shell lines", "packets", "screenshots", "files pushed and pulled"))
