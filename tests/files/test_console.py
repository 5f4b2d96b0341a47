"""Progress and tables, on a terminal and in a log; texts that cannot operate the terminal."""

import ast
import logging
import signal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import vlm_agent
from vlm_agent.files.console import (
    Progress,
    clock_time,
    make_console,
    neutral,
    new_table,
    plain_log,
    say,
    stopped_by_signals,
)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_a_minute(clock):
    log = StringIO()
    progress = Progress(Console(file=log, width=40), 1000)
    with progress.shown():
        for clock[0] in (30.0, 61.0, 62.0):
            progress.advance(100, "no history")
        assert log.getvalue().splitlines() == ["no history: 200 of 1,000 steps (3.3/s), ETA 0:04:04"]
    assert log.getvalue().splitlines()[1:] == ["no history: 300 of 1,000 steps (4.8/s), ETA 0:02:25"]


@pytest.mark.parametrize(("columns", "width"), [(None, 160), ("100", 100)])
def test_tables_in_a_log_are_wide_unless_the_columns_are_known(monkeypatch, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", StringIO())
    assert make_console().width == width


def test_a_command_without_an_output_has_a_console(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console().width == 160


def test_a_log_gets_a_line_at_the_end_of_each_file_and_of_the_job(clock):
    log = StringIO()
    progress = Progress(Console(file=log), 4, "files")
    with progress.shown():
        for clock[0], is_stage_end in ((1.0, False), (2.0, True), (3.0, False), (4.0, False)):
            progress.advance(1, "[writing]", is_stage_end)
    assert log.getvalue().splitlines() == [
        "[writing]: 2 of 4 files (1.0/s), ETA 0:00:02",
        "[writing]: 4 of 4 files (1.0/s)",
    ]


def test_a_job_that_printed_its_last_line_does_not_repeat_it(clock):
    log = StringIO()
    progress = Progress(Console(file=log), 1, "files")
    with progress.shown():
        clock[0] = 1.0
        progress.advance(1, "writing", is_stage_end=True)
    assert log.getvalue().splitlines() == ["writing: 1 of 1 files (1.0/s)"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (3725, "1:02:05"), (90000, "25:00:00")]
)
def test_durations_are_hours_minutes_and_seconds(seconds, text):
    assert clock_time(seconds) == text


def test_a_log_of_a_job_that_is_still_at_its_beginning_has_no_eta(clock):
    log = StringIO()
    progress = Progress(Console(file=log), 1000, "bytes")
    clock[0] = 61.0
    progress.update(0, "0 of 3 files")
    assert log.getvalue() == "0 of 3 files\n"


def test_a_terminal_gets_a_bar():
    shown = StringIO()
    with Progress(Console(file=shown, force_terminal=True, width=120), 10).shown() as progress:
        progress.advance(5, "[trained]")
    assert "[trained]: 5 of 10 steps" in shown.getvalue()


def test_a_table_aligns_numbers_and_shows_brackets_as_they_are():
    shown = StringIO()
    table = new_table("Counts [95 %]", ("name", "count", "remark"), left=("remark",))
    table.add_row("first", "1", "a")
    table.add_row("second", "1,000", "longer")
    Console(file=shown, width=60).print(table)
    title, header, _, *rows = (line.rstrip() for line in shown.getvalue().splitlines() if line.strip())
    assert title == "Counts [95 %]"
    assert header.split() == ["name", "count", "remark"]
    assert rows[0].index("1") == rows[1].index("1,000") + 4
    assert rows[0].index("a") == rows[1].index("longer")


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\x00\x7f\u202egoal\ud800 [link=http://evil.invalid]x[/link] [red]:skull:"


def test_no_control_character_of_a_text_is_printed(capsys):
    table = new_table(HOSTILE, (HOSTILE,))
    table.add_row(HOSTILE)
    for error in (False, True):
        say(HOSTILE, stderr=error)
        for shown in (HOSTILE, table):
            make_console(stderr=error).print(shown)
    plain_log()
    # pytest sends captured log messages, as they were, between processes: without a surrogate
    logging.getLogger("vlm_agent.files.console").warning(HOSTILE.replace("\ud800", ""))
    for stream in capsys.readouterr():
        assert set("".join(stream.split("\n"))).isdisjoint(chr(code) for code in (*range(32), *range(127, 160), 0x202E))
        assert stream.count("goal") >= 3
        assert "[red]:skull:" in stream


def test_tabs_and_lines_stay():
    assert neutral("a\tb\nc é 日 👩\u200d🚀") == "a\tb\nc é 日 👩\u200d🚀"


def test_a_terminal_gets_colours_of_the_command_alone(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    make_console().print(HOSTILE, style="red")
    printed = capsys.readouterr().out
    assert printed.startswith("\x1b[31m")
    assert "\x1b]" not in printed
    assert "\x1b[2J" not in printed


def test_all_output_passes_the_console():
    """`print` and consoles of rich are for vlm_agent/files/console.py."""
    root = Path(vlm_agent.__file__).parent
    calls = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if path != root / "files" / "console.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "Console")
    ]
    assert calls == []


def test_a_signal_ends_the_block_unless_it_is_ignored(stop_signal):
    with pytest.raises(KeyboardInterrupt), stopped_by_signals():
        signal.raise_signal(stop_signal)
    signal.signal(stop_signal, signal.SIG_IGN)  # as nohup does with SIGHUP
    with stopped_by_signals():
        signal.raise_signal(stop_signal)
    assert signal.getsignal(stop_signal) is signal.SIG_IGN
