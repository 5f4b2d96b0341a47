"""One predictions file under every scorer of its data set."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vlm_agent.cli import main
from vlm_agent.episodes import TARGET, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import write_predictions
from vlm_agent.evaluation.scoring.comparison import compare
from vlm_agent.evaluation.scoring.dialects import DIALECTS, verdicts
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


def test_what_a_blind_policy_gets_does_not_exceed_100_where_unread_answers_are_left_out(rows):
    """Both figures answer every step, whatever the agent left unread."""
    broken = [row if number % 9 == 0 else replace(row, predicted=None) for number, row in enumerate(rows)]
    whole, found = spread(rows)["guievalkit"], spread(broken)["guievalkit"]
    assert found["steps"] < 0.2 * whole["steps"]
    assert found["most_frequent"] == pytest.approx(whole["most_frequent"])
    assert found["blind_ceiling"] == pytest.approx(whole["blind_ceiling"])


def test_runs_are_compared_over_the_steps_that_each_of_them_counts(rows):
    """A scorer that leaves out unread answers divides the same right steps by others in each run."""
    broken = [replace(row, predicted=None) if number % 3 == 0 else row for number, row in enumerate(rows)]
    scorers = ("official", "strict", "guievalkit")
    pair = compare(rows, broken, scorers=scorers)
    back = compare(broken, rows, scorers=scorers)
    for share in ("step_match", "complete_match", "partial_match"):
        overall = pair["guievalkit"]["overall"][share]
        for key, run in (("before", rows), ("now", broken)):
            assert overall[key] == score(run, scorers=scorers)["guievalkit"]["overall"][share]
        assert overall["difference"] == overall["now"] - overall["before"]
        low, high = overall["interval"]
        assert low < overall["difference"] < high
        assert back["guievalkit"]["overall"][share]["difference"] == -overall["difference"]
    assert not pair["changed"]["guievalkit"]["right_to_wrong"]  # an uncounted step is not wrong


def test_steps_that_a_scorer_leaves_out_are_in_no_curve(rows):
    """Every answer is right, and os_atlas does not count the ends."""
    gold = [replace(row, predicted=row.gold) for row in rows]
    scores = score(gold, scorers=("official", "strict", "os_atlas"))
    shares = [row["os_atlas"] for curve in ("by_step", "by_length") for row in scores[curve]]
    assert {share for share in shares if share is not None} == {100.0}


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
    assert np.all(verdicts(table, ["strict"])["strict"])
    assert not verdicts([replace(far, elements=())], ["strict"])["strict"].any()


@pytest.mark.parametrize("name", ["mine.parquet", "predictions_no_history.parquet", "predictions_grey_screens.parquet"])
def test_grey_screens_of_the_agent_are_not_those_of_another_file_beside_them(rows, tmp_path, name):
    grey = [replace(row, predicted=None) for row in rows]
    write_predictions(tmp_path / "predictions_grey_screens.parquet", grey)
    for run, is_known in (("predictions.parquet", True), (name, False)):
        write_predictions(tmp_path / run, rows)
        paths = [str(tmp_path / file) for file in (run, "scores.json")]
        assert main(["score", paths[0], "--dialect", "all", "--output", paths[1]]) == 0
        found = json.loads((tmp_path / "scores.json").read_text())["spread"]["os_atlas"]["grey"]
        assert found == (0.0 if is_known else None)


def test_score_prints_one_table_of_every_scorer(rows, tmp_path, capsys):
    write_predictions(tmp_path / "predictions.parquet", rows)
    assert main(["score", str(tmp_path / "predictions.parquet"), "--dialect", "all"]) == 0
    printed = capsys.readouterr().out
    assert "every scorer, %" in printed
    assert "slip 'left out' decides" in printed
    assert main(["score", str(tmp_path / "predictions.parquet"), "--dialect", "guievalkit"]) == 0
    assert "slip 'left out' decides" in capsys.readouterr().out
