"""The file of demonstrations: atomic, marked, and refused in one sentence where it is not one."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.models.tiny_encoder import write_encoder

from vlm_agent.agents.examples.encoder import EncoderError, goal_encoder
from vlm_agent.agents.examples.store import Demonstrations, DemonstrationsError
from vlm_agent.texts.secrets import MASK

WIFI = ("turn on the wifi", "Settings", ["tap 'Settings'", "tap 'Wifi'"])
ALARM = ("set an alarm for 7:30", "Clock", ["tap 'Clock'", "tap 'Alarm'", "type '7:30' into 'Time'"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stores" / "shown.sqlite"


def test_a_demonstration_is_read_back_in_another_process(path):
    added = Demonstrations(path).add(*WIFI)
    assert Demonstrations(path).all() == (added,)
    assert (added.goal, added.app, added.lines) == ("turn on the wifi", "Settings", ("tap 'Settings'", "tap 'Wifi'"))


def test_the_nearest_goal_by_words_and_the_last_of_equally_near_ones(path):
    store, encoder = Demonstrations(path), goal_encoder("words")
    assert store.nearest("turn on the wifi", encoder) is None
    assert not path.exists()  # reading does not create it
    store.add(*WIFI)
    alarm = store.add(*ALARM)
    newer = store.add("turn on the wifi", "Settings", ["swipe down", "tap 'Wifi'"])
    assert store.nearest("Please turn the wifi on!", encoder) == newer
    assert store.nearest("an alarm for 9:15", encoder) == alarm


def test_the_nearest_goal_by_a_sentence_encoder(path, tmp_path):
    encoder = goal_encoder(str(write_encoder(tmp_path / "encoder")))
    store = Demonstrations(path)
    for goal in ("open settings", "buy milk", "open a clock"):
        store.add(goal, "", ["tap 'A'"])
    assert [store.nearest(one.goal, encoder) for one in store.all()] == list(store.all())
    with pytest.raises(EncoderError, match="no-such-encoder is neither"):
        goal_encoder("no-such-encoder")


def test_stored_goals_are_encoded_once_for_each_encoder_and_again_after_a_change(path):
    class Counting:
        def __init__(self):
            self.encoded = []

        def encode(self, texts):
            self.encoded.append(len(texts))
            return words.encode(texts)

    words, store = goal_encoder("words"), Demonstrations(path)
    store.add(*WIFI)
    encoder, other = Counting(), Counting()
    for _ in range(2):
        store.nearest("wifi", encoder)
    assert sorted(encoder.encoded) == [1, 1, 1]  # the stored goal once, the asked one twice
    store.nearest("wifi", other)
    assert sorted(other.encoded) == [1, 1]
    store.add(*ALARM)
    store.nearest("wifi", other)
    assert sorted(other.encoded) == [1, 1, 1, 2]


def test_chinese_goals_share_characters_and_pairs(path):
    store, encoder = Demonstrations(path), goal_encoder("words")
    store.add("打开蓝牙", "设置", ["点击['设置']"])
    brightness = store.add("调低屏幕亮度", "设置", ["点击['亮度']"])
    assert store.nearest("把屏幕亮度调高", encoder) == brightness


def test_the_same_demonstration_is_stored_once_and_removed_texts_leave_the_file(path):
    store = Demonstrations(path)
    first = store.add(*WIFI)
    assert store.add(*WIFI) == first
    store.add(*ALARM)
    assert store.remove(first.number) == first
    assert b"wifi" not in path.read_bytes()
    with pytest.raises(DemonstrationsError, match=r"has no demonstration 1; it has 2"):
        store.remove(first.number)
    assert store.add(*WIFI).number == 3  # numbers are not used again


def test_the_digest_is_of_the_content(path, tmp_path):
    first, second = Demonstrations(path), Demonstrations(tmp_path / "other.sqlite")
    first.add(*WIFI)
    assert first.digest() != second.digest()
    second.add(*WIFI)
    assert first.digest() == second.digest()


def test_texts_become_one_line_and_card_numbers_are_masked(path):
    store = Demonstrations(path)
    added = store.add("pay\nwith 4111 1111 1111 1111", "Shop", ["type '4111-1111-1111-1111'\u202e into 'No.'", " "])
    assert added.goal == f"pay with {MASK}"
    assert added.lines == (f"type '{MASK}' into 'No.'",)
    assert b"1111" not in path.read_bytes()


def test_what_is_typed_into_a_field_for_a_secret_is_masked_wherever_the_demonstration_has_it(path):
    lines = ["type 'anna' into 'User'", "type 'hunter2' into 'Password'", "tap 'hunter2'", "type '12' into 'PIN'"]
    added = Demonstrations(path).add("log in with hunter2", "Bank", lines)
    assert added.goal == f"log in with {MASK}"
    assert added.lines == (
        "type 'anna' into 'User'",
        f"type '{MASK}' into 'Password'",
        f"tap '{MASK}'",
        f"type '{MASK}' into 'PIN'",
    )
    assert b"hunter2" not in path.read_bytes()


@pytest.mark.parametrize(
    ("goal", "lines", "problem"),
    [
        (" ", ["tap 'A'"], "the goal is empty"),
        ("a goal", [], "it has no action"),
        ("a goal", ["tap"] * 201, "201 actions"),
        ("g" * 1001, ["tap"], "more than 1000"),
        ("a goal", ["t" * 501], "more than 500"),
    ],
)
def test_a_demonstration_that_no_prompt_could_show_is_refused(path, goal, lines, problem):
    with pytest.raises(DemonstrationsError, match=problem):
        Demonstrations(path).add(goal, "", lines)
    assert Demonstrations(path).all() == ()


def test_a_file_that_is_not_a_store_is_refused_in_one_sentence_that_names_it(path):
    path.parent.mkdir()
    stores = {"text": b"goal,app,lines\n" * 200, "short": b"SQLite format 3\0"}
    for name, content in stores.items():
        wrong = path.with_name(name)
        wrong.write_bytes(content)
        for use in (Demonstrations(wrong).all, lambda: Demonstrations(wrong).add(*WIFI)):  # noqa: B023 (used here)
            with pytest.raises(DemonstrationsError, match=f"{name} is .*(choose another|move it away)") as error:
                use()
            assert "\n" not in str(error.value)
        assert wrong.read_bytes() == content
    with pytest.raises(DemonstrationsError, match=r"stores cannot be opened"):
        Demonstrations(path.parent).all()


def test_another_programs_database_and_another_version_are_refused(path):
    Demonstrations(path).add(*WIFI)
    other = path.with_name("other.sqlite")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    with pytest.raises(DemonstrationsError, match=r"other\.sqlite is an SQLite file of another program"):
        Demonstrations(other).add(*WIFI)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 3")
    with pytest.raises(DemonstrationsError, match=r"has version 3 .* reads version 2"):
        Demonstrations(path).all()


def test_a_store_cut_at_any_page_is_refused(path):
    store = Demonstrations(path)
    for number in range(6):
        store.add(f"goal {number}", "", ["tap 'A'" * 60] * 40)
    whole = path.read_bytes()
    for size in (1, 100, 600, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DemonstrationsError, match=r"shown\.sqlite is .*"):
            Demonstrations(path).all()


def test_an_empty_file_is_an_empty_store(path):
    path.parent.mkdir()
    path.touch()
    assert Demonstrations(path).all() == ()
    Demonstrations(path).add(*WIFI)
    assert len(Demonstrations(path).all()) == 1


ADDING = """
import sys
from pathlib import Path
from vlm_agent.agents.examples.store import Demonstrations
store = Demonstrations(Path(sys.argv[1]))
for number in range(100_000):
    store.add(f"goal {number}", "app", [f"tap {number}"] * 100)
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_every_finished_demonstration_and_no_half_one(path):
    finished = 0
    for delay in (0.0, 0.03, 0.07):
        writer = subprocess.Popen([sys.executable, "-c", ADDING, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        finished = max(finished, 1 + len(writer.stdout.read().split()))
        writer.wait()
        kept = Demonstrations(path).all()
        assert len(kept) in (finished, finished + 1)
        assert all(len(one.lines) == 100 for one in kept)


@pytest.mark.parametrize("lines", ["[" * 100_000, '{"a": 1}', '"tap"', "[1]"])
def test_actions_that_are_no_list_of_texts_are_a_damaged_store(path, lines):
    Demonstrations(path).add(*WIFI)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE demonstrations SET lines = ?", (lines,))
    with pytest.raises(DemonstrationsError, match=r"is a damaged store of demonstrations \(demonstration 1: "):
        Demonstrations(path).all()


@pytest.mark.parametrize("recorded", [float("inf"), 1e300, 2**63 - 1, -1, "today"])
def test_a_time_that_is_no_date_is_a_damaged_store(path, recorded):
    Demonstrations(path).add(*WIFI)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE demonstrations SET recorded = ?", (recorded,))
    with pytest.raises(DemonstrationsError, match=r"^\S+ is a damaged store of demonstrations \(demonstration 1: .*$"):
        Demonstrations(path).all()
