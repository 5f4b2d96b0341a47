import json
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_episodes import assert_same_episode, made_episode

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.shard_schema import IN_STEPS
from vlm_agent.datasets.shards import ShardDataset, ShardWriter, write_manifest
from vlm_agent.episodes import Action

SHARDS = ("general/a.parquet", "install/b.parquet")
EPISODES = (
    (made_episode("1", "general"), "train"),
    (made_episode("2", "general", (Action.tap(0.1, 0.1), Action.complete()), size=(64, 32)), "test"),
    (made_episode("3", "general"), "validation"),
    (made_episode("4", "install"), "train"),
)


@pytest.fixture
def folder(tmp_path):
    entries = []
    for shard in SHARDS:
        with ShardWriter(tmp_path / shard) as writer:
            mine = [(episode, split) for episode, split in EPISODES if shard.startswith(episode.subset)]
            for episode, split in mine:
                writer.write(episode, split)
        entries.append({"shard": shard, "subset": shard.split("/")[0], "episodes_written": len(mine)})
    entries.append({"shard": None, "subset": "single", "episodes_written": 0})
    write_manifest(tmp_path, {"files": entries})
    return tmp_path


def test_episodes_come_back_identical_in_order(folder):
    dataset = ShardDataset(folder)
    assert len(dataset) == 4
    for got, (expected, _) in zip(dataset, EPISODES, strict=True):
        assert_same_episode(got, expected)
        assert got.steps[0].screenshot.flags.writeable
    assert_same_episode(dataset[-1], EPISODES[-1][0])
    with pytest.raises(IndexError):
        dataset[4]


def test_without_pixels_all_else_is_there(folder):
    dataset = ShardDataset(folder)
    for index, (expected, _) in enumerate(EPISODES):
        assert_same_episode(dataset.without_pixels(index), expected, pixels=False)


def test_ids_subsets_splits_and_sizes_are_those_of_the_episodes(folder):
    dataset = ShardDataset(folder)
    assert dataset.ids == ("1", "2", "3", "4")
    assert dataset.subsets == ("general", "general", "general", "install")
    assert dataset.splits == ("train", "test", "validation", "train")
    assert dataset.screen_sizes[1] == ((64, 32), (64, 32))
    assert len(dataset.screen_sizes[0]) == len(dataset[0])


def test_split_and_subset_choose_episodes(folder):
    assert ShardDataset(folder, split="train").ids == ("1", "4")
    assert ShardDataset(folder, subset="general").ids == ("1", "2", "3")
    assert ShardDataset(folder, "train", "general").ids == ("1",)
    assert len(ShardDataset(folder, subset="single")) == 0
    assert ShardDataset(folder, split="train")[1].id == "4"


def _ruin(path, spans):
    data = bytearray(path.read_bytes())
    for start, size in spans:
        data[start : start + size] = bytes(size)
    path.write_bytes(data)


def _chunks(path, is_wanted):
    """Where, in the file, the column chunks lie that are wanted by (row group, column)."""
    metadata = pq.read_metadata(path)
    columns = [
        metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]
    groups = [g for g in range(metadata.num_row_groups) for _ in range(metadata.num_columns)]
    return [
        (column.data_page_offset, column.total_compressed_size)
        for group, column in zip(groups, columns, strict=True)
        if is_wanted(group, column.path_in_schema)
    ]


def test_one_episode_is_read_without_the_bytes_of_the_others(folder):
    path = folder / SHARDS[0]
    dataset = ShardDataset(folder)
    _ruin(path, _chunks(path, lambda group, _: group != 1))
    assert_same_episode(dataset[1], EPISODES[1][0])
    with pytest.raises(DatasetError, match=r"a\.parquet: row group 0 cannot be read"):
        dataset[0]


def test_columns_are_read_without_the_bytes_of_the_pixels(folder):
    path = folder / SHARDS[0]
    _ruin(path, _chunks(path, lambda _, column: "screenshot" in column))
    dataset = ShardDataset(folder)
    for index, (expected, _) in enumerate(EPISODES):
        assert_same_episode(dataset.without_pixels(index), expected, pixels=False)
    assert dataset.table([IN_STEPS + "height"]).num_rows == 4


def test_a_flipped_byte_in_the_pixels_is_noticed(folder):
    path = folder / SHARDS[0]
    ((start, size),) = _chunks(path, lambda group, column: group == 0 and column.endswith("screenshot.bytes"))
    _ruin(path, [(start + size // 2, 1)])
    with pytest.raises(DatasetError, match="cannot be read"):
        ShardDataset(folder)[0]


def test_the_schema_is_what_the_design_says(folder):
    metadata = pq.read_metadata(folder / SHARDS[0])
    assert metadata.num_row_groups == metadata.num_rows == 3
    assert {metadata.row_group(0).column(c).compression for c in range(metadata.num_columns)} == {"ZSTD"}


def test_load_dataset_shows_the_screens_as_pictures(folder, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    files = [str(folder / shard) for shard in SHARDS]
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.features["steps"].feature["screenshot"] == datasets.Image()
    for row, (expected, split) in zip(loaded, EPISODES, strict=True):
        assert (row["episode_id"], row["split"]) == (expected.id, split)
        for struct, step in zip(row["steps"], expected.steps, strict=True):
            assert np.array_equal(np.array(struct["screenshot"]), step.screenshot)
            assert struct["action_kind"] == step.action.kind
            assert struct["touch_yx"] == np.asarray(step.action.touch_yx, np.float32).tolist()


def _last_id(dataset):
    return dataset[len(dataset) - 1].id


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read_the_same(folder, method):
    dataset = ShardDataset(folder)
    assert_same_episode(dataset[0], EPISODES[0][0])
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_last_id, [dataset] * 4).get(timeout=60) == ["4"] * 4


def test_threads_read_the_same(folder):
    dataset = pickle.loads(pickle.dumps(ShardDataset(folder)))  # noqa: S301  our own bytes
    with ThreadPoolExecutor(8) as pool:
        ids = [episode.id for episode in pool.map(dataset.__getitem__, [0, 1, 2, 3] * 10)]
    assert ids == ["1", "2", "3", "4"] * 10


def test_the_same_episodes_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        with ShardWriter(tmp_path / name) as writer:
            writer.write(EPISODES[0][0], "train")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_shard_that_was_replaced_is_read_anew(folder):
    assert ShardDataset(folder)[0].id == "1"
    with ShardWriter(folder / SHARDS[0]) as writer:
        for id_ in ("5", "6", "7"):
            writer.write(made_episode(id_, "general"), "test")
    assert ShardDataset(folder).ids == ("5", "6", "7", "4")


def test_a_shard_appears_only_when_complete(tmp_path):
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path / "a.parquet") as writer:
        writer.write(EPISODES[0][0], "train")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_manifest_is_refused(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(DatasetError, match=r"has no manifest\.json.*did not finish"):
        ShardDataset(folder)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ('{"schema_version": 99, "files": []}', "schema version 99, this program reads 1"),
        ("{", "is not a manifest"),
        ("[]", "is not a manifest"),
        ("{}", "is not a manifest"),
        ('{"schema_version": 1}', "is not a manifest"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(folder, manifest, reason):
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(DatasetError, match=reason):
        ShardDataset(folder)


def test_a_shard_that_is_not_what_the_manifest_says_is_refused(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][0]["episodes_written"] = 5
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="has 3 episodes where the manifest says 5"):
        ShardDataset(folder)
    (folder / SHARDS[0]).unlink()
    with pytest.raises(DatasetError, match="in the manifest but not on disk"):
        ShardDataset(folder)


@pytest.mark.parametrize(("name", "value"), [("split", "val"), ("subset", "shopping")])
def test_a_split_or_subset_that_cannot_exist_is_refused(folder, name, value):
    with pytest.raises(DatasetError, match=f"{name} '{value}' does not exist; there are"):
        ShardDataset(folder, **{name: value})
