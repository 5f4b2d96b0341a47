"""A run's predictions survive on disk."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from helpers.evaluation.gold_steps import answered, episode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import Action, Episode, Step, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import SCHEMA, predictions_for, read_predictions, write_predictions

GOLD = episode("e1", "single", [Action.tap(0.1, 0.2), Action.type_text("käse\n"), Action.complete()])


def test_the_file_reads_back_equal(tmp_path, world):
    rows = answered(world, [row.gold if row.step % 2 else None for row in world])
    write_predictions(tmp_path / "p.parquet", rows)
    assert read_predictions(tmp_path / "p.parquet") == rows
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]


def test_no_column_is_a_list_of_fixed_size():
    """Arrow before 26, and whatever is built on it, cannot read a null over such a list."""
    assert "fixed_size_list" not in str(SCHEMA)


def test_the_box_of_an_answer_survives(tmp_path):
    rows = [replace(GOLD[0], box=(0.1, -0.2, 0.3, 1.4)), *GOLD[1:]]
    write_predictions(tmp_path / "p.parquet", rows)
    assert [row.box for row in read_predictions(tmp_path / "p.parquet")] == [(0.1, -0.2, 0.3, 1.4), None, None]


def test_more_rows_than_one_group_read_back_in_order(tmp_path):
    rows = [row for number in range(2000) for row in episode(str(number), "general", [Action.complete()] * 3)]
    write_predictions(tmp_path / "p.parquet", iter(rows))
    assert read_predictions(tmp_path / "p.parquet") == rows


def test_an_empty_list_of_predictions_can_be_written(tmp_path):
    write_predictions(tmp_path / "p.parquet", [])
    assert read_predictions(tmp_path / "p.parquet") == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text(), st.text())
def test_any_text_survives(tmp_path, goal, answer, typed):
    row = replace(
        GOLD[0], goal=goal, text=answer, gold=Action.type_text(typed), elements=(UiElement((0, 0, 1, 1), typed),)
    )
    write_predictions(tmp_path / "p.parquet", [row])
    assert read_predictions(tmp_path / "p.parquet") == [row]


def test_a_lone_surrogate_in_model_output_stays_visible(tmp_path):
    write_predictions(tmp_path / "p.parquet", [replace(GOLD[0], text="tap \ud800")])
    assert read_predictions(tmp_path / "p.parquet")[0].text == "tap \\ud800"


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "p.parquet"
    write_predictions(path, GOLD)

    def breaks():
        yield GOLD[0]
        raise RuntimeError("the model died")

    with pytest.raises(RuntimeError):
        write_predictions(path, breaks())
    assert read_predictions(path) == GOLD


def test_other_files_are_refused_by_name(tmp_path):
    import pyarrow as pa

    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=r"text\.parquet cannot be read .it is not a Parquet file"):
        read_predictions(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match=r"other\.parquet is not a predictions file"):
        read_predictions(tmp_path / "other.parquet")
    write_predictions(tmp_path / "p.parquet", GOLD)
    table = pq.read_table(tmp_path / "p.parquet")
    pq.write_table(table.drop_columns(["goal"]), tmp_path / "less.parquet")  # the metadata keeps the version
    with pytest.raises(UserError, match=r"less\.parquet.*goal"):
        read_predictions(tmp_path / "less.parquet")
    at = table.column_names.index("step")
    pq.write_table(table.set_column(at, "step", table["step"].cast("string")), tmp_path / "other_type.parquet")
    with pytest.raises(UserError, match=r"other_type\.parquet.*step"):
        read_predictions(tmp_path / "other_type.parquet")


def test_an_episode_needs_an_answer_to_each_step():
    gold = Episode("e", "general", "go", (Step(None, Action.press("home")), Step(None, Action.complete())))
    rows = predictions_for(gold, ["complete", "?"], [Action.complete(), None])
    assert [(row.step, row.episode_length, row.gold, row.predicted) for row in rows] == [
        (0, 2, Action.press("home"), Action.complete()),
        (1, 2, Action.complete(), None),
    ]
    with pytest.raises(UserError, match="episode e has 2 steps, but the agent returned 1 texts and 2 actions"):
        predictions_for(gold, ["complete"], [None, None])
