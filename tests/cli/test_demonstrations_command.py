"""`vlm-agent demonstrations`: list, show, remove, import, nearest, and its errors."""

import pytest

from vlm_agent.agents.examples.store import Demonstrations
from vlm_agent.cli import FAILED, OK, USAGE, main


@pytest.fixture
def store(tmp_path):
    store = Demonstrations(tmp_path / "shown.sqlite")
    store.add("turn on the wifi", "Settings", ["tap 'Settings'", "tap 'Wifi'"])
    store.add("set an alarm for 7:30", "Clock", ["tap 'Clock'"])
    return store


def command(*arguments) -> int:
    try:
        return main(["demonstrations", *map(str, arguments)])
    except SystemExit as error:
        return error.code


def test_list_show_nearest_and_remove(store, capsys):
    assert command(store.path) == OK
    listing = capsys.readouterr().out
    assert "turn on the wifi" in listing
    assert "set an alarm for 7:30" in listing
    assert command(store.path, "--show", 1) == OK
    assert "2. tap 'Wifi'" in capsys.readouterr().out
    assert command(store.path, "--nearest", "wake me: an alarm for 6:00", "--encoder", "words") == OK
    assert "2: set an alarm for 7:30 in Clock" in capsys.readouterr().out
    assert command(store.path, "--remove", 1) == OK
    assert [one.number for one in store.all()] == [2]


def test_import_creates_the_store(tmp_path, capsys):
    table = tmp_path / "table.csv"
    table.write_text("app,task,traces\nClock,set an alarm,tap - tap\n")
    assert command(tmp_path / "new", "--import", table) == OK
    assert "1 rows read, 1 of them added" in capsys.readouterr().out
    assert Demonstrations(tmp_path / "new").get(1).lines == ("tap", "tap")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--show", 7], FAILED, "has no demonstration 7; it has 1, 2"),
        (["--nearest", "goal"], USAGE, "belong together"),
        (["--nearest", "goal", "--encoder", "no-such-encoder"], FAILED, "encoder no-such-encoder"),
        (["--import", "missing.csv"], FAILED, "missing.csv cannot be read"),
    ],
)
def test_errors_are_one_line(store, arguments, status, message, capsys):
    assert command(store.path, *arguments) == status
    assert message in capsys.readouterr().err


def test_a_missing_and_a_wrong_store(tmp_path, capsys):
    assert command(tmp_path / "none") == USAGE
    assert "does not exist" in capsys.readouterr().err
    wrong = tmp_path / "wrong"
    wrong.write_text("app,goal\n" * 300)
    assert command(wrong) == FAILED
    assert "wrong is not a store of demonstrations" in " ".join(capsys.readouterr().err.split())
