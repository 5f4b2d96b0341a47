"""The four texts of Chain-of-Action-Thought survive shards and TFRecords, and so does their absence."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.data.example_message import Example
from helpers.data.made_episodes import assert_same_episode, made_episode
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.formats.tfrecord import Record
from vlm_agent.datasets.shards.dataset import ShardWriter
from vlm_agent.datasets.shards.schema import ALL_BUT_PIXELS, from_row
from vlm_agent.datasets.sources.aitw import encode_step, parse_step
from vlm_agent.datasets.sources.checks import COAT_KEYS
from vlm_agent.episodes import CoatTexts, Episode
from vlm_agent.errors import DatasetError

TEXTS = CoatTexts("a list of alarms ⏰", "it is open", "tap “+”", "a new alarm\nappears")

some_texts = st.builds(CoatTexts, st.text(), st.text(), st.text(), st.text())


def _told_episode(*texts: CoatTexts | None) -> Episode:
    """An episode whose first steps have these texts, and the others none."""
    episode = made_episode(size=(4, 2))
    padded = [*texts, *[None] * (len(episode) - len(texts))]
    steps = tuple(replace(step, coat=coat) for step, coat in zip(episode.steps, padded, strict=True))
    return replace(episode, steps=steps)


def _shard(path: Path, episode: Episode) -> Path:
    with ShardWriter(path) as writer:
        writer.write(episode, "train")
    return path


def _read_shard(path: Path, columns: tuple[str, ...] | None = None) -> Episode:
    (row,) = pq.ParquetFile(path).read(columns=columns and list(columns)).to_pylist()
    return from_row(row)


def _parsed(payload: bytes) -> CoatTexts | None:
    return parse_step(Record(0, 0, payload), Path("general-00000-of-00001"), "general").step.coat


@settings(deadline=None, max_examples=30)
@given(st.lists(st.none() | some_texts, max_size=8))
def test_a_shard_keeps_the_texts_of_each_step_and_which_steps_have_none(tmp_path_factory, texts):
    episode = _told_episode(*texts)
    path = _shard(tmp_path_factory.mktemp("shards") / "a.parquet", episode)
    for columns in (None, ALL_BUT_PIXELS):
        again = _read_shard(path, columns)
        assert [step.coat for step in again.steps] == [step.coat for step in episode.steps]
        assert_same_episode(again, episode, pixels=columns is None)


def test_an_absent_text_and_an_empty_one_are_two_things(tmp_path):
    again = _read_shard(_shard(tmp_path / "a.parquet", _told_episode(CoatTexts(), None)))
    assert again.steps[0].coat == CoatTexts("", "", "", "")
    assert again.steps[1].coat is None


@pytest.mark.parametrize("texts", [(), (TEXTS, None)])
def test_load_dataset_returns_the_texts_or_none(tmp_path, texts):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    files = [str(_shard(tmp_path / "a.parquet", _told_episode(*texts)))]
    (row,) = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    columns = [step["coat"] for step in row["steps"]]
    expected = {"screen": TEXTS.screen, "think": TEXTS.think, "action": TEXTS.action, "result": TEXTS.result}
    assert columns == ([expected] if texts else [None]) + [None] * 7


@settings(deadline=None, max_examples=60)
@given(st.none() | some_texts)
def test_a_tfrecord_keeps_the_texts_or_that_there_are_none(coat):
    assert _parsed(encode_step(_told_episode(coat), 0)) == coat


def test_a_step_without_texts_is_written_as_aitw_publishes_it():
    features = Example.FromString(encode_step(_told_episode(None), 0)).features.feature
    assert not [name for name in features if name.startswith("coat")]


def test_the_keys_of_a_tfrecord_are_those_of_aitz():
    features = Example.FromString(encode_step(_told_episode(TEXTS), 0)).features.feature
    written = {name: feature.bytes_list.value[0].decode() for name, feature in features.items() if "coat" in name}
    assert written == {
        "coat_screen_desc": TEXTS.screen,
        "coat_action_think": TEXTS.think,
        "coat_action_desc": TEXTS.action,
        "coat_action_result": TEXTS.result,
    }


@pytest.mark.parametrize("name", COAT_KEYS)
def test_where_some_of_the_texts_are_absent_they_are_empty(name):
    message = Example.FromString(encode_step(_told_episode(TEXTS), 0))
    for other in COAT_KEYS:
        if other != name:
            del message.features.feature[COAT_KEYS[other]]
    assert _parsed(message.SerializeToString()) == CoatTexts(**{name: getattr(TEXTS, name)})


def test_a_text_of_another_type_is_refused_by_name():
    message = Example.FromString(encode_step(_told_episode(TEXTS), 0))
    message.features.feature["coat_action_think"].bytes_list.value[:] = [b"\xff"]
    with pytest.raises(DatasetError, match="coat_action_think is not UTF-8"):
        _parsed(message.SerializeToString())
    message.features.feature["coat_action_think"].int64_list.value[:] = [1]
    with pytest.raises(DatasetError, match="coat_action_think is a list of int64, expected bytes"):
        _parsed(message.SerializeToString())


def test_an_android_version_that_no_shard_can_hold_is_refused():
    episode = replace(made_episode(size=(4, 2)), android_api_level=1 << 31)
    with pytest.raises(DatasetError, match="android_api_level 2147483648"):
        _parsed(encode_step(episode, 0))
