"""One predictions file under every scorer of its data set."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vlm_agent.cli import main
from vlm_agent.episodes import TARGET, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import write_predictions
from vlm_agent.evaluation.scoring.dialects import DIALECTS, judge
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.evaluation.scoring.steps import StepTable
from vlm_agent.evaluation.spread import dialects_of, spread

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "golden"))
import agents_2025 as golden  # noqa: E402

STEPS = golden.read(str(TESTS / "data/agents_2025/agent_a.jsonl.gz"))


@pytest.fixture(scope="module")
def rows():
    """383 steps of AndroidControl, ends included, most of them right."""
    return [replace(row, instruction="Scroll down") for row in golden._steps(STEPS, "agentcpm_ac")]


def test_each_scorer_states_the_steps_that_it_counts(rows):
    found = spread(rows)
    assert next(iter(found)) == "strict"
    assert found["strict"]["left_out"] == 0
    ends = sum(step["gold"]["action_type"] == "finish" for step in STEPS)
    apps = sum(step["gold"]["action_type"] == "open_app" for step in STEPS)
    assert found["os_atlas"]["left_out"] == ends
    assert found["agentcpm_ac"]["left_out"] == apps
    assert all(row["steps"] + row["left_out"] == len(rows) for row in found.values())


def test_shares_are_those_of_the_verdicts_and_inside_their_interval(rows):
    for name, row in spread(rows).items():
        ruling = DIALECTS[name].judge(StepTable.of(rows))
        assert row["step_success"] == pytest.approx(100 * ruling.right[ruling.counted].mean())
        assert row["interval"][0] < row["step_success"] < row["interval"][1]
        assert 0 <= row["most_frequent"] <= row["blind_ceiling"] <= 100


def test_metrics_leave_out_the_same_steps(rows):
    scores = score(rows, scorers=("official", "strict", "agentcpm_ac"))
    assert scores["agentcpm_ac"]["overall"]["step_match"] == spread(rows)["agentcpm_ac"]["step_success"]


def test_a_slip_is_counted_and_the_score_without_it_is_given(rows):
    broken = [replace(row, predicted=None) if number % 3 == 0 else row for number, row in enumerate(rows)]
    row = spread(broken)["guievalkit"]
    slip = row["slips"]["left out"]
    assert slip["steps"] == sum(one.predicted is None and one.gold.name != "open_app" for one in broken)
    assert slip["without"] < row["step_success"]


def test_grey_screens_are_scored_where_a_run_has_them(rows):
    assert spread(rows)["os_atlas"]["grey"] is None
    assert spread(rows, grey=[replace(row, predicted=None) for row in rows])["os_atlas"]["grey"] == 0


def test_a_missing_size_is_named(rows):
    with pytest.raises(UserError, match=r"episode .*, step 0: the size of the screen is missing"):
        spread([replace(row, size=None) for row in rows], ["os_genesis"])


def test_the_gold_box_of_gui_odyssey_chooses_its_scorers_and_is_right_for_strict(rows):
    tap = next(row for row in rows if row.gold.name == "tap" and row.predicted and row.predicted.name == "tap")
    y, x = tap.predicted.touch_yx
    box = UiElement((y - 0.01, x - 0.01, 0.02, 0.02), "", TARGET)
    far = replace(tap, elements=(box,), gold=replace(tap.gold, touch_yx=(1.0, 1.0), lift_yx=(1.0, 1.0)))
    table = StepTable.of([far])
    assert "gui_odyssey" in dialects_of(table)
    assert np.all(judge(table, "strict"))
    assert not judge(StepTable.of([replace(far, elements=())]), "strict").any()


def test_score_prints_one_table_of_every_scorer(rows, tmp_path, capsys):
    write_predictions(tmp_path / "predictions.parquet", rows)
    assert main(["score", str(tmp_path / "predictions.parquet"), "--dialect", "all"]) == 0
    printed = capsys.readouterr().out
    assert "every scorer, %" in printed
    assert "slip 'left out' decides" in printed
    assert main(["score", str(tmp_path / "predictions.parquet"), "--dialect", "guievalkit"]) == 0
    assert "slip 'left out' decides" in capsys.readouterr().out
