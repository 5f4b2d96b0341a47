"""An evaluation that is killed, or split over a job array, ends like an uninterrupted one."""

import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from helpers.agents.knowing_agent import Knowing, write_shards
from rich.console import Console

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline import parts
from vlm_agent.evaluation.offline.parts import lock_output
from vlm_agent.evaluation.offline.plan import recorded_settings
from vlm_agent.evaluation.offline.run import evaluate, finish
from vlm_agent.evaluation.predictions import read_predictions, write_predictions
from vlm_agent.files import read_checked, write_json
from vlm_agent.files.jobs import ArrayTask

RUNS = ("predictions.parquet", "predictions_grey_screens.parquet")


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Eight episodes in parts of three: three parts of each run."""
    monkeypatch.setattr(parts, "EPISODES_PER_PART", 3)
    return write_shards(tmp_path / "shards", ["test"])


def _evaluate(world, output, source=None, split="test", **options):
    source = Knowing(folder=output.parent) if source is None else source
    benchmark = Benchmark(shards=world, split=split, **options.pop("benchmark", {}))
    return evaluate(source, benchmark, output, Console(file=StringIO()), **options)


def _bytes(output):
    return {name: (output / name).read_bytes() for name in (*RUNS, "predictions_no_history.parquet", "metrics.json")}


_KILLED = """
import sys
from io import StringIO
from pathlib import Path
sys.path.insert(0, {here!r})
from helpers.agents.knowing_agent import Knowing
from rich.console import Console
from vlm_agent.evaluation.offline import parts
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import evaluate
parts.EPISODES_PER_PART = 3
source = Knowing(folder=Path({folder!r}), life={life})
benchmark = Benchmark(shards=Path({world!r}), split="test")
evaluate(source, benchmark, Path({output!r}), Console(file=StringIO()))
"""


def test_an_evaluation_killed_twice_predicts_no_step_twice(world, tmp_path):
    output = tmp_path / "out"
    for life in (1, 5):
        values = {"here": str(Path(__file__).parents[2]), "folder": str(tmp_path), "world": str(world)}
        script = _KILLED.format(**values, output=str(output), life=life)
        killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
        assert killed.returncode == -9, killed.stderr.decode()
    _evaluate(world, output)
    asked = Knowing(folder=tmp_path).knower.asked()
    assert len(asked) == 4 * 8  # as it is, on grey screens, and step by step without history
    assert len(set(asked)) == len(asked)
    (tmp_path / "at once").mkdir()
    _evaluate(world, tmp_path / "at once" / "out")
    assert _bytes(output) == _bytes(tmp_path / "at once" / "out")


def test_a_complete_evaluation_is_scored_again_without_an_agent(world, tmp_path):
    output = tmp_path / "out"
    _evaluate(world, output)
    asked = Knowing(folder=tmp_path).knower.asked()
    scores = _evaluate(world, output, benchmark={"groups": {"first": ["general-0"]}})
    assert Knowing(folder=tmp_path).knower.asked() == asked
    assert scores["trained"]["official"]["first"]["episodes"] == 1
    assert not list((output / "parts").glob("*/*"))


def test_the_plan_has_the_scorers_and_groups_of_the_newest_command(world, tmp_path):
    output = tmp_path / "out"
    _evaluate(world, output, benchmark={"groups": {"first": ["general-0"]}})
    newest = {"name": "small", "dialect": "official_text", "groups": {"second": ["general-1"]}}
    scores = _evaluate(world, output, benchmark=newest)
    metrics = (output / "metrics.json").read_bytes()
    assert read_checked(output / "plan.json", "")["given"]["dialect"] == "official_text"
    assert recorded_settings(output / "predictions.parquet")[0] == newest["groups"]
    assert finish(output, Console(file=StringIO())) == scores
    assert (output / "metrics.json").read_bytes() == metrics


def test_a_command_that_is_refused_does_not_change_the_plan(world, tmp_path):
    output = tmp_path / "out"
    _evaluate(world, output)
    before = (output / "plan.json").read_bytes()
    with lock_output(output, ArrayTask()), pytest.raises(DatasetError, match="another process"):
        _evaluate(world, output, benchmark={"dialect": "official_text"})
    assert (output / "plan.json").read_bytes() == before


def test_a_group_named_like_a_subset_is_refused_before_anything_is_predicted(world, tmp_path):
    with pytest.raises(DatasetError, match=r"groups named like a subset: \['general'\]; choose other names"):
        _evaluate(world, tmp_path / "out", benchmark={"groups": {"general": ["general-0"]}})
    assert not (tmp_path / "out").exists()
    assert Knowing(folder=tmp_path).knower.asked() == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_job_array_in_any_order_writes_the_bytes_of_one_process(world, tmp_path, order):
    output = tmp_path / "array" / "out"
    for index in order:
        assert _evaluate(world, output, task=ArrayTask(index, 3)) is None
    finish(output, Console(file=StringIO()))
    _evaluate(world, tmp_path / "out")
    assert _bytes(output) == _bytes(tmp_path / "out")
    assert len(Knowing(folder=output.parent).knower.asked()) == 4 * 8


def test_finish_refuses_an_evaluation_with_missing_predictions(world, tmp_path):
    _evaluate(world, tmp_path / "out", task=ArrayTask(1, 3))
    with pytest.raises(DatasetError, match="6 part"):
        finish(tmp_path / "out", Console(file=StringIO()))


@pytest.mark.parametrize("run", ["predictions.parquet", "predictions_grey_screens.parquet"])
def test_a_run_that_lacks_an_episode_is_not_scored(world, tmp_path, run):
    output = tmp_path / "out"
    _evaluate(world, output)
    rows = read_predictions(output / run)
    write_predictions(output / run, [row for row in rows if row.episode_id != rows[0].episode_id])
    with pytest.raises(DatasetError, match=f"no prediction of 1 episodes, the first {rows[0].episode_id}"):
        _evaluate(world, output)


def _add_an_episode(path):
    rows = read_predictions(path)
    write_predictions(path, rows + [replace(row, episode_id="foreign") for row in rows[:2]])


def _damage(path):
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(_add_an_episode, "surplus predictions of 1 episodes, the first foreign"), (_damage, "cut short")],
)
def test_wrong_predictions_of_a_finished_evaluation_are_repaired_as_the_error_says(world, tmp_path, spoil, words):
    output = tmp_path / "out"
    _evaluate(world, output)
    before = _bytes(output)
    spoil(output / "predictions.parquet")
    with pytest.raises(DatasetError, match=f"{words}.*; move .* and run .* evaluate command again"):
        _evaluate(world, output)
    (output / "predictions.parquet").rename(tmp_path / "moved.parquet")
    _evaluate(world, output)
    assert _bytes(output) == before


def test_a_task_started_again_predicts_nothing_more(world, tmp_path):
    for _ in range(2):
        _evaluate(world, tmp_path / "out", task=ArrayTask(0, 2))
    assert len(Knowing(folder=tmp_path).knower.asked()) == 4 * (3 + 2)  # the first and the third part


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"source": "weights"}, 'agent.weights was "a", and is "b"'),
        ({"split": "train"}, 'split was "test", and is "train"'),
        ({"benchmark": {"limit": 2}}, "limit was null, and is 2"),
        ({"controls": False}, "runs was"),
    ],
)
def test_another_evaluation_is_refused_with_the_difference(tmp_path, other, words):
    world, output = write_shards(tmp_path / "shards", ["test", "train"]), tmp_path / "out"
    _evaluate(world, output)
    before = _bytes(output)
    other = other | ({"source": Knowing(folder=tmp_path, weights="b")} if "source" in other else {})
    with pytest.raises(DatasetError) as refused:
        _evaluate(world, output, **other)
    assert words in str(refused.value)
    assert _bytes(output) == before


def test_other_shards_are_refused(world, tmp_path):
    _evaluate(world, tmp_path / "out")
    write_json(world / "manifest.json", read_checked(world / "manifest.json", "") | {"converted": "again"})
    with pytest.raises(DatasetError, match="shards was"):
        _evaluate(world, tmp_path / "out")
    with pytest.raises(DatasetError, match="changed since"):
        finish(tmp_path / "out", Console(file=StringIO()))


def test_a_folder_with_other_files_is_refused(world, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(DatasetError, match="is not empty and does not hold an evaluation"):
        _evaluate(world, tmp_path / "out")
    with pytest.raises(DatasetError, match="does not hold an evaluation"):
        finish(tmp_path / "out", Console(file=StringIO()))
    with pytest.raises(DatasetError, match="is a file"):
        _evaluate(world, tmp_path / "out" / "thesis.tex")


@pytest.mark.parametrize("content", ["{", "[]", '{"described": {}}', '{"described": {"version": 99}}'])
def test_an_invalid_plan_is_refused(world, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(content)
    with pytest.raises(DatasetError, match=r"is damaged|with other settings"):
        _evaluate(world, tmp_path / "out")


def test_two_processes_do_not_predict_the_same(tmp_path):
    with lock_output(tmp_path, ArrayTask(0, 2)), lock_output(tmp_path, ArrayTask(1, 2)):
        for task in (ArrayTask(), ArrayTask(0, 2)):
            with pytest.raises(DatasetError, match="another process"), lock_output(tmp_path, task):
                pass


@pytest.mark.parametrize(("index", "count"), [(3, 3), (-1, 3)])
def test_a_task_outside_its_job_array_is_refused(index, count):
    with pytest.raises(UserError, match="--shard-index must be 0 to 2"):
        ArrayTask(index, count)
