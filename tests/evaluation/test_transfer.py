"""Transfer: models by subsets from evaluation folders, and the folders that it refuses."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from helpers.agents.knowing_agent import Knowing, write_shards
from helpers.pages.report_pages import Page
from rich.console import Console

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import evaluate
from vlm_agent.evaluation.predictions import read_predictions, write_predictions
from vlm_agent.files import read_checked, write_json


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("transfer") / "shards", ["train", "test"])


def _evaluated(shards, output, weights, **benchmark):
    """An evaluation folder of an agent with these weights; it answers everything right."""
    chosen = Benchmark(**{"shards": shards, "split": "test"} | benchmark)
    evaluate(Knowing(folder=chosen.shards, weights=weights), chosen, output, Console(file=StringIO()), controls=False)
    return output


@pytest.fixture
def folders(shards, tmp_path):
    """Evaluations of two models; the first one answers nothing on subset google_apps."""
    first, second = (_evaluated(shards, tmp_path / name, name) for name in ("general", "google_apps"))
    rows = read_predictions(first / "predictions.parquet")
    wrong = [replace(row, predicted=None) if row.subset == "google_apps" else row for row in rows]
    write_predictions(first / "predictions.parquet", wrong)
    return first, second


def _transfer(*arguments):
    return main(["transfer", *map(str, arguments)])


def test_every_model_is_scored_on_every_subset_officially_and_strictly(folders, tmp_path, capsys):
    assert _transfer(folders[1], folders[0], "--output", tmp_path / "out") == OK
    matrix = json.loads((tmp_path / "out/transfer.json").read_text())
    assert matrix["models"] == ["general", "google_apps"], "in the order of the subsets, not of the arguments"
    assert matrix["columns"] == ["general", "google_apps", "overall"]
    assert matrix["counts"]["google_apps"] == {"episodes": 2, "steps": 4}
    for scorer in ("official", "strict"):
        scores = matrix["scores"][scorer]
        shares = {model: [cell["partial_match"] for cell in row.values()] for model, row in scores.items()}
        assert shares == {"general": [100, 0, 50], "google_apps": [100, 100, 100]}
        assert scores["general"]["google_apps"]["intervals"]["partial_match"] is None  # both episodes are wrong
        assert scores["general"]["google_apps"]["step_match"] == 0
    printed = capsys.readouterr().out
    assert "Transfer: partial match by subset" in printed
    assert "100.0" in printed and "100–100" not in printed


def test_the_page_has_a_heat_map_of_each_scorer_and_marks_the_own_subset(folders, tmp_path):
    assert _transfer(*folders, "--output", tmp_path / "out") == OK
    page = Page((tmp_path / "out/transfer.html").read_text(encoding="utf-8"))
    assert [svg["data-scorer"] for svg in page.all("svg")] == ["official", "strict"]
    cells = [cell for cell in page.all("rect") if "fill-opacity" in cell]
    assert [float(cell["fill-opacity"]) for cell in cells[:6]] == [0.75, 0, 0.375, 0.75, 0.75, 0.75]
    assert sum(cell.get("class") == "own" for cell in page.all("rect")) == 4
    assert "general on google apps: 0.0 %" in page.text


def test_names_are_escaped_and_the_page_loads_nothing(folders, tmp_path):
    evil = '<script>alert("pwned")</script></svg>'
    assert _transfer(f"{evil}={folders[0]}", folders[1], "--output", tmp_path / "out") == OK
    page = Page((tmp_path / "out/transfer.html").read_text(encoding="utf-8"))
    assert not page.all("script")
    assert "alert" in page.text
    (policy,) = [meta["content"] for meta in page.all("meta") if "content" in meta and "default-src" in meta["content"]]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def _refused(capsys, tmp_path, *arguments):
    assert _transfer(*arguments, "--output", tmp_path / "out") == FAILED
    assert not (tmp_path / "out").exists()
    message = capsys.readouterr().err
    assert message.count("\n") == 1, "one line"
    return message


def test_one_model_twice_is_refused(shards, folders, tmp_path, capsys):
    again = _evaluated(shards, tmp_path / "again", "general")
    message = _refused(capsys, tmp_path, *folders, again)
    assert f"{folders[0]} and {again} are evaluations of the same model" in message


def test_one_name_twice_is_refused(folders, tmp_path, capsys):
    message = _refused(capsys, tmp_path, folders[0], f"general={folders[1]}")
    assert f"{folders[0]} and {folders[1]} are both named 'general'" in message


def test_a_single_evaluation_is_refused(folders, tmp_path, capsys):
    assert "at least two evaluations" in _refused(capsys, tmp_path, folders[0])


DRAW = {"per_subset": 1, "subsets": ["general", "google_apps"], "seed": 3}


@pytest.mark.parametrize(
    ("benchmark", "words"),
    [
        ({}, "all"),
        ({"limit": 3}, "at most 3, spread evenly"),
        (DRAW, "at most 1 a subset, drawn with seed 3, of general, google_apps"),
        ({"subsets": ["general"]}, "all of general"),
        ({"per_subset": 1, "limit": 1}, "at most 1 a subset, drawn with seed 0, of every subset; of these at most 1, "),
    ],
)
def test_the_page_names_the_episodes_that_were_scored(shards, tmp_path, benchmark, words):
    folders = [_evaluated(shards, tmp_path / name, name, **benchmark) for name in ("one", "other")]
    assert _transfer(*folders, "--output", tmp_path / "out") == OK
    facts = json.loads((tmp_path / "out/transfer.json").read_text())["facts"]
    assert facts["episodes"].startswith(words)
    assert words in Page((tmp_path / "out/transfer.html").read_text(encoding="utf-8")).text


def test_another_draw_is_refused(shards, folders, tmp_path, capsys):
    other = _evaluated(shards, tmp_path / "single", "single", **DRAW)
    message = _refused(capsys, tmp_path, folders[0], other)
    assert f"{folders[0]} and {other} have a different draw (None and {DRAW!r})" in message


@pytest.mark.parametrize(
    ("key", "value"), [("split", "train"), ("limit", 2), ("dialect", "official_text")], ids=lambda value: str(value)
)
def test_another_split_limit_or_scorer_is_refused(shards, folders, tmp_path, capsys, key, value):
    other = _evaluated(shards, tmp_path / "single", "single", **{key: value})
    message = _refused(capsys, tmp_path, folders[0], other)
    assert f"{folders[0]} and {other} have a different {key}" in message
    assert repr(value) in message


def test_other_shards_are_refused(folders, tmp_path, capsys):
    shards = write_shards(tmp_path / "more", ["train", "test"], count=6)
    other = _evaluated(shards, tmp_path / "single", "single")
    assert f"{folders[0]} and {other} have a different shards" in _refused(capsys, tmp_path, folders[0], other)


def test_other_gold_steps_are_refused(folders, tmp_path, capsys):
    rows = read_predictions(folders[1] / "predictions.parquet")
    write_predictions(folders[1] / "predictions.parquet", [row for row in rows if row.episode_id != "google_apps-1"])
    message = _refused(capsys, tmp_path, *folders)
    assert str(folders[1]) in message
    assert "google_apps-1" in message


def test_a_model_named_after_a_subset_without_steps_is_refused(folders, tmp_path, capsys):
    message = _refused(capsys, tmp_path, folders[0], f"single={folders[1]}")
    assert "the model is named single, but no episode is of this subset" in message


def test_an_unfinished_evaluation_is_refused(folders, tmp_path, capsys):
    (folders[1] / "metrics.json").unlink()
    assert f"{folders[1]} is not a finished evaluation" in _refused(capsys, tmp_path, *folders)


def test_steps_that_an_agent_failed_to_answer_are_stated(folders, tmp_path, capsys):
    path = folders[0] / "metrics.json"
    metrics = read_checked(path, "")
    metrics["trained"]["about"]["failed_steps"] = ["episode general-1, step 0: status 410"]
    write_json(path, metrics)
    assert _transfer(*folders, "--output", tmp_path / "out") == OK
    line = f"{folders[0] / 'predictions.parquet'}: the agent failed to answer 1 step(s), which count as wrong; run"
    assert capsys.readouterr().out.count(line) == 1
    facts = json.loads((tmp_path / "out/transfer.json").read_text())["facts"]
    assert facts["general, failed steps"] == "1, counted as wrong"
    assert "google_apps, failed steps" not in facts


def test_a_folder_without_an_evaluation_is_refused(folders, tmp_path, capsys):
    assert "does not hold an evaluation" in _refused(capsys, tmp_path, folders[0], tmp_path / "nowhere")
