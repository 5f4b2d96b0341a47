"""Offline evaluation, with an agent that needs no model."""

from dataclasses import replace
from io import StringIO

import pytest
from helpers.agents.knowing_agent import Knowing, KnowingAgent, write_shards
from pydantic import ValidationError
from rich.console import Console

from vlm_agent.agents import Answer
from vlm_agent.agents.agent import Diagnostics
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.plan import read_plan
from vlm_agent.evaluation.offline.run import evaluate
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.files import read_checked


def _evaluate(shards, output, **options):
    printed = StringIO()
    benchmark = Benchmark(shards=shards, split="test", **options.pop("benchmark", {}))
    scores = evaluate(Knowing(folder=shards), benchmark, output, Console(file=printed, width=100), **options)
    return scores, printed.getvalue()


def test_the_agent_its_controls_and_the_baselines_without_a_model_are_scored(tmp_path):
    shards, output = write_shards(tmp_path / "shards", ["train", "test"]), tmp_path / "out"
    scores, printed = _evaluate(shards, output, benchmark={"groups": {"memory_goals": ["general-1"]}})
    assert list(scores) == ["trained", "grey_screens", "no_history", "most_frequent_action", "blind_ceiling"]
    assert scores["trained"]["official"]["overall"]["partial_match"] == 100
    assert scores["trained"]["official"]["memory_goals"]["episodes"] == 1
    assert scores["grey_screens"]["official"]["overall"]["partial_match"] == 0
    assert scores["most_frequent_action"]["strict"]["overall"]["partial_match"] == 50
    assert read_checked(output / "metrics.json", "") == scores
    assert {path.name for path in output.iterdir()} >= {"report.html", "predictions_no_history.parquet"}
    assert "no history" in printed


def test_with_a_dialect_of_aitz_its_table_is_printed_and_reported(tmp_path):
    shards, output = write_shards(tmp_path / "shards", ["train", "test"]), tmp_path / "out"
    benchmark = {"dialect": "agentcpm", "further_dialects": ["coat_point"]}
    scores, printed = _evaluate(shards, output, benchmark=benchmark)
    assert list(scores["trained"]["scorers"]) == ["official", "strict", "agentcpm", "coat_point"]
    assert scores["trained"]["aitz"]["coat_point"]["success"]["value"] == 100
    assert "AitZ, %, by coat_point" in printed and "hit rate" in printed
    assert 'data-kind="aitz"' in (output / "report.html").read_text()
    assert read_plan(output).benchmark.scorers == ("official", "strict", "agentcpm", "coat_point")
    again, _ = _evaluate(shards, tmp_path / "other", controls=False)
    assert "aitz" not in again["trained"]
    assert 'data-kind="aitz"' not in (tmp_path / "other/report.html").read_text()


def test_the_box_that_an_answer_names_is_kept(tmp_path, monkeypatch):
    box = (0.1, 0.2, 0.3, 0.4)
    monkeypatch.setattr(KnowingAgent, "_answer", lambda self, episode, action: Answer("box", action, box=box))
    _evaluate(write_shards(tmp_path / "shards", ["test"]), tmp_path / "out", controls=False)
    assert {row.box for row in read_predictions(tmp_path / "out/predictions.parquet")} == {box}


def test_controls_can_be_left_out(tmp_path):
    shards = write_shards(tmp_path / "shards", ["train", "test"])
    scores, _ = _evaluate(shards, tmp_path / "out", controls=False)
    assert list(scores) == ["trained", "most_frequent_action", "blind_ceiling"]


def test_single_controls_can_be_chosen(tmp_path):
    shards = write_shards(tmp_path / "shards", ["train", "test"])
    scores, _ = _evaluate(shards, tmp_path / "out", controls=["no_history"])
    assert list(scores) == ["trained", "no_history", "most_frequent_action", "blind_ceiling"]


@pytest.mark.parametrize("name", ["shuffled_results", "blue_screens"])  # this agent reads no results
def test_a_control_that_the_agent_lacks_is_an_error_before_anything_is_written(name, tmp_path):
    shards = write_shards(tmp_path / "shards", ["test"])
    with pytest.raises(UserError, match=f"control '{name}' .* choose from grey_screens, no_history$"):
        _evaluate(shards, tmp_path / "out", controls=["no_history", name])
    assert not (tmp_path / "out").exists()


def test_every_run_records_its_data_and_the_share_of_answers_from_the_prefill(tmp_path):
    shards, output = write_shards(tmp_path / "shards", ["train", "test"]), tmp_path / "out"
    benchmark = {"name": "Small world", "limit": 3, "dialect": "official_text"}
    scores, printed = _evaluate(shards, output, benchmark=benchmark)
    about = {"benchmark": "Small world", "split": "test", "episodes": 3, "episodes_in_split": 4}
    assert scores["trained"]["about"] == about | {"settled_by_prefill": 1}
    assert scores["grey_screens"]["about"]["settled_by_prefill"] == 1
    assert scores["blind_ceiling"]["about"] == about
    assert "official_text" in scores["trained"]
    assert "Small world" in printed
    assert "Small world" in (output / "report.html").read_text()


def test_without_a_train_split_the_most_frequent_action_is_omitted(tmp_path):
    scores, printed = _evaluate(write_shards(tmp_path / "shards", ["test"]), tmp_path / "out", controls=False)
    assert list(scores) == ["trained", "blind_ceiling"]
    assert "no train split" in " ".join(printed.split())


def test_a_limit_spreads_over_the_split(tmp_path):
    shards = write_shards(tmp_path / "shards", ["test"])
    scores, _ = _evaluate(shards, tmp_path / "out", controls=False, benchmark={"limit": 2})
    assert scores["trained"]["official"]["overall"]["subsets"] == list(SUBSETS[:2])


def test_a_limit_beyond_the_split_takes_all_of_it():
    assert Benchmark(shards="shards", split="test", limit=9).episode_indices("abc", "xyz") == [0, 1, 2]
    assert Benchmark(shards="shards", split="test", limit=2).episode_indices("", "") == []


def test_episodes_are_drawn_by_seed_and_id_in_each_subset():
    ids, subsets = [str(number) for number in range(40)], ["general", "install", "single", "single"] * 10
    chosen = {
        count: Benchmark(shards="s", per_subset=count, seed=1).episode_indices(ids, subsets) for count in (2, 5, 99)
    }
    assert sorted(subsets[index] for index in chosen[2]) == ["general"] * 2 + ["install"] * 2 + ["single"] * 2
    assert chosen[99] == list(range(40))
    assert set(chosen[2]) < set(chosen[5])
    assert chosen[2] == sorted(chosen[2])
    reverse = Benchmark(shards="s", per_subset=2, seed=1).episode_indices(ids[::-1], subsets[::-1])
    assert {39 - index for index in reverse} == set(chosen[2])
    other = Benchmark(shards="s", per_subset=5, seed=2).episode_indices(ids, subsets)
    assert other != chosen[5]
    single = Benchmark(shards="s", per_subset=3, subsets=["single"]).episode_indices(ids, subsets)
    assert [subsets[index] for index in single] == ["single"] * 3
    with pytest.raises(DatasetError, match="no episode of subset 'web'"):
        Benchmark(shards="s", subsets=["web"]).episode_indices(ids, subsets)


def test_the_episodes_of_a_seed_stay_the_same():
    """Scores on a draw are comparable only if every version draws the same episodes."""
    ids, subsets = [f"general/{number}" for number in range(10)], ["general"] * 10
    drawn = {seed: Benchmark(shards="s", per_subset=3, seed=seed).episode_indices(ids, subsets) for seed in (0, 1)}
    assert drawn == {0: [4, 6, 8], 1: [0, 2, 7]}


def test_an_empty_split_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match="no episode in split test"):
        _evaluate(write_shards(tmp_path / "shards", ["train"]), tmp_path / "out")


def test_an_unknown_dialect_is_an_error_before_the_first_prediction(tmp_path):
    shards = write_shards(tmp_path / "shards", ["test"])
    with pytest.raises(ValidationError, match="dialect 'offical' is unknown"):
        _evaluate(shards, tmp_path / "out", benchmark={"dialect": "offical"})
    assert not Knowing(folder=shards).knower.asked()


def test_demonstrated_actions_that_the_agent_cannot_write_are_counted_and_listed(tmp_path):
    class Deaf(Knowing):
        def load(self):
            knower = super().load()

            class DeafAgent(type(knower)):
                def answer_episodes(self, episodes):
                    return [
                        [replace(answer, diagnostics=Diagnostics(unwritable=True)) for answer in answers]
                        for answers in super().answer_episodes(episodes)
                    ]

            return DeafAgent(knower.diary)

    shards, printed = write_shards(tmp_path / "shards", ["test"]), StringIO()
    benchmark = Benchmark(shards=shards, split="test", limit=1)
    scores = evaluate(
        Deaf(folder=shards), benchmark, tmp_path / "out", Console(file=printed, width=100), controls=False
    )
    assert scores["trained"]["about"]["unwritable_actions"]["count"] == 2
    assert "episode general-0 step 0: " in scores["trained"]["about"]["unwritable_actions"]["first"][0]
    assert "cannot write 2 demonstrated actions" in printed.getvalue()
