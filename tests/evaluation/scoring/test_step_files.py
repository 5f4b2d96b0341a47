"""A predictions file read as columns holds the same steps as read as objects, and hostile rows are named."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.evaluation.gold_steps import answered, episode, random_action

from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import SCHEMA, read_predictions, write_predictions
from vlm_agent.evaluation.scoring.dialects import AITW, verdicts
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.evaluation.scoring.steps import StepTable, step_tables


@pytest.fixture(scope="module")
def rows(world):
    rng = np.random.default_rng(11)
    rows = answered(world, [None if rng.random() < 0.1 else random_action(rng, row.elements) for row in world])
    return [replace(row, box=tuple(rng.random(4).tolist()) if rng.random() < 0.5 else None) for row in rows]


@pytest.fixture
def path(rows, tmp_path):
    write_predictions(tmp_path / "p.parquet", rows)
    return tmp_path / "p.parquet"


def assert_same(table, expected):
    for name in ("step", "episode_length"):
        assert getattr(table, name).tolist() == getattr(expected, name).tolist()
    for name in ("episode_id", "subset"):
        assert getattr(table, name).to_pylist() == getattr(expected, name).to_pylist()
    for one, other in ((table.gold, expected.gold), (table.predicted, expected.predicted)):
        for name in ("kind", "touch", "lift", "name", "is_tap", "is_swipe"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.text.to_pylist() == other.text.to_pylist()
    np.testing.assert_array_equal(table.predicted_box, expected.predicted_box)
    everything = np.arange(len(table))
    for one, other in zip(table.boxes.listed(everything), expected.boxes.listed(everything), strict=True):
        np.testing.assert_array_equal(one, other)


def test_columns_hold_what_the_objects_hold(path, rows):
    (table,) = step_tables(path)
    assert_same(table, StepTable.of(rows))


def test_row_groups_of_any_size_make_the_same_table(path, rows, tmp_path):
    pq.write_table(pq.read_table(path), tmp_path / "small.parquet", row_group_size=7)
    parts = list(step_tables(tmp_path / "small.parquet"))
    assert sum(map(len, parts)) == len(rows)
    start = 0
    for part in parts:
        assert_same(part, StepTable.of(rows[start : start + len(part)]))
        start += len(part)


def test_a_slice_of_a_longer_batch_is_read_right(path, rows, monkeypatch):
    monkeypatch.setattr("vlm_agent.evaluation.scoring.steps._STEPS_AT_ONCE", 13)
    start = 0
    for part in step_tables(path):
        assert_same(part, StepTable.of(rows[start : start + len(part)]))
        start += len(part)
    assert start == len(rows)


def test_verdicts_of_a_file_are_those_of_the_objects(path, rows):
    (table,) = step_tables(path)
    from_file, from_objects = verdicts(table, list(AITW)), verdicts(rows, list(AITW))
    for name in AITW:
        assert from_file[name].tolist() == from_objects[name].tolist()


def test_a_file_has_the_scores_of_its_objects(path):
    assert score(path, {"some": {"001"}}) == score(read_predictions(path), {"some": {"001"}})


def test_an_empty_file_has_no_score(tmp_path):
    write_predictions(tmp_path / "p.parquet", [])
    assert score(tmp_path / "p.parquet") == score([])


def test_boxes_are_padded_for_the_screens_asked_for(rows):
    boxes = StepTable.of(rows).boxes
    screens = np.array([3, 0, 3])
    padded, counts = boxes.padded(screens)
    for screen, found, count in zip(screens, padded, counts, strict=True):
        expected = np.array([element.box for element in rows[screen].elements], np.float32).reshape(-1, 4)
        assert count == len(expected)
        np.testing.assert_array_equal(found[:count], expected)


GOLD = episode("e", "single", [Action.tap(0.1, 0.2), Action.type_text("x")], (UiElement((0.1, 0.1, 0.1, 0.1)),))


def spoiled(tmp_path, **cells):
    """A file whose second row has other cells than it should."""
    path = tmp_path / "p.parquet"
    write_predictions(path, answered(GOLD, [GOLD[0].gold, GOLD[1].gold]))
    table = pq.read_table(path).to_pylist()
    table[1] = table[1] | cells
    pq.write_table(pa.Table.from_pylist(table, SCHEMA), path)
    return path


def action(kind=4, touch=(0.1, 0.2), lift=(0.1, 0.2), text=""):
    touch, lift = (None if point is None else dict(zip("yx", point, strict=True)) for point in (touch, lift))
    return {"kind": kind, "touch": touch, "lift": lift, "text": text}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"gold": None}, "gold is missing"),
        ({"episode_id": None}, "episode_id is missing"),
        ({"step": None}, "step is missing"),
        ({"elements": None}, "elements is missing"),
        ({"goal": None}, "goal is missing"),
        ({"text": None}, "text is missing"),
        ({"gold": action(kind=9)}, "gold is not an action"),
        ({"gold": action(kind=None)}, "gold is not an action"),
        ({"predicted": action(kind=-1)}, "predicted is not an action"),
        ({"predicted": action(touch=(0.1, 1.5))}, "predicted is not an action"),
        ({"predicted": action(touch=(float("nan"), 0.5))}, "predicted is not an action"),
        ({"predicted": action(touch=None)}, "predicted is not an action"),
        ({"predicted": action(kind=6)}, "predicted is not an action"),
        ({"predicted": action(text="tap")}, "predicted is not an action"),
        ({"elements": [{"box": None}]}, "box is missing or not finite"),
        ({"elements": [{"box": {"y": 0, "x": 0, "height": float("inf"), "width": 1}}]}, "box is missing or not finite"),
    ],
)
def test_an_invalid_row_is_named(tmp_path, cells, message):
    with pytest.raises(UserError, match=rf"p\.parquet, row 1: .*{message}"):
        score(spoiled(tmp_path, **cells))


def test_a_row_without_a_predicted_action_is_a_failed_parse(tmp_path):
    scores = score(spoiled(tmp_path, predicted=None))
    assert scores["official"]["single"]["parse_failures"] == 50


def test_other_files_are_refused_by_name(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match=r"other\.parquet is not a predictions file"):
        score(tmp_path / "other.parquet")


def test_steps_missing_from_a_file_are_named(tmp_path):
    write_predictions(tmp_path / "p.parquet", [replace(GOLD[1], predicted=None)])
    with pytest.raises(UserError, match="episode e, 2 steps: no prediction of step 0"):
        score(tmp_path / "p.parquet")
