"""The numbers of a comparison: which steps divide the agents, and what a cell of the table holds."""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from helpers.tiny import episode, write_shards

from vlm_agent.datasets.shards.dataset import manifest_digest
from vlm_agent.evaluation.comparison import results
from vlm_agent.evaluation.comparison.page import rows_of
from vlm_agent.evaluation.comparison.results import _costs, block_of, dividing_steps
from vlm_agent.evaluation.comparison.settings import Comparison, Contestant
from vlm_agent.evaluation.comparison.stages import Layout, Stages

IDS = np.array(["a", "b"])
EPISODE, STEP = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])


def judged(*right: int) -> SimpleNamespace:
    return SimpleNamespace(
        episode_ids=IDS,
        episode=EPISODE,
        step=STEP,
        right={"strict": np.array(right, bool)},
        row_of=lambda episode, step: int(np.flatnonzero((IDS[EPISODE] == episode) & (step == STEP))[0]),
    )


def test_the_steps_that_divide_the_agents_most_come_first_one_an_episode():
    agents = {
        "one": judged(1, 1, 0, 1),
        "two": judged(1, 0, 0, 1),
        "three": judged(1, 0, 1, 1),
        "four": judged(1, 1, 0, 1),
    }
    found = dividing_steps(agents)
    assert [(row["episode"], row["step"]) for row in found] == [("a", 1), ("b", 0)]
    assert found[0]["right"] == {"one": True, "two": False, "three": False, "four": True}
    assert len(dividing_steps(agents, count=1)) == 1


def test_further_steps_of_an_episode_come_after_one_of_each_episode():
    agents = {
        "one": judged(1, 1, 1, 1),
        "two": judged(0, 0, 1, 0),
        "three": judged(0, 0, 1, 1),
        "four": judged(0, 1, 1, 1),
    }
    found = [(row["episode"], row["step"]) for row in dividing_steps(agents)]
    assert found == [("a", 1), ("b", 1), ("a", 0)]
    assert [(row["episode"], row["step"]) for row in dividing_steps(agents, count=2)] == found[:2]


def test_among_equals_steps_are_drawn_at_random_whatever_the_order_of_the_files():
    """Sorted ids are sorted subsets in some sources: the first ones would be no sample."""
    ids = np.array([f"e{number:02}" for number in range(40)])

    def one(right, order):
        return SimpleNamespace(
            episode_ids=ids[order],
            episode=np.arange(40),
            step=np.zeros(40, int),
            right={"strict": np.full(40, right)},
            row_of=lambda episode, step: int(np.flatnonzero(ids[order] == episode)[0]),
        )

    found = [
        [row["episode"] for row in dividing_steps({"one": one(True, order), "two": one(False, order)}, count=10)]
        for order in (np.arange(40), np.arange(40)[::-1])
    ]
    assert found[0] == found[1]
    assert found[0] != sorted(ids)[:10]


def test_steps_that_all_agents_get_right_or_wrong_divide_nobody():
    assert dividing_steps({"one": judged(1, 1, 0, 0), "two": judged(1, 1, 0, 0)}) == []
    assert dividing_steps({"one": judged(1, 1, 0, 0)}) == []


def test_costs_of_a_step_are_those_of_recorded_steps_and_its_seconds_those_on_a_phone():
    scores = {"cost_a_step": {"tokens_read": 200.0, "tokens_written": 10.0, "calls": 2.0, "seconds": 99.0}}
    online = {"cost": {"seconds_a_step": 0.25}}
    assert _costs(scores, online) == {
        "seconds a step": 0.25,
        "tokens read": 200.0,
        "tokens written": 10.0,
        "calls": 2.0,
    }
    assert set(_costs({}, None).values()) == {None}


def content(*official: float) -> dict:
    rows = {
        str(seed): {
            "figures": {"official": value},
            "intervals": {"official": [value - 1, value + 1]},
            "controls": {},
            "costs": {"seconds a step": 0.5},
        }
        for seed, value in enumerate(official)
    }
    agents = {"one": {"name": "One", "block": "trained", "kind": "trained", "rows": rows}}
    return {"figures": ["official", "success"], "agents": agents}


def test_one_seed_shows_its_interval_and_several_their_mean_and_range():
    (row,) = rows_of(content(50.0), "trained")
    assert row.figures["official"] == {"value": 50.0, "low": 49.0, "high": 51.0}
    (row,) = rows_of(content(50.0, 60.0), "trained")
    assert row.figures["official"] == {"value": 55.0, "low": 50.0, "high": 60.0}
    assert row.costs["seconds a step"] == "0.50"
    assert row.figures["success"]["value"] is None
    assert not list(rows_of(content(50.0), "prompted"))


def test_a_finished_run_of_other_data_is_not_among_the_agents_trained_on_the_demonstrations(tmp_path):
    write_shards(tmp_path / "shards", [episode()])
    stages = SimpleNamespace(layout=Layout(tmp_path / "out", user_shards=tmp_path / "shards"))
    for name, digest in (("here", manifest_digest(tmp_path / "shards")), ("elsewhere", "ab"), ("unknown", None)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"figures": {}, "manifest_sha256": digest}))
    found = {
        name: block_of(stages, name, Contestant(name=name, run=tmp_path / name), [0])
        for name in ("here", "elsewhere", "unknown")
    }
    assert found == {"here": "trained", "elsewhere": "elsewhere", "unknown": "elsewhere"}
    assert block_of(stages, "x", Contestant(name="x", recipe=Path("recipe.yaml")), [0]) == "trained"
    assert block_of(stages, "x", Contestant(name="x", agent=Path("agent.yaml")), [0]) == "prompted"


def test_agents_are_paired_seed_by_seed_and_one_without_seeds_with_each(monkeypatch):
    shares = {"partial_match": {"difference": 1.0, "interval": None}}
    compared = []
    monkeypatch.setattr(
        results, "compare_runs", lambda *two, scorers: compared.append(two) or defaultdict(lambda: {"overall": shares})
    )
    agents = {key: {"name": key, "recipe": f"{key}.yaml"} for key in "ab"} | {"c": {"name": "c", "agent": "c.yaml"}}
    comparison = Comparison(name="n", benchmark="b.yaml", seeds=[0, 1], sizes={"episodes": 1}, agents=agents)
    scored = {(key, seed): f"{key}{seed}" for key in "ab" for seed in (0, 1)} | {("c", 0): "c0"}
    stages = Stages(comparison, Layout(Path("out")))

    def pairs(missing=()):
        compared.clear()
        rows = list(results._pairs(stages, {key: one for key, one in scored.items() if key not in missing}))
        return list(zip(((row["first"], row["second"], row["seed"]) for row in rows), compared, strict=True))

    assert pairs() == [
        (("a", "b", 0), ("a0", "b0")),
        (("a", "b", 1), ("a1", "b1")),
        (("a", "c", 0), ("a0", "c0")),
        (("a", "c", 1), ("a1", "c0")),
        (("b", "c", 0), ("b0", "c0")),
        (("b", "c", 1), ("b1", "c0")),
    ]
    without = pairs(missing={("a", 1)})
    assert [owners for owners, _ in without] == [("a", "b", 0), ("a", "c", 0), ("b", "c", 0), ("b", "c", 1)]
