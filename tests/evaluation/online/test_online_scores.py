"""The numbers of an online evaluation."""

import itertools
from io import StringIO

import pytest
from rich.console import Console

from vlm_agent.evaluation.online.scores import online_scores
from vlm_agent.evaluation.report.terminal import online_tables
from vlm_agent.evaluation.scoring.measures import wilson

NUMBERS = itertools.count()


def result(success, subset="general", steps=4, expert=2, **more):
    row = {"success": success, "reached": success, "subset": subset, "memory": False, "steps": steps, "unparsed": 0}
    row |= {"task": str(next(NUMBERS)), "beyond_context": 0, "false_complete": not success, "side_effects": []}
    row |= {
        "expert_steps": expert,
        "reason": "complete",
        "tokens": [10, 2],
        "calls": 4,
        "seconds": {"agent": 1.0, "screen": 0.5},
    }
    return row | more


def test_success_is_over_tasks_and_in_each_subset():
    rows = online_scores([result(True), result(False, reached=True), result(True, "single"), result(True, "single")])
    assert (rows["overall"]["success"], rows["overall"]["reached"]) == (75, 100)
    assert (rows["general"]["success"], rows["single"]["success"]) == (50, 100)
    assert rows["install"]["success"] is None
    assert rows["install"]["interval"] is None
    assert rows["memory_goals"]["tasks"] == 0


def test_steps_are_compared_with_the_experts_for_completed_tasks():
    rows = online_scores([result(True, steps=4, expert=2), result(True, steps=8, expert=2), result(False, steps=99)])
    assert rows["overall"]["steps_over_expert"] == 3
    assert rows["overall"]["steps"] == 37
    assert online_scores([result(False)])["overall"]["steps_over_expert"] is None


def test_cost_is_a_mean_over_tasks():
    cost = online_scores([result(True, steps=3), result(True, steps=3, tokens=[30, 4])])["overall"]["cost"]
    assert cost == {"seconds": 1.5, "seconds_a_step": 0.5, "tokens_read": 20, "tokens_written": 3, "calls": 4}
    assert online_scores([result(True, tokens=None)])["overall"]["cost"]["tokens_read"] is None


def test_reasons_for_the_end_of_runs_are_counted():
    rows = online_scores([result(False, reason="loop"), result(True), result(False, reason="loop", unparsed=3)])
    assert rows["overall"]["ends"] == {"complete": 1, "loop": 2}
    assert rows["overall"]["unparsed"] == 3


@pytest.mark.parametrize(
    ("successes", "tasks", "low", "high"),
    [(0, 10, 0.0, 27.75), (10, 10, 72.25, 100.0), (50, 100, 40.38, 59.62), (1, 1, 20.65, 100.0)],
)
def test_the_interval_is_wilsons(successes, tasks, low, high):
    assert wilson(successes, tasks) == pytest.approx([low, high], abs=0.01)


def test_the_table_has_a_row_per_run_and_no_empty_subset():
    console = Console(file=StringIO(), width=100)
    console.print(*online_tables({"trained": online_scores([result(True), result(False)])}))
    printed = console.file.getvalue()
    assert "Success on 2 tasks" in printed
    assert "50.0" in printed
    assert "9–91" in printed
    assert "general" in printed
    assert "install" not in printed


def test_false_completes_and_side_effects_are_shares_of_all_tasks_with_intervals():
    row = online_scores([result(True), result(False), result(False), result(True, side_effects=["+ b", "- a"])])
    row = row["overall"]
    assert (row["false_completes"], row["side_effects"]) == (50, 25)
    assert row["side_effects_interval"] == wilson(1, 4)
    assert row["false_completes_interval"] == wilson(2, 4)
    assert online_scores([])["overall"]["side_effects"] is None


def test_pass_at_k_is_the_share_of_tasks_with_a_success_in_k_samples():
    outcomes = {"a": (True, True, False, False), "b": (False, False, False, False)}
    results = [
        result(success, task=f"{task}#{number}")
        for task, of_task in outcomes.items()
        for number, success in enumerate(of_task, start=1)
    ]
    row = online_scores(results)["overall"]
    assert row["pass_at"] == pytest.approx(
        [25, 100 * (5 / 6) / 2, 50, 50]
    )  # 5 of 6 pairs of a's samples have a success
    assert (row["success"], row["interval"]) == (25, wilson(0.5, 2))
    assert "pass_at" not in online_scores([result(True), result(False)])["overall"]


def test_an_interval_counts_tasks_where_some_samples_were_not_judged():
    unjudged = {"reached": None, "false_complete": None, "side_effects": None}
    results = [result(True, task=f"{task}#{number}") for task in range(10) for number in range(4)]
    results[-3:] = [result(None, task=f"9#{number}", **unjudged) for number in (1, 2, 3)]
    assert online_scores(results)["overall"]["interval"] == pytest.approx(wilson(10, 10))
