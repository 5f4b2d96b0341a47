"""The phone's shell: it parses lines like a real one and records every command that a line runs."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.simulator.adb_daemon.files import Files
from vlm_agent.simulator.adb_daemon.shell.session import NOT_FOUND, SYNTAX_ERROR, TOO_LONG, Shell, output

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


COMMANDS = {"echo": lambda call: output(" ".join(call.words))}


def ran(line: str) -> list[tuple[str, ...]]:
    """The words of every command that the line runs."""
    record = []
    Shell(COMMANDS, record.append, Files(), {}).run(line)
    return record


@settings(deadline=None)
@given(TEXTS)
def test_a_quoted_word_is_one_word_whatever_its_content(text):
    assert ran(f"echo {shlex.quote(text)}") == [("echo", text)]


@settings(deadline=None)
@given(TEXTS)
def test_no_line_breaks_the_shell(line):
    ran(line)
    ran(f'echo "{line}')


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("echo a  'b c' d\\ e", [("echo", "a", "b c", "d e")]),
        ("echo \"a'b\" 'c\"d' \"\\$x\" '\\$x'", [("echo", "a'b", 'c"d', "$x", "\\$x")]),
        ("echo a'b'\"c\"", [("echo", "abc")]),
        ("echo '' \"\"", [("echo", "", "")]),
        ("echo a;rm b", [("echo", "a"), ("rm", "b")]),
        ("echo a\nrm b", [("echo", "a"), ("rm", "b")]),
        ("echo a|rm b", [("echo", "a"), ("rm", "b")]),
        ("echo a&rm b", [("echo", "a"), ("rm", "b")]),
        ("(rm a)", [("rm", "a")]),
        ("echo a && rm b && echo c", [("echo", "a"), ("rm", "b")]),
        ("echo a || rm b", [("echo", "a")]),
        ("rm a || echo b", [("rm", "a"), ("echo", "b")]),
        ("echo $(rm b)", [("rm", "b"), ("echo",)]),
        ('echo "$(echo b) c"', [("echo", "b"), ("echo", "b c")]),
        ("echo `rm b`", [("rm", "b"), ("echo",)]),
        ("echo $(echo a b) '$(rm b)' '`rm b`'", [("echo", "a", "b"), ("echo", "a", "b", "$(rm b)", "`rm b`")]),
        ("echo $(echo $(rm a))", [("rm", "a"), ("echo",), ("echo",)]),
        ("echo a > /sdcard/b", [(">", "/sdcard/b"), ("echo", "a")]),
        ("echo a # rm b", [("echo", "a")]),
        ("echo a#b", [("echo", "a#b")]),
        ("echo *", [("echo", "data", "dev", "sdcard", "system")]),
        ("echo '*' \\* d*", [("echo", "*", "*", "data", "dev")]),
        ("echo $HOME '$HOME' $nothing \"$nothing\" $", [("echo", "/", "$HOME", "", "$")]),
        ("rm a; echo $?", [("rm", "a"), ("echo", str(NOT_FOUND))]),
        ("echo $(</dev/null)", [("<", "/dev/null"), ("cat",), ("echo",)]),
    ],
)
def test_a_line_runs_what_a_real_shell_would_run(line, commands):
    assert ran(line) == commands


@pytest.mark.parametrize("line", ["echo 'a", 'echo "a', "echo $(a", "echo `a", "rm x; echo 'a", "echo " + "$(" * 9])
def test_a_line_with_an_unclosed_quote_runs_nothing(line):
    record = []
    assert Shell({}, record.append, Files(), {}).run(line).status == SYNTAX_ERROR
    assert record == []


def test_nesting_of_substitutions_is_limited():
    line = "echo a"
    for _ in range(40):
        line = f"echo $({line})"
    assert Shell({}, [].append, Files(), {}).run(line).status == TOO_LONG
    assert ran(line) == []


def test_only_the_end_of_a_pipe_prints_and_the_last_status_counts():
    result = Shell(COMMANDS, [].append, Files(), {}).run("echo a; echo b | echo c; nothing")
    assert (result.out, result.status) == (b"a\nc\n", NOT_FOUND)
    assert b"nothing: inaccessible or not found" in result.written[-1][1]


def test_a_script_runs_without_its_zero_bytes():
    files, record = Files(), []
    files.put("/sdcard/script", b"ec\0ho 'a\0b'\n")
    Shell(COMMANDS, record.append, files, {}).run("sh /sdcard/script")
    assert record == [("sh", "/sdcard/script"), ("echo", "ab")]
