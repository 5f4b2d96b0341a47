"""An evaluation that is killed, or dealt out to many processes, ends as if it had been run at once."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from knowing_agent import Knowing, write_shards
from rich.console import Console

from vlm_agent.datasets import DatasetError
from vlm_agent.evaluation import parts
from vlm_agent.evaluation.offline import Benchmark, evaluate, finish
from vlm_agent.evaluation.parts import Share, held
from vlm_agent.evaluation.progress import StepProgress

RUNS = ("predictions.parquet", "predictions_constrained.parquet", "predictions_grey_screens.parquet")


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Eight episodes in parts of three: three parts of each run."""
    monkeypatch.setattr(parts, "EPISODES_A_PART", 3)
    return write_shards(tmp_path / "shards", ["test"])


def _evaluate(world, output, source=None, split="test", **options):
    source = Knowing(output.parent) if source is None else source
    benchmark = Benchmark(world, split, **options.pop("benchmark", {}))
    return evaluate(source, benchmark, output, Console(file=StringIO()), **{"constrained": True} | options)


def _bytes(output):
    return {name: (output / name).read_bytes() for name in (*RUNS, "predictions_no_history.parquet", "metrics.json")}


_KILLED = """
import sys
from io import StringIO
from pathlib import Path
sys.path.insert(0, {here!r})
from knowing_agent import Knowing
from rich.console import Console
from vlm_agent.evaluation import parts
from vlm_agent.evaluation.offline import Benchmark, evaluate
parts.EPISODES_A_PART = 3
source = Knowing(Path({folder!r}), life={life})
evaluate(source, Benchmark(Path({world!r}), "test"), Path({output!r}), Console(file=StringIO()), constrained=True)
"""


def test_killed_twice_and_started_again_it_predicts_no_step_twice(world, tmp_path):
    output = tmp_path / "out"
    for life in (1, 5):
        given = {"here": str(Path(__file__).parent), "folder": str(tmp_path), "world": str(world)}
        script = _KILLED.format(**given, output=str(output), life=life)
        killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
        assert killed.returncode == -9, killed.stderr.decode()
    _evaluate(world, output)
    asked = Knowing(tmp_path).agent.asked()
    assert len(asked) == 3 * 8  # with all senses, on grey screens, without history
    assert len(set(asked)) == len(asked)
    (tmp_path / "at once").mkdir()
    _evaluate(world, tmp_path / "at once" / "out")
    assert _bytes(output) == _bytes(tmp_path / "at once" / "out")


def test_complete_it_is_scored_again_without_an_agent(world, tmp_path):
    output = tmp_path / "out"
    _evaluate(world, output)
    asked = Knowing(tmp_path).agent.asked()
    scores = _evaluate(world, output, benchmark={"groups": {"first": ["general-0"]}})
    assert Knowing(tmp_path).agent.asked() == asked
    assert scores["trained"]["official"]["first"]["episodes"] == 1
    assert not list((output / "parts").glob("*/*"))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_job_array_in_any_order_makes_the_same_bytes_as_one_process(world, tmp_path, order):
    output = tmp_path / "array" / "out"
    for index in order:
        assert _evaluate(world, output, share=Share(index, 3)) is None
    finish(output, Console(file=StringIO()))
    _evaluate(world, tmp_path / "out")
    assert _bytes(output) == _bytes(tmp_path / "out")
    assert len(Knowing(output.parent).agent.asked()) == 3 * 8


def test_what_is_not_predicted_yet_is_not_finished(world, tmp_path):
    _evaluate(world, tmp_path / "out", share=Share(1, 3))
    with pytest.raises(DatasetError, match="6 part"):
        finish(tmp_path / "out", Console(file=StringIO()))


def test_a_share_started_again_predicts_nothing_more(world, tmp_path):
    for _ in range(2):
        _evaluate(world, tmp_path / "out", share=Share(0, 2))
    assert len(Knowing(tmp_path).agent.asked()) == 3 * (3 + 2)  # the first and the third part


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"source": "weights"}, 'agent.weights was "a", and is "b"'),
        ({"split": "train"}, 'split was "test", and is "train"'),
        ({"benchmark": {"limit": 2}}, "limit was null, and is 2"),
        ({"controls": False}, "runs was"),
        ({"constrained": False}, "runs was"),
    ],
)
def test_another_evaluation_is_refused_and_the_difference_named(tmp_path, other, words):
    world, output = write_shards(tmp_path / "shards", ["test", "train"]), tmp_path / "out"
    _evaluate(world, output)
    before = _bytes(output)
    other = other | ({"source": Knowing(tmp_path, weights="b")} if "source" in other else {})
    with pytest.raises(DatasetError) as refused:
        _evaluate(world, output, **other)
    assert words in str(refused.value)
    assert _bytes(output) == before


def test_other_shards_are_refused(world, tmp_path):
    _evaluate(world, tmp_path / "out")
    (world / "manifest.json").write_text((world / "manifest.json").read_text() + " ")
    with pytest.raises(DatasetError, match="shards was"):
        _evaluate(world, tmp_path / "out")
    with pytest.raises(DatasetError, match="changed since"):
        finish(tmp_path / "out", Console(file=StringIO()))


def test_a_folder_with_something_else_in_it_is_refused(world, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(DatasetError, match="no evaluation of this program"):
        _evaluate(world, tmp_path / "out")
    with pytest.raises(DatasetError, match="holds no evaluation"):
        finish(tmp_path / "out", Console(file=StringIO()))
    with pytest.raises(DatasetError, match="is a file"):
        _evaluate(world, tmp_path / "out" / "thesis.tex")


@pytest.mark.parametrize("content", ["{", "[]", '{"described": {}}', '{"described": {"version": 99}}'])
def test_a_plan_that_is_none_is_refused(world, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(content)
    with pytest.raises(DatasetError, match=r"is damaged|has version"):
        _evaluate(world, tmp_path / "out")


def test_two_processes_do_not_predict_the_same(tmp_path):
    with held(tmp_path, Share(0, 2)), held(tmp_path, Share(1, 2)):
        for share in (Share(), Share(0, 2)):
            with pytest.raises(DatasetError, match="another process"), held(tmp_path, share):
                pass


@pytest.mark.parametrize(("index", "count"), [(3, 3), (-1, 3)])
def test_a_share_that_there_is_not_is_refused(index, count):
    with pytest.raises(DatasetError, match="--shard-index is 0 to 2"):
        Share(index, count)


def test_a_log_gets_a_line_a_minute(monkeypatch):
    clock = iter([0.0, 30.0, 61.0, 62.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    said = StringIO()
    progress = StepProgress(Console(file=said, width=40), 1000)
    with progress.shown():
        for _ in range(3):
            progress.add("no_history", 100)
    assert said.getvalue().splitlines() == ["no history: 200 of 1,000 steps (3.3/s), about 4 min left"]


def test_a_terminal_gets_a_bar():
    said = StringIO()
    with StepProgress(Console(file=said, force_terminal=True, width=120), 10).shown() as progress:
        progress.add("trained", 5)
    assert "5 of 10 steps" in said.getvalue()
