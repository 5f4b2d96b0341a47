"""The index agrees with the shards, and shards are not read where the index suffices."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.data.made_episodes import made_episode

from vlm_agent.datasets.shards.dataset import ShardDataset, read_index
from vlm_agent.datasets.shards.schema import IN_STEPS, INDEX, INDEXED
from vlm_agent.datasets.shards.writer import ShardWriter, write_index, write_manifest
from vlm_agent.errors import DatasetError

SHARDS = {"general/a.parquet": ("1", "2", "3"), "single/b.parquet": ("4", "5")}


@pytest.fixture
def folder(tmp_path):
    for shard, ids in SHARDS.items():
        with ShardWriter(tmp_path / shard) as writer:
            for id_ in ids:
                writer.write(made_episode(id_, shard.partition("/")[0]), "test" if id_ == "2" else "train")
    files = [{"shard": shard, "episodes_written": len(ids)} for shard, ids in SHARDS.items()]
    write_manifest(tmp_path, {"files": [*files, {"shard": None, "episodes_written": 0}]})
    return tmp_path


def test_it_has_every_episode_with_its_place(folder):
    rows = read_index(folder, ["episode_id", "split", "shard", "row_group"]).to_pylist()
    assert [(row["shard"], row["row_group"], row["episode_id"]) for row in rows] == [
        (shard, number, id_) for shard, ids in SHARDS.items() for number, id_ in enumerate(ids)
    ]
    assert [row["split"] for row in rows] == ["train", "test", "train", "train", "train"]


def test_what_is_indexed_is_read_without_a_shard(folder):
    by_shard = ShardDataset(folder).table([*INDEXED, "steps.list.element.activity"])
    for shard in SHARDS:
        (folder / shard).unlink()
    dataset = ShardDataset(folder)
    assert len(dataset) == 5
    assert dataset.screen_sizes[1] == ((40, 24),) * len(made_episode("2"))
    table = dataset.table(INDEXED)
    for row, expected in zip(table.to_pylist(), by_shard.to_pylist(), strict=True):
        for step in expected["steps"]:
            del step["activity"]
        assert row == expected
    assert ShardDataset(folder, split="test").table(["episode_id"])["episode_id"].to_pylist() == ["2"]
    assert ShardDataset(folder, subset="single").ids == ("4", "5")
    with pytest.raises(DatasetError, match="in the index but not on disk"):
        dataset[0]


def test_more_episodes_than_a_row_group_of_the_index_holds(folder, monkeypatch):
    monkeypatch.setattr("vlm_agent.datasets.shards.writer._INDEX_ROWS_A_GROUP", 2)
    write_index(folder, [(shard, len(ids)) for shard, ids in SHARDS.items()])
    assert ShardDataset(folder).ids == ("1", "2", "3", "4", "5")


def test_a_folder_without_episodes_has_an_index_of_none(tmp_path):
    write_manifest(tmp_path, {"files": []})
    dataset = ShardDataset(tmp_path)
    assert len(dataset) == 0 and dataset.ids == () and len(dataset.screen_sizes) == 0
    assert dataset.table([IN_STEPS + "touch_yx"]).num_rows == 0


def test_a_missing_or_damaged_index_is_named_with_the_remedy(folder):
    data = bytearray((folder / INDEX).read_bytes())
    (folder / INDEX).unlink()
    with pytest.raises(DatasetError, match=r"index\.parquet is missing.*--finish"):
        ShardDataset(folder)
    (folder / INDEX).write_bytes(data[: len(data) // 2])
    with pytest.raises(DatasetError, match=r"index\.parquet.*cannot be read.*move it away"):
        ShardDataset(folder)


def test_a_flipped_bit_in_the_index_is_noticed_or_without_effect(folder):
    expected = ShardDataset(folder).ids
    data = (folder / INDEX).read_bytes()
    rng = np.random.default_rng(0)
    noticed = 0
    for position in rng.integers(0, len(data), 60):
        damaged = bytearray(data)
        damaged[position] ^= 1
        (folder / INDEX).write_bytes(damaged)
        try:
            assert ShardDataset(folder).ids == expected
        except DatasetError:
            noticed += 1
    assert noticed > 10


def test_another_parquet_file_in_place_of_the_index_is_named_with_the_remedy(folder):
    pq.write_table(pa.table({"episode_id": ["1"]}), folder / INDEX)
    with pytest.raises(DatasetError, match=r"index\.parquet.*move it away"):
        read_index(folder, ["episode_id"])
