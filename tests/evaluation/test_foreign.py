"""Files of predictions that another program wrote: what is read, and what is refused with its place."""

import csv
import io
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.foreign import join
from vlm_agent.evaluation.predictions import read_predictions

KINDS = (
    Action.tap(0.5, 0.25),
    Action.swipe((0.75, 0.5), (0.25, 0.5)),
    Action.type_text('a "b", c\nd; e'),
    Action.press("back"),
    Action.press("home"),
    Action.press("enter"),
    Action.complete(),
    Action.impossible(),
    Action.long_press(0.5, 0.25),
    Action.open_app("Clock"),
    Action.wait(),
    Action.recents(),
    Action.answer("7"),
)
HEADER = "episode_id,step,action_type,touch_y,touch_x,lift_y,lift_x,typed_text"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return ShardDataset(tiny.write_shards(folder / "shards", [tiny.episode(0, KINDS)], "test"))


def predicted(path, dataset, **options):
    output = path.with_name("joined.parquet")
    join(path, dataset, [0], output, **options)
    return read_predictions(output)


def problem(path, dataset, **options):
    with pytest.raises(DatasetError) as error:
        join(path, dataset, [0], path.with_name("joined.parquet"), **{"missing_as_wrong": True} | options)
    assert "\n" not in str(error.value)
    return str(error.value)


def row(step, action, **other):
    points = {"touch_yx": list(action.touch_yx), "lift_yx": list(action.lift_yx)}
    return {
        "episode_id": "0",
        "step": step,
        "action_type": int(action.kind),
        "typed_text": action.text,
        **points,
    } | other


def csv_text(rows, delimiter=",", **options):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, **options)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def test_every_kind_of_action_is_read_by_number_and_by_name(dataset, tmp_path):
    for name_of in (lambda kind: int(kind), lambda kind: kind.name, lambda kind: kind.short_name.replace("_", " ")):
        rows = [row(step, action, action_type=name_of(action.kind)) for step, action in enumerate(KINDS)]
        (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert [one.predicted for one in predicted(tmp_path / "p.jsonl", dataset)] == list(KINDS)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_spreadsheets_separators_quotes_and_byte_order_marks_are_read(dataset, tmp_path, delimiter, encoding, quoting):
    """Steps as floats, points as lists, tuples and arrays, empty lines at the end, Windows line ends."""
    rows = [row(f"{step}.0", action, action_type=f"{action.kind}.0") for step, action in enumerate(KINDS)]
    rows[0] |= {"touch_yx": "(0.5, 0.25)", "lift_yx": "[0.5  0.25]"}
    text = csv_text(rows, delimiter, quoting=quoting, lineterminator="\r\n") + "\r\n\r\n"
    (tmp_path / "p.csv").write_bytes(text.encode(encoding))
    assert [one.predicted for one in predicted(tmp_path / "p.csv", dataset)] == list(KINDS)


def test_a_tap_needs_no_lift_point(dataset, tmp_path):
    (tmp_path / "p.csv").write_text("episode_id,step,action_type,touch_y,touch_x\n0,0,tap,0.5,0.25\n")
    assert predicted(tmp_path / "p.csv", dataset, missing_as_wrong=True)[0].predicted == Action.tap(0.5, 0.25)


def test_whole_numbers_are_ids(dataset, tmp_path):
    pq.write_table(
        pa.table({"episode_id": pa.array([0], pa.uint64()), "step": [3.0], "text": ["x"]}), tmp_path / "p.parquet"
    )
    rows = predicted(tmp_path / "p.parquet", dataset, missing_as_wrong=True)
    assert (rows[3].text, rows[3].predicted) == ("x", None)


WRONG = {
    "4,7,.5,.5,,": "row 1 (line 2) has 7 cells, the header has 8",
    "4,DUAL_POINT,.5,.5,,,,": "row 1 (line 2) has 9 cells, the header has 8",
    "x,7,,,,,": "row 1 (line 2): step is 'x', expected a whole number from 0",
    "1.5,7,,,,,": "row 1 (line 2): step is 1.5, expected a whole number",
    ",7,,,,,": "row 1 (line 2): step is empty",
    "nan,7,,,,,": "row 1 (line 2): step is nan",
    "1e99,7,,,,,": "row 1 (line 2): step is 1e+99",
    "0,99,,,,,": "row 1 (line 2): action_type is 99, expected a number or name of 3 TYPE, 4 DUAL_POINT",
    "0,fly,,,,,": "row 1 (line 2): action_type is 'fly'",
    "0,4,.5,,.5,.5,": "row 1 (line 2): touch_x is empty",
    "0,4,nan,.5,.5,.5,": "row 1 (line 2): touch_y is nan",
    "0,4,inf,.5,.5,.5,": "row 1 (line 2): touch_y is inf",
    '0,4,"0,5",.5,.5,.5,': "row 1 (line 2): touch_y is '0,5', expected a number",
    "0,4,.5,.5,.5,540,": "row 1 (line 2): lift_x is 540; points are fractions of the screen, 0 to 1",
    "0,4,.5,1_0,.5,.5,": "row 1 (line 2): touch_x is '1_0'",
    '0,3,,,,,"open': "the record that begins in line 2: unexpected end of data; is a quotation mark missing?",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_cell_is_named_with_file_row_and_column(dataset, tmp_path, line):
    (tmp_path / "p.csv").write_text(f"{HEADER}\n0,{line}\n")
    found = problem(tmp_path / "p.csv", dataset)
    assert found.startswith(str(tmp_path / "p.csv")) and WRONG[line] in found


WRONG_JSON = {
    '{"episode_id": "0", "step": "3", "text": "x"}': "step is '3', expected a whole number",
    '{"episode_id": "0", "step": true, "text": "x"}': "step is True",
    '{"episode_id": "0", "step": 0, "text": 7}': "text is 7, expected text",
    '{"episode_id": null, "step": 0, "text": "x"}': "episode_id is empty",
    '{"episode_id": 1.5, "step": 0, "text": "x"}': "episode_id is 1.5, expected text; an id that was read as a",
    '{"episode_id": ["0"], "step": 0, "text": "x"}': "episode_id is ['0'], expected text",
    '{"episode_id": "0", "step": 0, "action_type": [4]}': "action_type is [4]",
    '{"episode_id": "0", "step": 0, "action_type": 4, "touch_yx": [0.5], "lift_yx": [0, 0]}': "touch_yx is [0.5], exp",
    '{"episode_id": "0", "step": 0, "action_type": 4, "touch_yx": [0.5, NaN], "lift_yx": [0, 0]}': "touch_yx is nan",
    '{"episode_id": "0", "step": 0, "action_type": 4, "touch_yx": [true, 0], "lift_yx": [0, 0]}': "touch_yx is True",
    f'{{"episode_id": "0", "step": 0, "action_type": 4, "touch_yx": [0, {"9" * 400}], "lift_yx": [0, 0]}}': "0 to 1",
    '{"episode_id": "0", "step": 0, "action_type": 4, "touch_yx": [0, 1e400], "lift_yx": [0, 0]}': "touch_yx is inf",
    f'{{"episode_id": "0", "step": {"9" * 400}, "text": ""}}': "expected a whole number",
    '{"episode_id": "0", "step": 0, "action_type": 4, "touch_yx": [0.5, 0]}': "a dual_point needs the column lift_yx",
    '{"episode_id": "0", "step": 0, "action_type": 3, "typed_text": 5}': "typed_text is 5, expected text",
    '{"episode_id": "0", "step": 0, "action_type": 3}': "the action type needs the column typed_text; leave its cells",
    '{"episode_id": "0", "step": 0, "action_type": 3, "typed_text": "\\ud800"}': "typed_text is not valid Unicode",
    "[1]": "row 1 (line 1) is [1], expected a JSON object",
    "{": "row 1 (line 1) is not JSON",
    "[" * 100_000: "row 1 (line 1) is not JSON",
    f'{{"episode_id": "0", "step": {"9" * 5000}, "text": ""}}': "row 1 (line 1) is not JSON",
}


@pytest.mark.parametrize("line", WRONG_JSON, ids=range(len(WRONG_JSON)))
def test_a_wrong_json_value_is_named_with_file_row_and_key(dataset, tmp_path, line):
    (tmp_path / "p.jsonl").write_text(f"{line}\n")
    found = problem(tmp_path / "p.jsonl", dataset)
    assert found.startswith(str(tmp_path / "p.jsonl")) and "row 1" in found and WRONG_JSON[line] in found


COLUMNS = {
    "": "is empty",
    "episode_id,step,text\n": "holds no row",
    "episode,step,text\n0,0,x\n": "has no column episode_id; its columns are 'episode', 'step', 'text'",
    "episode_id,stepp,text\n0,0,x\n": "has no column step",
    "episode_id,step\n0,0\n": "has no column for actions",
    "episode_id,step,step,text\n0,0,0,x\n": "has two columns step",
    "episode_id,step,action_type,touch_xy\n0,0,7,x\n": "unknown column 'touch_xy'; did you mean touch_y",
    "episode_id,step,action_type,Typed_Text\n0,0,7,x\n": "unknown column 'Typed_Text'; did you mean typed_text?",
    "episode_id,step,action_type,touch_y\n0,0,7,x\n": "has the column touch_y without touch_x",
    "episode_id,step,action_type,touch_yx,touch_y,touch_x\n0,0,7,,,\n": "has the columns touch_yx and touch_y; keep",
    "episode_id,step,text,touch_yx\n0,0,x,\n": "has the column touch_yx, which needs action_type",
}


@pytest.mark.parametrize("text", COLUMNS, ids=range(len(COLUMNS)))
def test_wrong_columns_are_named(dataset, tmp_path, text):
    (tmp_path / "p.csv").write_text(text)
    assert COLUMNS[text] in problem(tmp_path / "p.csv", dataset)


def test_two_rows_of_one_step_are_both_named(dataset, tmp_path):
    (tmp_path / "p.csv").write_text(f'{HEADER}\n0,0,7,,,,,\n0,1,3,,,,,"a\nb"\n\n0,0.0,7,,,,,\n')
    assert "row 3 (line 6): episode '0', step 0 is also in row 1 (line 2)" in problem(tmp_path / "p.csv", dataset)


def test_columns_that_are_not_read_are_listed(dataset, tmp_path):
    (tmp_path / "p.csv").write_text(
        "Unnamed: 0,episode_id,step,text,note\n" + "".join(f"{n},0,{n},x,\n" for n in range(13))
    )
    found = join(tmp_path / "p.csv", dataset, [0], tmp_path / "joined.parquet")
    assert found.lines() == ["columns that are not read: 'Unnamed: 0', 'note'"]


def test_bytes_of_another_encoding_are_named(dataset, tmp_path):
    (tmp_path / "p.csv").write_bytes(f"{HEADER}\n0,0,3,,,,,gr\xfc\xdfe\n".encode("latin-1"))
    assert "p.csv is not UTF-8" in problem(tmp_path / "p.csv", dataset)
    (tmp_path / "p.csv").write_bytes(f"{HEADER}\n".encode("utf-16"))
    assert "p.csv is not UTF-8" in problem(tmp_path / "p.csv", dataset)


def test_parquet_values_of_other_types_are_named(dataset, tmp_path):
    path = tmp_path / "p.parquet"
    for columns, words in (
        ({"episode_id": [1.5], "step": [0], "text": ["x"]}, "row 1: episode_id is 1.5, expected text"),
        ({"episode_id": ["0"], "step": [math.nan], "text": ["x"]}, "row 1: step is nan"),
        ({"episode_id": ["0"], "step": ["0"], "text": ["x"]}, "row 1: step is '0', expected a whole number"),
        ({"episode_id": ["0"], "step": [0], "text": [b"x"]}, "row 1: text is b'x', expected text"),
    ):
        pq.write_table(pa.table(columns), path)
        assert words in problem(path, dataset)
    path.write_bytes(path.read_bytes()[:-20])
    assert "p.parquet cannot be read" in problem(path, dataset) and "remove" not in problem(path, dataset)


cells = st.one_of(
    st.sampled_from(["0", "4", "0.5", "-1", "", "nan", "tap", "[0.5, 0.5]", '"', "\x00", "\x1b[2J"]), st.text()
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=2)),
    max_leaves=4,
)
COLUMN = st.sampled_from([*HEADER.split(","), "text", "touch_yx", "lift_yx", "other"])
HOSTILE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _is_read_or_refused(path, dataset):
    """One error line that names the file and holds no control character, or a row for each step."""
    try:
        rows = predicted(path, dataset, missing_as_wrong=True, ignore_surplus=True)
    except DatasetError as error:
        assert str(path) in str(error)
        assert str(error).replace("\n", "\x00").isprintable(), error
    else:
        assert len(rows) == len(KINDS)


@HOSTILE
@given(st.lists(COLUMN, max_size=9), st.lists(st.lists(cells, max_size=9), max_size=4))
def test_any_csv_is_read_or_refused(dataset, tmp_path, header, rows):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    (tmp_path / "p.csv").write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
    _is_read_or_refused(tmp_path / "p.csv", dataset)


@HOSTILE
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(dataset, tmp_path, content):
    for name in ("p.csv", "p.jsonl", "p.parquet"):
        (tmp_path / name).write_bytes(content)
        _is_read_or_refused(tmp_path / name, dataset)


@HOSTILE
@given(st.lists(st.dictionaries(COLUMN, values), max_size=4))
def test_any_jsonl_is_read_or_refused(dataset, tmp_path, rows):
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _is_read_or_refused(tmp_path / "p.jsonl", dataset)


def test_a_long_text_is_one_wrong_answer(dataset, tmp_path):
    lines = [{"episode_id": "0", "step": step, "text": "1 " * 50_000} for step in range(len(KINDS))]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert {one.predicted for one in predicted(tmp_path / "p.jsonl", dataset)} == {None}
