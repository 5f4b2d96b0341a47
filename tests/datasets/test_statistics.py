import numpy as np
import pytest
from made_episodes import ACTIONS, made_episode
from rich.console import Console

from vlm_agent.datasets.shards import ShardDataset, ShardWriter, write_manifest
from vlm_agent.datasets.statistics import summarise
from vlm_agent.episodes import ACTION_NAMES, TAP_DISTANCE, Action


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
    statistics = summarise(ShardDataset(folder))
    assert (statistics.episodes(), statistics.steps()) == (3, 14)
    assert (statistics.episodes("general", "train"), statistics.steps("general", "train")) == (1, 8)
    assert (statistics.episodes(split="train"), statistics.steps(split="train")) == (2, 12)
    assert statistics.subsets == ["general", "single"]
    assert statistics.length_summary() == (2, 4.0, pytest.approx(14 / 3), 8)
    assert statistics.length_summary("single") == (4, 4.0, 4.0, 4)
    assert statistics.screen_sizes == {(40, 24): 10, (64, 32): 4}


def test_the_action_mix_counts_every_kind(folder):
    statistics = summarise(ShardDataset(folder))
    assert [statistics.action_share(name, "single") for name in ("tap", "back", "complete", "type")] == [50, 25, 25, 0]
    assert statistics.action_share("tap") == pytest.approx(100 * 4 / 14)
    assert sum(statistics.action_share(name) for name in ACTION_NAMES) == pytest.approx(100)


def test_only_the_chosen_split_is_counted(folder):
    statistics = summarise(ShardDataset(folder, split="test"))
    assert (statistics.episodes(), statistics.steps()) == (1, 2)


def test_an_empty_choice_has_no_numbers(folder):
    statistics = summarise(ShardDataset(folder, split="validation"))
    assert (statistics.episodes(), statistics.steps(), statistics.length_summary()) == (0, 0, (0, 0.0, 0.0, 0))


def test_gestures_are_named_as_the_actions_name_themselves(tmp_path):
    rng = np.random.default_rng(0)
    starts = rng.random((300, 2)) * 0.5
    ends = starts + rng.normal(size=(300, 2)) * TAP_DISTANCE * 0.7
    actions = tuple(
        Action.swipe(tuple(a), tuple(b)) for a, b in zip(starts.tolist(), np.clip(ends, 0, 1).tolist(), strict=True)
    )
    with ShardWriter(tmp_path / "a.parquet") as writer:
        writer.write(made_episode(actions=actions, size=(2, 2)), "train")
    write_manifest(tmp_path, {"files": [{"shard": "a.parquet", "subset": "general", "episodes_written": 1}]})
    dataset = ShardDataset(tmp_path)
    names = [step.action.name for step in dataset.without_pixels(0).steps]
    assert summarise(dataset).actions["general"] == {name: names.count(name) for name in set(names)}
    assert set(names) == {"tap", "swipe"}


def test_the_tables_fit_a_terminal(folder):
    console = Console(width=80)
    with console.capture() as capture:
        summarise(ShardDataset(folder)).print(console)
    text = capture.get()
    for words in ("Episodes / steps", "1 / 8", "impossible", "28.6", "64 × 32", "median"):
        assert words in text
    assert "…" not in text
