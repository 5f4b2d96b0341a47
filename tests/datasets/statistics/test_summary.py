import numpy as np
import pytest
from helpers.data.made_episodes import ACTIONS, made_episode

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.statistics.summary import Statistics, TokenBudget, read_columns, spread, summarise
from vlm_agent.episodes import ACTION_NAMES, Action


@pytest.fixture
def folder(tmp_path):
    tap, back, done = Action.tap(0.5, 0.5), Action.press("back"), Action.complete()
    episodes = {
        "general": [(made_episode("1", actions=ACTIONS), "train"), (made_episode("2", actions=(tap, done)), "test")],
        "single": [(made_episode("3", "single", (tap, tap, back, done), (64, 32)), "train")],
    }
    files = []
    for subset, pairs in episodes.items():
        with ShardWriter(tmp_path / f"{subset}.parquet") as writer:
            for episode, split in pairs:
                writer.write(episode, split)
        files.append({"shard": f"{subset}.parquet", "subset": subset, "episodes_written": len(pairs)})
    write_manifest(tmp_path, {"files": files})
    return tmp_path


def test_the_numbers_are_those_of_the_episodes(folder):
    statistics = _statistics(folder)
    assert (statistics.episodes(), statistics.steps()) == (3, 14)
    assert (statistics.episodes("general", "train"), statistics.steps("general", "train")) == (1, 8)
    assert (statistics.episodes(split="train"), statistics.steps(split="train")) == (2, 12)
    assert statistics.subsets == ["general", "single"]
    assert spread(statistics.steps_of_episodes()) == (2, 4.0, pytest.approx(14 / 3), 8)
    assert spread(statistics.steps_of_episodes("single")) == (4, 4.0, 4.0, 4)
    assert statistics.screen_sizes == {(40, 24): 10, (64, 32): 4}


def test_the_action_mix_counts_every_kind(folder):
    statistics = _statistics(folder)
    assert [statistics.action_share(name, "single") for name in ("tap", "back", "complete", "type")] == [50, 25, 25, 0]
    assert statistics.action_share("tap") == pytest.approx(100 * 4 / 14)
    assert sum(statistics.action_share(name) for name in ACTION_NAMES) == pytest.approx(100)


def test_only_the_chosen_split_is_counted(folder):
    statistics = _statistics(folder, split="test")
    assert (statistics.episodes(), statistics.steps()) == (1, 2)


def test_an_empty_choice_has_no_numbers(folder):
    statistics = _statistics(folder, split="validation")
    assert (statistics.episodes(), statistics.steps(), spread(statistics.steps_of_episodes())) == (
        0,
        0,
        (0, 0.0, 0.0, 0),
    )


def test_typed_texts_are_measured_in_characters(folder):
    statistics = _statistics(folder)
    typed = next(action.text for action in ACTIONS if action.text)
    assert statistics.typed["general"].tolist() == [len(typed)]
    assert statistics.typed["single"].tolist() == []


def test_goals_are_compared_across_splits(folder):
    statistics = _statistics(folder)
    assert list(statistics.leaks) == ["test"]
    assert (statistics.leaks["test"].goals, statistics.leaks["test"].goals_seen) == (1, 0)


def test_what_exceeds_a_budget_is_counted_and_what_fills_it_is_not():
    tokens = TokenBudget("recipe", 100, {"general": np.array([99, 100, 101]), "single": np.array([500])})
    assert (tokens.exceeding("general"), tokens.exceeding("single"), tokens.exceeding()) == (1, 1, 2)
    assert tokens.of().tolist() == [99, 100, 101, 500]


def _statistics(folder, **chosen) -> Statistics:
    return summarise(read_columns(ShardDataset(folder, **chosen)))
