"""The version of shards: the bytes of its columns, what they hold, and that no other version is read."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.data.made_episodes import assert_same_episode, made_episode

from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset
from vlm_agent.datasets.shards.schema import IN_STEPS, INDEX, SCHEMA, VERSION
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.datasets.statistics.summary import read_columns
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.errors import DatasetError

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


def written(folder, *episodes):
    with ShardWriter(folder / "general/0.parquet") as writer:
        for episode in episodes:
            writer.write(episode, "train")
    files = [{"shard": "general/0.parquet", "subset": "general", "episodes_written": len(episodes)}]
    write_manifest(folder, {"files": files})
    return ShardDataset(folder)


@pytest.mark.skipif(pa.__version__ != "26.0.1", reason="Parquet files name the version of pyarrow that wrote them")
def test_a_conversion_keeps_its_bytes(tmp_path, monkeypatch):
    """Screens are stored raw here, because the bytes that deflate writes depend on the processor."""
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
        "general/general-00000-of-00001.parquet": "027398489cf5cbc4a6da37bf4c5ceec7fe4953154e25c34bb6b2534b48f930c7",
        INDEX: "e00af29f387018e691d4d79e8d30b50d036e5cc51dec0b4d38ebc5f54c07aac7",
    }
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["schema_version"] == VERSION


def test_every_kind_of_action_and_every_instruction_come_back(tmp_path):
    episodes = [PLAIN[0], INSTRUCTED, NEW_KINDS]
    dataset = written(tmp_path, *episodes)
    assert pq.read_metadata(tmp_path / "general/0.parquet").num_row_groups == 3
    for got, expected in zip(dataset, episodes, strict=True):
        assert_same_episode(got, expected)
        assert [step.instruction for step in got.steps] == [step.instruction for step in expected.steps]
    column = dataset.table([IN_STEPS + "instruction"])["steps"].to_pylist()
    assert [[step["instruction"] for step in row] for row in column] == [
        [None] * len(PLAIN[0]),
        ["open the “clock”", None, ""],
        [None] * 5,
    ]
    assert len(read_columns(dataset).action) == sum(map(len, episodes))


def test_a_shard_of_other_columns_is_refused(tmp_path):
    written(tmp_path, *PLAIN)
    path = tmp_path / "general/0.parquet"
    step = pa.struct([field for field in SCHEMA.field("steps").type.value_type if field.name != "notes"])
    schema = pa.schema([*(field for field in SCHEMA if field.name != "steps"), ("steps", pa.list_(step))])
    pq.write_table(pq.read_table(path).replace_schema_metadata(None).cast(schema), path, row_group_size=1)
    with pytest.raises(DatasetError, match="is not a shard of this program: it has other columns"):
        ShardDataset(tmp_path)[0]
