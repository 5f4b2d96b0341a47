"""Offline evaluation, with an agent that needs no model."""

import json
from dataclasses import dataclass, replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.agents import Answer
from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.shards import ShardWriter, write_manifest
from vlm_agent.episodes import SUBSETS, Action, Episode, Step
from vlm_agent.evaluation import offline
from vlm_agent.evaluation.offline import Benchmark, evaluate, read_groups

LANGUAGE = BinnedLanguage()


@dataclass(frozen=True)
class Senses:
    grey: bool = False
    language: BinnedLanguage = LANGUAGE


@dataclass
class KnowingAgent:
    """Right wherever it has eyes and memory."""

    sentences: Senses = Senses()
    remember: bool = True

    def answer_episode(self, episode):
        if self.sentences.grey or not self.remember:
            return [Answer("nothing", None) for _ in episode.steps]
        return [Answer("as shown", step.action) for step in episode.steps]


@pytest.fixture
def write_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(offline.VlmAgent, "from_run", lambda run, bf16: KnowingAgent())

    def write(splits, count=4):
        files = []
        for subset in SUBSETS[:2]:
            shard = f"{subset}/{subset}.parquet"
            with ShardWriter(tmp_path / "shards" / shard) as writer:
                for number in range(count):
                    writer.write(_episode(f"{subset}-{number}", subset), splits[number % len(splits)])
            files.append({"shard": shard, "subset": subset, "episodes_written": count})
        write_manifest(tmp_path / "shards", {"files": files})
        return tmp_path / "shards"

    return write


def _episode(episode_id, subset):
    screen = np.zeros((40, 20, 3), np.uint8)
    actions = (Action.tap(0.5, 0.5), Action.complete())
    return Episode(episode_id, subset, f"do {episode_id}", tuple(Step(screen, action) for action in actions))


def _evaluate(shards, output, **options):
    said = StringIO()
    benchmark = Benchmark(shards, "test", **options.pop("benchmark", {}))
    scores = evaluate(output, benchmark, output, Console(file=said, width=100), **options)
    return scores, said.getvalue()


def test_the_agent_its_controls_and_what_needs_no_model_are_scored(write_shards, tmp_path):
    shards, output = write_shards(["train", "test"]), tmp_path / "out"
    scores, said = _evaluate(shards, output, benchmark={"groups": {"memory_goals": ["general-1"]}})
    assert list(scores) == ["trained", "grey_screens", "no_history", "most_frequent_action", "blind_ceiling"]
    assert scores["trained"]["official"]["overall"]["partial_match"] == 100
    assert scores["trained"]["official"]["memory_goals"]["episodes"] == 1
    assert scores["grey_screens"]["official"]["overall"]["partial_match"] == 0
    assert scores["most_frequent_action"]["strict"]["overall"]["partial_match"] == 50
    assert json.loads((output / "metrics.json").read_text()) == scores
    assert {path.name for path in output.iterdir()} >= {"report.html", "predictions_no_history.parquet"}
    assert "no history" in said


def test_controls_can_be_left_out(write_shards, tmp_path):
    scores, _ = _evaluate(write_shards(["train", "test"]), tmp_path / "out", controls=False)
    assert list(scores) == ["trained", "most_frequent_action", "blind_ceiling"]


def test_without_a_train_split_no_action_is_called_the_most_frequent(write_shards, tmp_path):
    scores, said = _evaluate(write_shards(["test"]), tmp_path / "out", controls=False)
    assert list(scores) == ["trained", "blind_ceiling"]
    assert "no train split" in said


def test_a_limit_spreads_over_the_split(write_shards, tmp_path):
    scores, _ = _evaluate(write_shards(["test"]), tmp_path / "out", controls=False, benchmark={"limit": 2})
    assert scores["trained"]["official"]["overall"]["subsets"] == list(SUBSETS[:2])


def test_a_limit_beyond_the_split_takes_all_of_it():
    assert Benchmark("shards", "test", limit=9).chosen(3) == [0, 1, 2]
    assert Benchmark("shards", "test", limit=2).chosen(0) == []


def test_an_empty_split_is_an_error(write_shards, tmp_path):
    with pytest.raises(DatasetError, match="no episode in split test"):
        _evaluate(write_shards(["train"]), tmp_path / "out")


@pytest.mark.parametrize(("content", "words"), [("{", "is no JSON"), ("[]", "map each group"), ('{"a": 1}', "list of")])
def test_groups_of_another_shape_are_named(tmp_path, content, words):
    path = tmp_path / "groups.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=words):
        read_groups(path)


def test_the_controls_share_the_agent_s_model():
    agents = dict(offline._agents(KnowingAgent(), controls=True))
    assert agents["grey_screens"] == replace(agents["trained"], sentences=Senses(grey=True))
    assert agents["no_history"] == replace(agents["trained"], remember=False)
