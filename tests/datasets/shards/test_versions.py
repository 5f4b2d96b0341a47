"""Versions of shards: the content of each, when versions 3 and 4 are written, and that all can be read."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.data.made_episodes import assert_same_episode, made_episode

from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.shards.columns import read_columns
from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset, ShardWriter, write_manifest
from vlm_agent.datasets.shards.index import INDEX
from vlm_agent.datasets.shards.schema import FIRST_SCHEMA, IN_STEPS, SCHEMAS, version_of
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.episodes import Action, Episode, PlanTexts, Step, without_pixels
from vlm_agent.errors import DatasetError
from vlm_agent.files import write_json
from vlm_agent.files.checked_json import read_checked

PLAIN = made_episode("1"), made_episode("2")
NEW_KINDS = made_episode(
    "3",
    actions=(
        Action.long_press(0.25, 0.5),
        Action.open_app("Uhr ⏰"),
        Action.wait(),
        Action.recents(),
        Action.answer("at 8"),
    ),
)
INSTRUCTED = Episode(
    "4",
    "general",
    "set an alarm",
    tuple(
        Step(np.full((4, 2, 3), number, np.uint8), Action.tap(0.5, 0.5), instruction=text)
        for number, text in enumerate(["open the “clock”", None, ""])
    ),
)
PLANNED = Episode(
    "5",
    "general",
    "set an alarm",
    tuple(
        Step(np.full((4, 2, 3), number, np.uint8), Action.tap(0.5, 0.5), plan=plan)
        for number, plan in enumerate(
            [PlanTexts(("open the “clock”", "tap ⏰\nand wait", ""), "open it"), None, PlanTexts()]
        )
    ),
)


def written(folder, *shards):
    """A folder with these shards, each a list of episodes."""
    files = []
    for number, episodes in enumerate(shards):
        with ShardWriter(folder / f"general/{number}.parquet") as writer:
            for episode in episodes:
                writer.write(episode, "train")
        files.append({"shard": f"general/{number}.parquet", "subset": "general", "episodes_written": len(episodes)})
    write_manifest(folder, {"files": files})
    return ShardDataset(folder)


def version_in(path):
    return version_of(pq.read_schema(path))


def instructions(dataset):
    return [
        [step["instruction"] for step in row] for row in dataset.table([IN_STEPS + "instruction"])["steps"].to_pylist()
    ]


def extras(episode):
    return [(step.instruction, step.plan) for step in episode.steps]


@pytest.mark.skipif(pa.__version__ != "26.0.1", reason="Parquet files name the version of pyarrow that wrote them")
def test_a_shard_without_a_later_field_is_of_version_2_byte_for_byte(tmp_path, monkeypatch):
    """The digests are of a conversion by the program before version 3 existed, to which checksums were added.

    Screens are stored raw here, because the bytes that deflate writes depend on the processor.
    """
    monkeypatch.setattr("vlm_agent.datasets.shards.images.encode_png", lambda screen: screen.tobytes())
    source = tmp_path / "aitw/general-00000-of-00001"
    source.parent.mkdir()
    write_episodes(source, PLAIN)
    convert("aitw", [source], tmp_path / "out", workers=1)
    digests = {
        name: hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest()
        for name in ("general/general-00000-of-00001.parquet", INDEX)
    }
    assert digests == {
        "general/general-00000-of-00001.parquet": "589e72e024fd16eff188060126879dbcd7f71e2514284221b7e68186e032d4be",
        INDEX: "e00af29f387018e691d4d79e8d30b50d036e5cc51dec0b4d38ebc5f54c07aac7",
    }
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["schema_version"] == 2


@pytest.mark.parametrize(
    ("episode", "version"),
    [(NEW_KINDS, 3), (INSTRUCTED, 3), (PLANNED, 4)],
    ids=["a new kind", "an instruction", "a plan"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_episode_that_needs_it_makes_its_shard_a_later_version(tmp_path, episode, version, place):
    episodes = [*PLAIN[:place], episode, *PLAIN[place:]]
    dataset = written(tmp_path, episodes)
    path = tmp_path / "general/0.parquet"
    assert version_in(path) == dataset.manifest["schema_version"] == version
    assert pq.read_metadata(path).num_row_groups == 3
    for got, expected in zip(dataset, episodes, strict=True):
        assert_same_episode(got, expected)
        assert extras(got) == extras(expected)
    assert extras(dataset.without_pixels(place)) == extras(without_pixels(episode)) == extras(episode)
    assert [path.name for path in (tmp_path / "general").iterdir()] == ["0.parquet"]


@pytest.mark.parametrize(
    ("episodes", "version"),
    [([*PLAIN, INSTRUCTED], 3), ([*PLAIN, PLANNED], 4), ([PLAIN[0], INSTRUCTED, PLANNED, PLAIN[1]], 4)],
)
def test_a_rewritten_shard_has_the_bytes_of_one_that_was_of_its_version_from_the_start(
    tmp_path, monkeypatch, episodes, version
):
    written(tmp_path / "rewritten", episodes)
    monkeypatch.setattr("vlm_agent.datasets.shards.dataset.version_needed", lambda row: version)
    written(tmp_path / "direct", episodes)
    rewritten, direct = (tmp_path / name / "general/0.parquet" for name in ("rewritten", "direct"))
    assert pq.read_table(rewritten) == pq.read_table(direct)
    assert rewritten.read_bytes() == direct.read_bytes()


def test_a_shard_whose_rewriting_fails_does_not_appear(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path / "a.parquet") as writer:
        writer.write(PLAIN[0], "train")
        monkeypatch.setattr(pq.ParquetFile, "read_row_group", fail)
        writer.write(INSTRUCTED, "train")
    assert list(tmp_path.iterdir()) == []


def test_versions_2_to_4_in_one_folder_are_read_together(tmp_path):
    episodes = [PLAIN[0], INSTRUCTED, NEW_KINDS, PLANNED]
    dataset = written(tmp_path, [PLAIN[0]], [INSTRUCTED, NEW_KINDS], [PLANNED])
    assert [version_in(tmp_path / f"general/{number}.parquet") for number in (0, 1, 2)] == [2, 3, 4]
    assert dataset.manifest["schema_version"] == 4
    for got, expected in zip(dataset, episodes, strict=True):
        assert_same_episode(got, expected)
    assert instructions(dataset) == [[None] * len(PLAIN[0]), ["open the “clock”", None, ""], [None] * 5, [None] * 3]
    plans = [[step["plan"] for step in row] for row in dataset.table([IN_STEPS + "plan"])["steps"].to_pylist()]
    assert plans[:3] == [[None] * len(PLAIN[0]), [None] * 3, [None] * 5]
    assert plans[3] == [
        {"plan": ["open the “clock”", "tap ⏰\nand wait", ""], "step": "open it"},
        None,
        {"plan": [], "step": ""},
    ]
    names = {action.name for episode in episodes for action in [step.action for step in episode.steps]}
    assert {"long_press", "open_app", "wait", "recents", "answer"} <= names
    assert len(read_columns(dataset).action) == sum(map(len, episodes))


def test_a_column_of_version_3_is_null_for_a_folder_of_version_2(tmp_path):
    assert instructions(written(tmp_path, PLAIN)) == [[None] * len(episode) for episode in PLAIN]


@pytest.fixture
def version_1(tmp_path):
    """A folder as version 1 was: three columns of steps fewer, and no index."""
    written(tmp_path, PLAIN)
    path = tmp_path / "general/0.parquet"
    step = pa.struct([field for field in FIRST_SCHEMA.field("steps").type.value_type][:-3])
    schema = pa.schema([*(field for field in FIRST_SCHEMA if field.name != "steps"), ("steps", pa.list_(step))])
    table = pq.read_table(path).replace_schema_metadata(None).cast(schema)
    pq.write_table(table, path, row_group_size=1)
    (tmp_path / INDEX).unlink()
    manifest = read_checked(tmp_path / MANIFEST, "") | {"schema_version": 1}
    write_json(tmp_path / MANIFEST, manifest)
    assert version_in(path) == 1
    return tmp_path


def test_version_1_is_read_without_an_index(version_1):
    dataset = ShardDataset(version_1, split="train")
    for index, expected in enumerate(PLAIN):
        assert_same_episode(dataset[index], expected)
        assert_same_episode(dataset.without_pixels(index), expected, pixels=False)
        assert all(step.coat is step.instruction is step.plan is None for step in dataset[index].steps)
    assert dataset.ids == ("1", "2")
    assert dataset.screen_sizes[0] == ((40, 24),) * len(PLAIN[0])
    assert len(read_columns(dataset).action) == sum(map(len, PLAIN))
    columns = [IN_STEPS + name for name in ("coat", "record", "instruction")]
    (first, _) = dataset.table(columns)["steps"].to_pylist()
    assert first == [{"coat": None, "record": None, "instruction": None}] * len(PLAIN[0])
    assert not (version_1 / INDEX).exists()


def test_a_shard_of_version_1_with_other_episodes_than_its_manifest_is_refused(version_1):
    manifest = read_checked(version_1 / MANIFEST, "")
    manifest["files"][0]["episodes_written"] = 3
    write_json(version_1 / MANIFEST, manifest)
    with pytest.raises(DatasetError, match="has 2 episodes, but 3 in the manifest"):
        ShardDataset(version_1)


def test_each_version_has_one_column_more_and_the_old_ones_in_their_order():
    steps = {version: list(schema.field("steps").type.value_type) for version, schema in SCHEMAS.items()}
    assert list(steps) == [2, 3, 4]
    assert (steps[3][:-1], steps[3][-1].name) == (steps[2], "instruction")
    assert (steps[4][:-1], steps[4][-1].name) == (steps[3], "plan")
    assert [version_of(schema) for schema in SCHEMAS.values()] == [2, 3, 4]
