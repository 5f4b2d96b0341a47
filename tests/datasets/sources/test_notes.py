"""Notes survive shards and TFRecords, and so does their absence."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.data.example_message import Example
from helpers.data.made_episodes import assert_same_episode, made_episode
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.formats.tfrecord import Record
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import ALL_BUT_PIXELS, from_row
from vlm_agent.datasets.shards.writer import ShardWriter
from vlm_agent.datasets.sources.aitw import encode_step, parse_step, write_episodes
from vlm_agent.datasets.sources.checks import NOTE_KEYS
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError

TEXTS = {"screen": "a list of alarms ⏰", "think": "it is open", "action": "tap “+”", "result": "a new alarm\nappears"}
PLAN = {"plan": "open “Clock” ⏰\ntap on Alarm", "step": "open “Clock” ⏰"}
FIELDS = NOTE_KEYS | {"plan": "plan_lines", "step": "plan_step"}

some_lines = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), min_size=1)).map("\n".join)
some_texts = {name: some_lines if name == "plan" else st.text() for name in (*TEXTS, *PLAN)}
some_notes = st.fixed_dictionaries({}, optional=some_texts)


def episode_with(*notes: Mapping[str, str]) -> Episode:
    """An episode whose first steps have these notes, and the others none."""
    episode = made_episode(size=(4, 2))
    padded = [*notes, *[{}] * (len(episode) - len(notes))]
    steps = tuple(replace(step, notes=of_step) for step, of_step in zip(episode.steps, padded, strict=True))
    return replace(episode, steps=steps)


def shard(path: Path, episode: Episode) -> Path:
    with ShardWriter(path) as writer:
        writer.write(episode, "train")
    return path


def parsed(payload: bytes) -> Mapping[str, str]:
    return parse_step(Record(0, 0, payload), Path("general-00000-of-00001"), "general").step.notes


@settings(deadline=None, max_examples=30)
@given(st.lists(st.dictionaries(st.text(), st.text()), max_size=8))
def test_a_shard_keeps_the_notes_of_each_step_under_any_name(tmp_path_factory, notes):
    episode = episode_with(*notes)
    path = shard(tmp_path_factory.mktemp("shards") / "a.parquet", episode)
    for columns in (None, ALL_BUT_PIXELS):
        (row,) = pq.ParquetFile(path).read(columns=columns and list(columns)).to_pylist()
        again = from_row(row)
        assert [step.notes for step in again.steps] == [step.notes for step in episode.steps]
        assert_same_episode(again, episode, pixels=columns is None)


def test_an_absent_text_and_an_empty_one_are_two_things(tmp_path):
    (row,) = pq.ParquetFile(shard(tmp_path / "a.parquet", episode_with({"screen": ""}, {}))).read().to_pylist()
    assert [step.notes for step in from_row(row).steps[:2]] == [{"screen": ""}, {}]


def test_equal_notes_have_equal_bytes(tmp_path):
    paths = [
        shard(tmp_path / f"{n}.parquet", episode_with(notes))
        for n, notes in enumerate((TEXTS, dict(reversed(TEXTS.items()))))
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_load_dataset_returns_the_notes(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    files = [str(shard(tmp_path / "a.parquet", episode_with(TEXTS | PLAN, {})))]
    (row,) = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    first, second = ({note["name"]: note["text"] for note in step["notes"]} for step in row["steps"][:2])
    assert (first, second) == (TEXTS | PLAN, {})


@settings(deadline=None, max_examples=60)
@given(some_notes)
def test_a_tfrecord_keeps_the_notes_or_that_there_are_none(notes):
    assert parsed(encode_step(episode_with(notes), 0)) == notes


def test_a_step_without_notes_is_written_as_aitw_publishes_it():
    features = Example.FromString(encode_step(episode_with({}), 0)).features.feature
    assert not set(features) & set(FIELDS.values())


def test_the_fields_of_a_tfrecord_are_those_of_aitz_and_of_plans():
    features = Example.FromString(encode_step(episode_with(TEXTS | PLAN), 0)).features.feature
    written = {
        name: "\n".join(value.decode() for value in features[key].bytes_list.value) for name, key in FIELDS.items()
    }
    assert written == TEXTS | PLAN


@pytest.mark.parametrize("name", FIELDS)
def test_where_a_field_is_absent_its_note_is_absent(name):
    message = Example.FromString(encode_step(episode_with(TEXTS | PLAN), 0))
    for other, field in FIELDS.items():
        if other != name:
            del message.features.feature[field]
    assert parsed(message.SerializeToString()) == {name: (TEXTS | PLAN)[name]}


@pytest.mark.parametrize("field", ["coat_action_think", "plan_lines"])
def test_a_text_of_another_type_is_refused_by_name(field):
    message = Example.FromString(encode_step(episode_with(TEXTS | PLAN), 0))
    message.features.feature[field].bytes_list.value[:] = [b"\xff"]
    with pytest.raises(DatasetError, match=f"{field} is not UTF-8"):
        parsed(message.SerializeToString())
    message.features.feature[field].int64_list.value[:] = [1]
    with pytest.raises(DatasetError, match=f"{field} is a list of int64, expected bytes"):
        parsed(message.SerializeToString())


def test_a_conversion_keeps_the_notes_of_each_step(tmp_path):
    source = tmp_path / "aitw/general-00000-of-00001"
    source.parent.mkdir()
    episode = episode_with(TEXTS | PLAN, {}, PLAN)
    write_episodes(source, [episode])
    convert("aitw", [source], tmp_path / "out", workers=1)
    dataset = ShardDataset(tmp_path / "out")
    for pixels, got in ((True, dataset[0]), (False, dataset.without_pixels(0))):
        assert_same_episode(got, episode, pixels=pixels)
        assert [step.notes for step in got.steps] == [step.notes for step in episode.steps]
    assert dataset.step(0, 0).notes == TEXTS | PLAN


def test_an_android_version_that_no_shard_can_hold_is_refused():
    episode = replace(made_episode(size=(4, 2)), android_api_level=1 << 31)
    with pytest.raises(DatasetError, match="android_api_level 2147483648"):
        parsed(encode_step(episode, 0))
