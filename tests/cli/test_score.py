"""`vlm-agent score`: tables, numbers as JSON, and the files that it refuses."""

import json
import signal
from dataclasses import replace

import pytest

from vlm_agent.cli import FAILED, INTERRUPTED, OK, main
from vlm_agent.episodes import Action
from vlm_agent.evaluation.predictions import Prediction, write_predictions
from vlm_agent.evaluation.scoring.dialects import DIALECTS
from vlm_agent.evaluation.scoring.metrics import score

GOLD = [
    Prediction(f"e{episode}", "single", "go", step, 2, Action.type_text("milk"), (), "", None)
    for episode in range(3)
    for step in range(2)
]


@pytest.fixture
def runs(tmp_path):
    """Two runs: one that answers nothing right, one that types with a capital."""
    better = [replace(row, predicted=Action.type_text("Milk")) for row in GOLD]
    write_predictions(tmp_path / "first.parquet", GOLD)
    write_predictions(tmp_path / "second.parquet", better)
    return tmp_path / "first.parquet", tmp_path / "second.parquet"


def test_it_prints_one_row_per_scorer_with_its_source(runs, capsys):
    assert main(["score", str(runs[1]), "--dialect", "official_text"]) == OK
    printed = capsys.readouterr().out
    for words in ("official", "strict", "official_text", "100.0", "Auto-GUI", "ours", "goal progress"):
        assert words in printed


def test_a_signal_leaves_no_joined_predictions(tmp_path, monkeypatch, stop_signal):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("vlm_agent.cli.score._run", lambda *_: signal.raise_signal(stop_signal))
    assert main(["score", "mine.csv"]) == INTERRUPTED
    assert not list(tmp_path.iterdir())


def test_it_prints_the_metrics_of_aitz_under_its_dialects_only(runs, capsys):
    assert main(["score", str(runs[1]), "--dialect", "coat_point", "coat_box"]) == OK
    assert "AitZ, %" in (printed := capsys.readouterr().out) and "hit rate" in printed
    assert main(["score", str(runs[1])]) == OK
    assert "AitZ" not in capsys.readouterr().out


def test_the_file_contains_the_computed_scores(runs, tmp_path):
    (tmp_path / "groups.json").write_text(json.dumps({"last": ["e2"]}))
    options = ["--groups", str(tmp_path / "groups.json"), "--output", str(tmp_path / "new" / "metrics.json")]
    assert main(["score", str(runs[1]), *options, "--dialect", "five_points", "--dialect", "agentcpm"]) == OK
    scorers = ("official", "strict", "five_points", "agentcpm")
    expected = score(runs[1], {"last": ["e2"]}, scorers=scorers)
    assert json.loads((tmp_path / "new" / "metrics.json").read_text()) == json.loads(json.dumps(expected))


def test_against_another_run_it_prints_the_changed_steps(runs, tmp_path, capsys):
    assert main(["score", str(runs[1]), "--against", str(runs[0]), "--output", str(tmp_path / "m.json")]) == OK
    assert "6 in 3 episodes" in capsys.readouterr().out
    against = json.loads((tmp_path / "m.json").read_text())["against"]
    assert (against["before"], against["now"]) == tuple(map(str, runs[:2]))
    rows = against["official"]["overall"]["partial_match"]
    assert (rows["before"], rows["now"], rows["difference"]) == (0, 100, 100)
    assert against["strict"]["overall"]["partial_match"]["difference"] == 0
    assert against["changed"]["official"]["wrong_to_right"] == {f"e{k}": [0, 1] for k in range(3)}


def test_an_unknown_dialect_is_an_error_that_lists_the_known_ones(runs, capsys):
    assert main(["score", str(runs[0]), "--dialect", "lenient"]) == FAILED
    assert "dialect 'lenient' is unknown; choose one of official, strict," in capsys.readouterr().err


def test_runs_over_other_steps_are_refused(runs, tmp_path, capsys):
    write_predictions(tmp_path / "other.parquet", GOLD[:2])
    assert main(["score", str(runs[0]), "--against", str(tmp_path / "other.parquet")]) == FAILED
    assert f"{runs[0]} has 2 episodes that {tmp_path / 'other.parquet'} lacks" in capsys.readouterr().err


def test_a_group_without_episodes_is_shown_as_such(runs, tmp_path, capsys):
    (tmp_path / "groups.json").write_text(json.dumps({"last": ["e2"], "of_other_data": ["x"]}))
    more = ["--against", str(runs[0]), "--groups", str(tmp_path / "groups.json")]
    assert main(["score", str(runs[1]), *more]) == OK
    table, difference = capsys.readouterr().out.split("minus")[0:2]
    for printed in (table, difference):
        words = " ".join(printed.split())
        assert "last" in words and "data" in words and "episodes)" in words, printed
    assert "install" not in table


def test_the_help_lists_every_dialect_with_its_rule(capsys):
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    for name, dialect in DIALECTS.items():
        assert f" {name} {' '.join(dialect.rule.split())} (" in printed


def test_a_file_without_a_step_is_refused(tmp_path, capsys):
    write_predictions(tmp_path / "p.parquet", [])
    assert main(["score", str(tmp_path / "p.parquet")]) == FAILED
    printed = capsys.readouterr()
    assert f"{tmp_path / 'p.parquet'} holds no step; move it away and run its evaluate command again" in printed.err
    assert printed.out == ""


def test_the_folder_of_an_online_evaluation_is_named_as_such(tmp_path, capsys):
    (tmp_path / "agent.yaml").write_text("agent: scripted\nactions: [complete]\n")
    words = ["--online", "--agent", str(tmp_path / "agent.yaml"), "--tasks", "1", "--controls", "none"]
    assert main(["evaluate", *words, "--output", str(tmp_path / "out")]) == OK
    assert main(["score", str(tmp_path / "out")]) == FAILED
    assert f"{tmp_path / 'out'} holds an online evaluation, which has no predictions to" in capsys.readouterr().err


def test_a_file_without_predictions_is_named(tmp_path, capsys):
    (tmp_path / "p.parquet").write_text("no parquet")
    assert main(["score", str(tmp_path / "p.parquet")]) == FAILED
    assert "p.parquet cannot be read (it is not a Parquet file" in capsys.readouterr().err
