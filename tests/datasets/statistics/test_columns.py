import numpy as np
import pytest
from helpers.data.made_episodes import ACTIONS, made_episode

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.statistics.summary import read_columns
from vlm_agent.episodes import ACTION_NAMES, Action
from vlm_agent.geometry import DIRECTIONS, TAP_DISTANCE


def _dataset(folder, episodes) -> ShardDataset:
    files = []
    for subset in sorted({episode.subset for episode in episodes}):
        its = [episode for episode in episodes if episode.subset == subset]
        with ShardWriter(folder / f"{subset}.parquet") as writer:
            for episode in its:
                writer.write(episode, "train")
        files.append({"shard": f"{subset}.parquet", "subset": subset, "episodes_written": len(its)})
    write_manifest(folder, {"files": files})
    return ShardDataset(folder)


@pytest.fixture
def gestures():
    """Many of them near the distance that parts taps from swipes, and some along one axis exactly."""
    rng = np.random.default_rng(0)
    starts = rng.random((300, 2)) * 0.5
    ends = np.clip(starts + rng.normal(size=(300, 2)) * TAP_DISTANCE * 0.7, 0, 1)
    pairs = [(tuple(a), tuple(b)) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    pairs += [
        ((0.5, 0.5), (0.25, 0.25)),
        ((0.5, 0.5), (0.75, 0.25)),
        ((0.5, 0.5), (0.5, 0.1)),
        ((0.9, 0.5), (0.1, 0.5)),
    ]
    return tuple(Action.swipe(*pair) for pair in pairs)


def test_gestures_are_named_and_directed_as_the_actions_say_themselves(gestures, tmp_path):
    dataset = _dataset(tmp_path, [made_episode(actions=gestures, size=(2, 2))])
    actions = [step.action for step in dataset.without_pixels(0).steps]
    columns = read_columns(dataset)
    assert [ACTION_NAMES[code] for code in columns.action] == [action.name for action in actions]
    directions = [
        DIRECTIONS[code] if is_swipe else None
        for code, is_swipe in zip(columns.direction, columns.steps_that("swipe"), strict=True)
    ]
    assert directions == [action.direction for action in actions]
    assert set(directions) == {*DIRECTIONS, None}


def test_every_kind_of_action_keeps_its_name_and_its_fields(tmp_path):
    dataset = _dataset(tmp_path, [made_episode(actions=ACTIONS)])
    columns = read_columns(dataset)
    assert [ACTION_NAMES[code] for code in columns.action] == [action.name for action in ACTIONS]
    assert list(columns.actions()) == [step.action for step in dataset.without_pixels(0).steps]


def test_steps_know_the_subset_of_their_episode(tmp_path):
    episodes = [made_episode("1", "single", ACTIONS[:3], (64, 32)), made_episode("2", "general"), made_episode("3")]
    columns = read_columns(_dataset(tmp_path, episodes))
    assert columns.subsets == ["general", "single"]
    assert columns.lengths.tolist() == [8, 8, 3]
    assert columns.steps_of("single").tolist() == [False] * 16 + [True] * 3
    assert columns.height[columns.steps_of("single")].tolist() == [64] * 3
    assert columns.text.to_pylist()[2] == ACTIONS[2].text


def test_no_pixel_is_asked_for(tmp_path, monkeypatch):
    dataset = _dataset(tmp_path, [made_episode()])
    asked = []
    read = dataset.table
    monkeypatch.setattr(dataset, "table", lambda columns, *rest: asked.extend(columns) or read(columns))
    read_columns(dataset)
    assert asked
    assert not [name for name in asked if "screenshot" in name]
