import numpy as np
from helpers.data.made_episodes import made_episode

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.statistics.summary import GRID, count_gestures, heat_map, read_columns
from vlm_agent.episodes import Action


def test_a_point_falls_into_the_cell_it_lies_in_and_edges_belong_to_the_last_one():
    found = heat_map(np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0.999, 0.0]], np.float32))
    assert {tuple(cell) for cell in np.argwhere(found).tolist()} == {
        (0, 0),
        (GRID[0] - 1, GRID[1] - 1),
        (GRID[0] // 2, GRID[1] // 2),
        (GRID[0] - 1, 0),
    }


def test_no_point_makes_an_empty_map():
    assert heat_map(np.zeros((0, 2), np.float32)).shape == GRID
    assert not heat_map(np.zeros((0, 2), np.float32)).any()


def test_taps_and_swipes_are_counted_apart_and_nothing_else_is(tmp_path):
    swipe = Action.swipe((0.8, 0.5), (0.2, 0.5))
    actions = (Action.tap(0.1, 0.9), Action.tap(0.1, 0.9), swipe, Action.press("back"), Action.complete())
    with ShardWriter(tmp_path / "a.parquet") as writer:
        writer.write(made_episode(actions=actions), "train")
    write_manifest(tmp_path, {"files": [{"shard": "a.parquet", "subset": "general", "episodes_written": 1}]})
    found = count_gestures(read_columns(ShardDataset(tmp_path)))["general"]
    assert found.taps.sum() == found.taps[6, 27] == 2
    assert found.swipes == {"up": 1, "down": 0, "left": 0, "right": 0}
