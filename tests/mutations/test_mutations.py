"""The script of `tests/mutations`: its mutations are small, compile, and are judged by the right test files."""

import ast
import os
import subprocess
import sys

import pytest

from mutations.killers import importing, mirrored
from mutations.operators import compiles, mutations
from mutations.run import ROOT, _drawn, _known, equivalents

SOURCE = '''
def largest(values: list[int], limit: int = 3) -> int:
    """Not mutated: 1 < 2."""
    if not values or limit <= 0:
        raise ValueError(f"limit is {limit + 1}")
    values.sort()
    return max(values[:limit])  # täglich
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_each_mutation_changes_one_place_and_compiles(folder):
    found = mutations(folder, "m.py")
    changes = {one.in_words for one in found}
    expected = {
        "limit <= 0 → (limit < 0)",
        "not values → (values)",
        "values.sort() → pass",
        "max → min",
        "3 → 4",
        "0 → 1",
    }
    assert expected <= changes
    assert not any("1 < 2" in one or "limit + 1" in one for one in changes)
    for one in found:
        assert compiles(one, SOURCE)
        assert ast.dump(ast.parse(one.applied(SOURCE))) != ast.dump(ast.parse(SOURCE))


def test_a_mutation_of_another_source_is_refused(folder):
    with pytest.raises(ValueError, match="has changed at line"):
        mutations(folder, "m.py")[0].applied("\n" + SOURCE)


def test_the_seed_draws_the_mutations_evenly_over_modules():
    modules = ["vlm_agent/sentences/packing.py", "vlm_agent/geometry.py"]
    drawn = _drawn(modules, 0, 8)
    assert drawn == _drawn(modules, 0, 8) != _drawn(modules, 1, 8)
    assert [sum(one.path == module for one in drawn) for module in modules] == [4, 4]


def test_mirrored_and_importing_test_files_are_found():
    assert mirrored(ROOT, "vlm_agent/sentences/packing.py") == ["tests/sentences/test_packing.py"]
    assert "tests/sentences/test_packing.py" in importing(ROOT, "vlm_agent/sentences/packing.py")
    assert mirrored(ROOT, "vlm_agent/simulator/apps/shop.py"), "the nearest folder with tests"
    assert "tests/evaluation/comparison/test_single_stages.py" in importing(
        ROOT, "vlm_agent/evaluation/comparison/execution.py"
    ), "beside it"
    assert "tests/cli/doctor/test_doctor.py" in importing(ROOT, "vlm_agent/cli/doctor/__init__.py"), "runs the command"
    assert "tests/cli/test_options.py" in importing(ROOT, "vlm_agent/cli/features.py"), "parses its options"


def test_the_known_mutations_fit_the_code():
    for one in _known():
        assert compiles(one, (ROOT / one.path).read_text(encoding="utf-8")), one.path
        assert mirrored(ROOT, one.path)


def test_the_equivalent_mutations_fit_the_code():
    assert all(equivalents().values())


def failures(folder, test: str) -> str:
    """What `forks.failures` prints of a test file, in a process of its own: it forks a process with many imports."""
    code = f"from mutations import forks; print(forks.failures([{test!r}], 60))"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_test_files_without_a_test_to_run_notice_nothing(tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    slow, red = folder / "test_slow.py", folder / "test_red.py"
    slow.write_text("import pytest\n\n\n@pytest.mark.slow\ndef test_slow():\n    assert False\n")
    red.write_text("def test_red():\n    assert False\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -m 'not slow'\nmarkers = slow\n")
    assert failures(folder, "test_slow.py").strip() == "[]"
    assert "test_red" in failures(folder, "test_red.py")
