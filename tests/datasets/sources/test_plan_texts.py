"""A planner's texts survive shards and TFRecords, and so does their absence."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.data.example_message import Example
from helpers.data.made_episodes import assert_same_episode, made_episode
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.formats.tfrecord import Record
from vlm_agent.datasets.shards.dataset import ShardDataset, ShardWriter
from vlm_agent.datasets.sources.aitw import encode_step, parse_step, write_episodes
from vlm_agent.episodes import Episode, PlanTexts
from vlm_agent.errors import DatasetError

TEXTS = PlanTexts(("open “Clock” ⏰", "tap on Alarm"), "open “Clock” ⏰")

some_plans = st.builds(PlanTexts, st.lists(st.text(), max_size=4).map(tuple), st.text())


def planned_episode(*plans: PlanTexts | None) -> Episode:
    """An episode whose first steps have these plans, and the others none."""
    episode = made_episode(size=(4, 2))
    padded = [*plans, *[None] * (len(episode) - len(plans))]
    steps = tuple(replace(step, plan=plan) for step, plan in zip(episode.steps, padded, strict=True))
    return replace(episode, steps=steps)


def parsed(payload: bytes) -> PlanTexts | None:
    return parse_step(Record(0, 0, payload), Path("general-00000-of-00001"), "general").step.plan


@settings(deadline=None, max_examples=60)
@given(st.none() | some_plans)
def test_a_tfrecord_keeps_the_plan_or_that_there_is_none(plan):
    assert parsed(encode_step(planned_episode(plan), 0)) == plan


def test_a_step_without_a_plan_is_written_as_aitw_publishes_it():
    features = Example.FromString(encode_step(planned_episode(None), 0)).features.feature
    assert not [name for name in features if name.startswith("plan")]


def test_where_one_of_the_two_fields_is_absent_it_is_empty():
    for absent, expected in (("plan_lines", replace(TEXTS, plan=())), ("plan_step", replace(TEXTS, step=""))):
        message = Example.FromString(encode_step(planned_episode(TEXTS), 0))
        del message.features.feature[absent]
        assert parsed(message.SerializeToString()) == expected


def test_a_plan_of_another_type_is_refused_by_name():
    message = Example.FromString(encode_step(planned_episode(TEXTS), 0))
    message.features.feature["plan_lines"].bytes_list.value[:] = [b"open it", b"\xff"]
    with pytest.raises(DatasetError, match="plan_lines is not UTF-8"):
        parsed(message.SerializeToString())
    message.features.feature["plan_lines"].int64_list.value[:] = [1]
    with pytest.raises(DatasetError, match="plan_lines is a list of int64, expected bytes"):
        parsed(message.SerializeToString())


def test_a_conversion_keeps_the_plans_of_each_step(tmp_path):
    source = tmp_path / "aitw/general-00000-of-00001"
    source.parent.mkdir()
    episode = planned_episode(TEXTS, None, PlanTexts())
    write_episodes(source, [episode])
    convert("aitw", [source], tmp_path / "out", workers=1)
    dataset = ShardDataset(tmp_path / "out")
    for pixels, got in ((True, dataset[0]), (False, dataset.without_pixels(0))):
        assert_same_episode(got, episode, pixels=pixels)
        assert [step.plan for step in got.steps] == [step.plan for step in episode.steps]
    assert dataset.step(0, 0).plan == TEXTS


@pytest.mark.parametrize("plans", [(), (TEXTS, None, PlanTexts())])
def test_load_dataset_returns_the_plans_or_has_no_such_column(tmp_path, plans):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    with ShardWriter(tmp_path / "a.parquet") as writer:
        writer.write(planned_episode(*plans), "train")
    (row,) = datasets.load_dataset(
        "parquet", data_files=[str(tmp_path / "a.parquet")], split="train", cache_dir=str(tmp_path / "cache")
    )
    columns = [step.get("plan", "no column") for step in row["steps"]]
    expected = [None if plan is None else {"plan": list(plan.plan), "step": plan.step} for plan in plans]
    assert columns == (expected + [None] * 5 if plans else ["no column"] * 8)
