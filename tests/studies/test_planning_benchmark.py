"""The arms of studies/d_pot are the modes of D-PoT, and its gap is planning and grounding."""

from argparse import Namespace
from pathlib import Path

import pytest
from helpers.data.notes import uses

from studies.ablation.runs import data_of
from studies.d_pot.arms import DEFAULT_FAMILIES, TABLES, TRAINED_ON, memory_benchmark_of, run_of
from studies.d_pot.figures import FIGURES, baselines, differences, gap, kinds, pairs_of
from vlm_agent.evaluation.benchmark import read_benchmark
from vlm_agent.simulator import goals  # noqa: F401 (registers the templates)
from vlm_agent.simulator.tasks import TEMPLATES

OPTIONS = Namespace(steps=None, data=Path("data"), output=Path("out"), limit=5)
RUNS = {(table, arm): run_of(table, "phone_vlm", arm, 0, OPTIONS) for table, arms in TABLES.items() for arm in arms}
TEXT = {("text", table, arm): run_of(table, "text", arm, 0, OPTIONS) for table, arms in TABLES.items() for arm in arms}


@pytest.mark.parametrize(
    ("arm", "screens", "history", "notes"),
    [
        ("none", 0, 0, {}),
        ("react 0", 0, None, {}),
        ("react 4", 4, None, {}),
        ("react all", None, None, {}),
        ("static", 0, 0, {"plan": "first"}),
        ("dynamic", 0, 0, {"plan": "learned"}),
        ("d_pot", 0, None, {"plan": "learned", "step": "learned"}),
    ],
)
def test_an_arm_of_table_5_is_a_mode(arm, screens, history, notes):
    data = data_of(RUNS[5, arm])
    assert (data.past_screens, data.history, data.notes) == (screens, history, uses(notes))


def test_memory_goals_are_scored_in_the_other_subsets_that_have_some():
    """A benchmark that lists a subset without any episode is refused, after minutes of training."""
    with_memory = {template.subset for template in TEMPLATES if template.memory}
    assert set(read_benchmark(memory_benchmark_of(7), {}).subsets) == with_memory - {TRAINED_ON}
    assert read_benchmark(memory_benchmark_of(5), {}).subsets == []


def test_table_7_trains_on_one_subset_and_scores_the_others():
    for (table, arm), run in RUNS.items():
        kept = {subset for subset, share in data_of(run).mixture.items() if share} if table == 7 else set()
        assert kept == ({TRAINED_ON} if table == 7 else set()), arm
        (benchmark,) = (path for path in run.scoring if isinstance(path, Path))
        scored = read_benchmark(benchmark, {})
        assert scored.subsets == (["general", "install", "single", "web_shopping"] if table == 7 else [])
        assert "d_pot" in scored.scorers


def test_every_arm_has_a_folder_of_its_own():
    runs = RUNS | TEXT
    assert len({run.folder for run in runs.values()}) == len(runs)
    assert all(set(families) <= {"phone_vlm", "text"} for families in DEFAULT_FAMILIES.values())


@pytest.mark.parametrize("table", TABLES)
def test_differences_are_those_of_the_arms_that_ran(table):
    figures = {f"phone_vlm, {arm}": {0: dict.fromkeys(FIGURES, float(n))} for n, arm in enumerate(TABLES[table])}
    rows = differences(table, figures)
    assert len(rows) == len(pairs_of(table))
    assert differences(table, dict(list(figures.items())[:1])) == []


def test_the_gap_is_divided_into_planning_and_grounding():
    seeds = {"own plan": (40.0, 50.0, 30.0), "expert's plan": (55.0, 60.0, 60.0)}
    figures = {
        f"phone_vlm, {arm}": {seed: dict.fromkeys(FIGURES, share) for seed, share in enumerate(shares)}
        for arm, shares in seeds.items()
    }
    found = gap(figures, "phone_vlm")["strict"]
    assert {name: of["mean"] for name, of in found.items()} == {
        "wrong": 60.0,
        "planning": 18.33,
        "grounding": 41.67,
        "share of planning": 29.29,
    }
    assert found["planning"]["half"] > 0 and found["planning"]["seeds"] == 3
    assert gap({}, "phone_vlm") is None


def test_in_table_5_all_arms_learn_from_the_same_demonstrations():
    assert {data_of(run).limit for (table, _), run in RUNS.items() if table == 5} == {250}
    assert {data_of(run).limit for (table, _), run in RUNS.items() if table == 7} == {None}


def with_metrics(name: str, **metrics) -> Namespace:
    return Namespace(name=name, metrics=metrics)


def scored(share: float) -> dict:
    overall = {"overall": {"partial_match": share}}
    return {"official": overall, "strict": overall, "d_pot": overall}


def test_runs_that_number_elements_have_the_score_of_the_nearest_element_beside_them():
    """It is no ceiling of a family with another language, and the first run need not have it."""
    shared = {"most_frequent_action": scored(20.0), "blind_ceiling": scored(30.0)}
    runs = [
        with_metrics("phone_vlm, no plan", **shared),
        with_metrics("text, no plan", **shared, nearest_element=scored(97.0)),
    ]
    found = baselines(runs)
    assert set(found) == {"most_frequent_action", "blind_ceiling", "text, nearest_element"}
    assert found["text, nearest_element"]["strict"]["mean"] == 97.0


def test_a_kind_that_one_seed_alone_predicts_is_counted_in_the_mean():
    first = {"gold": {"tap": 80.0}, "predicted": {"tap": 90.0}}
    second = {"gold": {"tap": 80.0, "wait": 0.0}, "predicted": {"tap": 70.0, "wait": 10.0}}
    runs = [with_metrics("text, d_pot", trained={"kinds": one}) for one in (first, second)]
    assert kinds(runs)["predicted"] == {"tap": 80.0, "wait": 5.0}
