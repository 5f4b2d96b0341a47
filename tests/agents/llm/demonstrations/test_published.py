"""Tables of demonstrations: the published one, and tables that are not one."""

import random
import re
import time
from pathlib import Path

import pytest

from vlm_agent.agents.examples.encoder import goal_encoder
from vlm_agent.agents.examples.store import Demonstrations, DemonstrationsError
from vlm_agent.agents.examples.table import _parts, import_table, read_table
from vlm_agent.texts.secrets import MASK

PUBLISHED = Path(__file__).parents[4].parent / "shared/data/visiontasker/demonstration_database.csv"
needs_published = pytest.mark.skipif(not PUBLISHED.is_file(), reason=f"{PUBLISHED} (GPL-3.0) is not here")

TABLE = """\
app,task,traces
天气,打开雷达图,点击['天气'] - 点击['雷达 - 图'] - 在输入框：['默认文本: 城市']输入（“慕尼黑”）并回车
Clock,set an alarm,tap['Clock'] - swipe up - tap['Alarm']
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8-sig")
    return path


def test_actions_are_split_outside_of_names_and_known_ones_become_words(table):
    first, second = read_table(table)
    assert first.lines == ("点击“天气”", "点击“雷达 - 图”", "在“默认文本: 城市”输入“慕尼黑”并回车")
    assert (second.app, second.goal, second.lines) == (
        "Clock",
        "set an alarm",
        ("tap['Clock']", "swipe up", "tap['Alarm']"),
    )


def test_a_second_import_adds_nothing(table, tmp_path):
    store = Demonstrations(tmp_path / "store")
    assert import_table(table, store) == (2, 2)
    assert import_table(table, store) == (2, 0)
    assert [one.goal for one in store.all()] == ["打开雷达图", "set an alarm"]


def test_passwords_of_a_table_are_masked(tmp_path):
    path, store = tmp_path / "table.csv", Demonstrations(tmp_path / "store")
    typed = "在输入框:['密码'] 输入(“hunter2”)并回车 - type 'hunter3' into 'Password'"
    path.write_text(f"app,task,traces\nBank,log in,{typed}\n")
    assert [import_table(path, store) for _ in range(2)] == [(1, 1), (1, 0)]
    assert store.all()[0].lines == (f"在“密码”输入“{MASK}”并回车", f"type '{MASK}' into 'Password'")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("Clock,\u200b,tap", "the goal is empty"),
        ("Clock,set,\u200b", "it has no action"),
        (f"Clock,set,{' - '.join(['tap'] * 201)}", "it has 201 actions, and at most 200 are stored"),
        (f"Clock,set,{'t' * 501}", "an action has more than 500 characters"),
        (f"Clock,{'g' * 1001},tap", "its goal or app has more than 1000 characters"),
    ],
)
def test_a_row_that_is_not_stored_is_an_error_with_the_table_and_the_row(tmp_path, row, problem):
    path = tmp_path / "table.csv"
    path.write_text(f"app,task,traces\nClock,set an alarm,tap\n{row}\n")
    with pytest.raises(DemonstrationsError, match=rf"table\.csv, row 3: {problem}; correct the row or remove it$"):
        import_table(path, Demonstrations(tmp_path / "store"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"app,task\nClock,set\n", r"has no column traces; .* app, task, traces"),
        (b"", "has no column app, task, traces"),
        (b"\xff\xfe\x00", "is not a table in UTF-8"),
        (b"app,task,traces\nClock,set an alarm\n", "row 2: the app, the task or its actions are missing"),
        (b"task,traces,app\nset an alarm,tap['Clock']\n", "row 2: the app, the task or its actions are missing"),
        (b"app,task,traces\nClock,set,tap['Clock, big'] - tap['Alarm']\n", "row 2: more values than columns"),
        (b'app,task,traces\nClock,"set an alarm,tap\n', "not CSV"),
        (b"app,task,traces\nClock,set,tap\nClock," + b"g" * 2000 + b",tap\n", "more than 1000 characters"),
        (b"app,task,traces\nClock,set," + b" - ".join([b"tap"] * 300) + b"\n", "300 actions"),
    ],
)
def test_a_table_that_is_not_one_is_refused_and_the_store_is_unchanged(tmp_path, content, problem):
    path, store = tmp_path / "wrong.csv", Demonstrations(tmp_path / "store")
    path.write_bytes(content)
    with pytest.raises(DemonstrationsError, match=problem):
        import_table(path, store)
    assert store.all() == ()


@needs_published
def test_the_published_table_imports_whole(tmp_path):
    store = Demonstrations(tmp_path / "store")
    rows, new = import_table(PUBLISHED, store)
    text = PUBLISHED.read_text(encoding="utf-8-sig")
    assert rows == new == len(text.strip().splitlines()) - 1
    lines = [line for one in store.all() for line in one.lines]
    assert len(lines) == text.count("点击[") + text.count("在输入框")
    assert all(re.fullmatch(r"点击“.+”|在“.+”输入“.+”(并回车)?", line) for line in lines)
    for one in store.all():
        assert store.nearest(one.goal, goal_encoder("words")) == one


def test_separators_are_those_of_the_published_format_for_any_text():
    """A separator is in a name if the next bracket after it closes one."""
    published, chance = re.compile(r"\s+-\s+(?![^\[]*'\])"), random.Random(1)
    for _ in range(5000):
        text = "".join(chance.choices(["a", " - ", "['", "']", "[", "]", "'", " ", "-"], k=chance.randint(1, 14)))
        text = " ".join(text.split())
        assert _parts(text) == published.split(text)


def test_a_long_cell_takes_no_quadratic_time(tmp_path):
    start = time.process_time()
    for cell in (" " * 120_000 + "tap", "tap - " * 20_000 + "']", "点击['" * 20_000, "在输入框：['a']输入（“" * 5_000):
        path = tmp_path / "long.csv"
        path.write_text(f"app,task,traces\nClock,set,{cell}\n", encoding="utf-8")
        list(read_table(path))
    assert time.process_time() - start < 10
