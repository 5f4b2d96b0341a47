import json
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.data.made_episodes import assert_same_episode, made_episode, made_screen

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.images import IMAGE_FORMATS, ScreenFormat
from vlm_agent.datasets.shards.schema import (
    ALL_BUT_PIXELS,
    COMPRESSED,
    IN_STEPS,
    VERSION,
    decode_screen,
    episode_row,
    step_struct,
)
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.errors import DatasetError
from vlm_agent.files.png import _chunk

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
    with pytest.raises(DatasetError, match=r"a\.parquet cannot be read .* row group 0"):
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


def test_every_episode_is_one_row_group(folder):
    metadata = pq.read_metadata(folder / SHARDS[0])
    assert metadata.num_row_groups == metadata.num_rows == 3


def test_everything_but_the_pixels_is_compressed(folder):
    columns = pq.read_metadata(folder / SHARDS[0]).row_group(0)
    compression = {columns.column(c).path_in_schema: columns.column(c).compression for c in range(columns.num_columns)}
    assert compression.pop(IN_STEPS + "screenshot.bytes") == "UNCOMPRESSED"
    assert set(compression) == set(COMPRESSED)
    assert set(compression.values()) == {"ZSTD"}


def test_the_columns_without_pixels_are_all_others(folder):
    stored = {column.path for column in pq.ParquetFile(folder / SHARDS[0]).schema}
    named = {path for path in stored for name in ALL_BUT_PIXELS if path == name or path.startswith(f"{name}.")}
    assert stored - named == {IN_STEPS + "screenshot.bytes", IN_STEPS + "screenshot.path"}


def test_load_dataset_shows_the_screens_as_pictures(folder, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    files = [str(folder / shard) for shard in SHARDS]
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.features["steps"].feature["screenshot"] == datasets.Image()
    for row, (expected, split) in zip(loaded, EPISODES, strict=True):
        assert (row["episode_id"], row["split"]) == (expected.id, split)
        assert [(struct["record"], struct["offset"]) for struct in row["steps"]] == [(None, None)] * len(expected)
        for struct, step in zip(row["steps"], expected.steps, strict=True):
            assert np.array_equal(np.array(struct["screenshot"]), step.screenshot)
            assert struct["action_kind"] == step.action.kind
            assert struct["touch_yx"] == np.asarray(step.action.touch_yx, np.float32).tolist()


def _write_steps(folder, screens, steps, places):
    """One shard of one episode whose steps came from the records `places` of a file."""
    structs = [
        step_struct(step, screens.encode(step.screenshot), screens.name, number, *place)
        for number, (step, place) in enumerate(zip(steps, places, strict=True))
    ]
    with ShardWriter(folder / "single/a.parquet") as writer:
        writer.write_row(episode_row("1", "single", "train", "go", "pixel_4", 30, structs))
    write_manifest(folder, {"files": [{"shard": "single/a.parquet", "subset": "single", "episodes_written": 1}]})
    return ShardDataset(folder)


STEPS = (Step(made_screen(33, 21, 1), Action.tap(0.5, 0.25)), Step(made_screen(33, 21, 2), Action.complete()))


def test_where_in_its_file_a_step_was_is_kept(tmp_path):
    dataset = _write_steps(tmp_path, ScreenFormat(), STEPS, [(7, 2**40), (9, 2**41)])
    (steps,) = dataset.table([IN_STEPS + "record", IN_STEPS + "offset"])["steps"].to_pylist()
    assert steps == [{"record": 7, "offset": 2**40}, {"record": 9, "offset": 2**41}]
    assert_same_episode(dataset[0], Episode("1", "single", "go", STEPS, "pixel_4", 30))


def test_load_dataset_knows_where_a_step_was(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    _write_steps(tmp_path, ScreenFormat("webp"), STEPS, [(7, 2**40), (9, 2**41)])
    files = str(tmp_path / "single/a.parquet")
    (row,) = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert [(struct["record"], struct["offset"]) for struct in row["steps"]] == [(7, 2**40), (9, 2**41)]
    for struct, step in zip(row["steps"], STEPS, strict=True):
        assert np.array_equal(np.array(struct["screenshot"]), step.screenshot)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_screens_of_every_format_are_read_as_they_decode(tmp_path, name):
    screens = ScreenFormat(name)
    dataset = _write_steps(tmp_path, screens, STEPS, [(0, 0), (1, 1)])
    for got, step in zip(dataset[0].steps, STEPS, strict=True):
        assert np.array_equal(got.screenshot, decode_screen(screens.encode(step.screenshot).data))
    shot = pq.read_table(tmp_path / "single/a.parquet")["steps"].to_pylist()[0][1]["screenshot"]
    assert shot["path"] == f"1.{name}"


def test_a_downscaled_screen_is_in_the_shard_at_its_new_size(tmp_path):
    steps = (Step(made_screen(112, 84), Action.complete()),)
    dataset = _write_steps(tmp_path, ScreenFormat(max_pixels=56 * 56), steps, [(0, 0)])
    assert tuple(dataset.screen_sizes) == (((56, 28),),)
    assert dataset[0].steps[0].screenshot.shape == (56, 28, 3)


def test_the_four_texts_of_chain_of_action_thought_come_back(tmp_path):
    texts = ({}, {"screen": "a list", "think": "öffne", "action": "tap “it”", "result": ""}, {"screen": ""})
    steps = [Step(made_screen(), Action.complete(), notes=coat) for coat in texts]
    dataset = _write_steps(tmp_path, ScreenFormat(), steps, [(0, 0)] * 3)
    assert tuple(step.notes for step in dataset[0].steps) == texts
    assert tuple(step.notes for step in dataset.without_pixels(0).steps) == texts


def test_one_step_is_that_of_the_episode(folder):
    dataset = ShardDataset(folder)
    for number, expected in enumerate(EPISODES[1][0].steps):
        step = dataset.step(1, number)
        assert step.action.kind == expected.action.kind
        assert np.array_equal(step.screenshot, expected.screenshot)


@pytest.mark.parametrize("damage", [lambda png: png[:-30], lambda png: png[:-12] + _chunk(b"pHYs", b"") + png[-12:]])
def test_a_damaged_screen_is_named_by_its_number_in_the_episode(folder, damage):
    dataset = ShardDataset(folder)
    row = dataset.row(0)
    row["steps"][1]["screenshot"]["bytes"] = damage(row["steps"][1]["screenshot"]["bytes"])
    dataset.row = lambda index: row
    named = f"{folder}: episode {row['episode_id']}, step 1: the screen cannot be decoded"
    for read in (lambda: dataset[0], lambda: dataset.step(0, 1), lambda: dataset.steps(0, 1, 2)):
        with pytest.raises(DatasetError, match=named):
            read()


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


def test_a_shard_that_was_replaced_is_read_anew_and_refused_where_the_index_knows_another_episode(folder):
    dataset = ShardDataset(folder)
    assert dataset[0].id == "1"
    with ShardWriter(folder / SHARDS[0]) as writer:
        for id_ in ("5", "2", "7"):
            writer.write(made_episode(id_, "general"), "test")
    assert dataset[1].id == "2"
    with pytest.raises(DatasetError, match="has episode 5, the index 1; move it away and run"):
        dataset[0]


def test_a_shard_appears_only_when_complete(tmp_path):
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path / "a.parquet") as writer:
        writer.write(EPISODES[0][0], "train")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_manifest_is_refused(folder):
    (folder / "manifest.json").unlink()
    with pytest.raises(DatasetError, match=r"has no manifest\.json: it is not a folder of shards"):
        ShardDataset(folder)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ('{"schema_version": 99, "files": []}', f"schema version 99, this program reads {VERSION}; convert"),
        ("{", "manifest.json is damaged"),
        ("[]", "manifest.json is damaged"),
        ("{}", "manifest.json is damaged"),
        ('{"schema_version": 2}', "manifest.json is damaged"),
        ('{"schema_version": 4, "files": []}', f"schema version 4, this program reads {VERSION}; convert"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(folder, manifest, reason):
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(DatasetError, match=reason):
        ShardDataset(folder)


def test_a_shard_that_differs_from_the_manifest_is_refused(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    before = (folder / "manifest.json").read_bytes()
    manifest["files"][0]["episodes_written"] = 5
    with pytest.raises(DatasetError, match="has 3 episodes, but 5 in the manifest"):
        write_manifest(folder, manifest)
    assert (folder / "manifest.json").read_bytes() == before
    dataset = ShardDataset(folder)
    with ShardWriter(folder / SHARDS[0]) as writer:
        writer.write(made_episode("1", "general"), "train")
    with pytest.raises(DatasetError, match="has 1 episodes, fewer than the index says"):
        dataset[2]
    (folder / SHARDS[0]).unlink()
    with pytest.raises(DatasetError, match="in the index but not on disk"):
        dataset[0]


def test_a_column_that_does_not_exist_is_refused(folder):
    with pytest.raises(DatasetError, match="no column goals; they have episode_id"):
        ShardDataset(folder).table(["goal", "goals"])


def test_a_step_that_does_not_exist_is_refused(folder):
    dataset = ShardDataset(folder)
    assert dataset.step(0, -1).action == dataset[0].steps[-1].action
    with pytest.raises(IndexError):
        dataset.step(0, len(dataset[0]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("split", "val", "split 'val' does not exist; choose one of"),
        ("subset", "shopping", "subset names shopping; subsets are .*general"),
    ],
)
def test_a_split_or_subset_that_cannot_exist_is_refused(folder, name, value, message):
    with pytest.raises(DatasetError, match=message):
        ShardDataset(folder, **{name: value})
