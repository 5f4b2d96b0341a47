"""Random lines: the shell answers each one, nothing on this machine runs or changes, and the phone still works."""

import random
import shlex
import subprocess
import threading

import adbutils
import numpy as np
import pytest
from helpers.phones.hostile_texts import PIECES, WHOLE, hostile_strings
from helpers.programs.canary import watched
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.shell import expansion
from vlm_agent.simulator.adb_daemon.shell.commands import TOOLS, shell_of
from vlm_agent.simulator.adb_daemon.shell.session import STDERR, STDOUT, TOO_LONG, Transcript
from vlm_agent.simulator.adb_daemon.shell.tools import grep

SCRIPT = "/sdcard/script"

PROGRAMS = sorted({*TOOLS, "sh", "sh -c", "exec", "exit", "export", "command -v", "which", "su", "/bin/sh", "python3"})

ARGUMENTS = (
    *("-n", "-p", "-e", "-E", "-f", "-rf", "-la", "-c", "-", "--", "0", "1", "-1", "9" * 400, "1e308", "nan", "10 300"),
    *("/sdcard/a", SCRIPT, "/dev/null", "/dev/tty", "/sdcard/*", "/*/../*", "..", "/etc/passwd", "~", "$HOME", "${?}"),
    *(
        "tap 10 20",
        "swipe 1 2 3 400 900",
        "text a%sb",
        "keyevent 3",
        "motionevent DOWN 1 1",
        "size 64x64",
        "size 65x999",
    ),
    *("start -n org.shop/.Home", "force-stop org.shop", "broadcast -a ADB_INPUT_B64 --es msg YQ==", "list packages"),
    *("enable com.android.adbkeyboard/.AdbIME", "set com.android.adbkeyboard/.AdbIME", "put system a b", "dump"),
    *(
        "window",
        "activity",
        "input_method",
        "+%s",
        "'[a-z]*\\(b\\)\\1'",
        "'(a+)+$'",
        "'[[:alpha:]'",
        "= ''",
        "! ! x",
        "]",
    ),
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)

WORDS = st.one_of(
    st.sampled_from(ARGUMENTS),
    st.sampled_from([text for text in WHOLE if len(text) < 100 and "\0" not in text]),
    st.sampled_from([piece for piece in PIECES if piece != "\0"]),
    TEXTS,
    TEXTS.map(shlex.quote),
)

COMMANDS = st.builds(
    lambda name, words, tail: " ".join((name, *words)) + tail,
    st.sampled_from(PROGRAMS),
    st.lists(WORDS, max_size=4),
    st.sampled_from(["", " > /sdcard/a", " >> /sdcard/a", " < /sdcard/a", " 2>&1", " &>/dev/null", " 2>/data/b", " >"]),
)


def joined(lines):
    """Lines of other lines: lists, pipes, groups, substitutions, assignments, scripts."""
    forms = (
        "({0})",
        "{{ {0}; }}",
        "$({0})",
        "`{0}`",
        'A="$({0})" {1}',
        "! {0}",
        "echo {0} > /sdcard/script; sh /sdcard/script",
    )
    operators = (";", "&&", "||", "|", "&", "\n", " ")
    return st.one_of(
        st.builds(lambda form, first, second: form.format(first, second), st.sampled_from(forms), lines, lines),
        st.builds(lambda operator, first, second: first + operator + second, st.sampled_from(operators), lines, lines),
        lines.map(lambda line: f"sh -c {shlex.quote(line)}"),
    )


LINES = st.recursive(COMMANDS, joined, max_leaves=8)


def run_safely(handset: Handset, line: str) -> Transcript:
    """Runs a line and checks that it is answered, leaves this machine alone and the phone alive."""
    shell = shell_of(handset)
    with watched() as done:
        ran = shell.run(line)
    assert done == []
    assert 0 <= ran.status < 256
    assert {kind for kind, _ in ran.written} <= {STDOUT, STDERR}
    assert shell.run("echo alive") == Transcript(((STDOUT, b"alive\n"),), 0)
    return ran


@pytest.fixture
def handset() -> Handset:
    return Handset(SimulatedPhone(7))


@settings(max_examples=400, deadline=None)
@given(LINES)
def test_every_line_is_answered_and_leaves_the_machine_alone(line):
    handset = Handset(SimulatedPhone(7))
    handset.files.put("/sdcard/a", b"one\ntwo\n")
    run_safely(handset, line)
    assert handset.phone.screenshot().shape == (*handset.phone.size, 3)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x7F), max_size=200))
def test_lines_of_control_characters_and_signs_are_answered(line):
    run_safely(Handset(SimulatedPhone(7)), line)


def test_the_watch_notices_programs_and_files(tmp_path):
    """Otherwise the tests here could not fail."""
    with watched() as done:
        (tmp_path / "a").write_text("x")
        (tmp_path / "a").unlink()
        subprocess.run(["true"], check=True)
    assert [event.partition(" ")[0] for event in done][:3] == ["open", "os.remove", "subprocess.Popen"]


ON_THIS_MACHINE = (
    "{0}/run", "sh {0}/run", "sh -c {0}/run", ". {0}/run", "exec {0}/run", "$({0}/run)", "`{0}/run`",
    "echo | {0}/run", "PATH={0} run", "export PATH={0}; run", "{0}/run & echo a", "cat {0}/run", "cat < {0}/run",
    "base64 {0}/run", "cp {0}/run /sdcard/run; cat /sdcard/run", "ls {0}", "echo {0}/*", "grep -r . {0}",
    "test -e {0}/run && cat {0}/run", "echo a > {0}/new", "echo a >> {0}/run", "rm -rf {0}", "mv {0}/run {0}/gone",
    "mkdir -p {0}/new", "touch {0}/new", "screencap -p {0}/new.png", "uiautomator dump {0}/new.xml",
    "rm -rf /sdcard/../..{0}", "cat /sdcard/../../..{0}/run",
)  # fmt: skip


@pytest.mark.parametrize("line", ON_THIS_MACHINE)
def test_a_folder_of_this_machine_is_not_run_read_or_changed(handset, tmp_path, line):
    program = tmp_path / "run"
    program.write_text(f"#!/bin/sh\necho secret > {tmp_path}/ran\necho secret\n")
    program.chmod(0o755)
    ran = run_safely(handset, line.format(tmp_path))
    assert b"secret" not in b"".join(data for _, data in ran.written)
    assert sorted(tmp_path.iterdir()) == [program]
    assert "secret" in program.read_text()


LONG = {
    "words": "echo " + "a " * 30_000,
    "one word": "echo " + "a" * (1 << 20),
    "quotes": "echo " + "'a'" * 100_000,
    "commands": "a;" * 30_000,
    "brackets": "echo " + "$(" * 30_000,
    "braces": "echo {" + "," * 1_000_000,
    "backslashes": "echo " + "\\" * 300_000,
    "pipes": "echo a" + "|cat" * 10_000,
    "negations": "test " + "! " * 30_000 + "x",
    "patterns": "echo " + "[a*?" * 20_000,
    "long number": "exit " + "9" * 100_000,
    "no line at all": "\n" * 1_000_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_line_is_answered(handset, name):
    run_safely(handset, LONG[name])


@pytest.mark.parametrize(
    "line",
    [f"sh {SCRIPT}", f"echo $(sh {SCRIPT})", f"( ( sh {SCRIPT} ) )", f"cat {SCRIPT} | sh", f"sh {SCRIPT}; sh {SCRIPT}"],
)
def test_a_script_that_runs_itself_ends(handset, line):
    handset.files.put(SCRIPT, line.encode())
    ran = run_safely(handset, line)
    assert (ran.status, ran.written[-1][1]) == (TOO_LONG, b"/system/bin/sh: too deep\n")


def test_lists_one_after_another_are_not_nested(handset):
    ran = run_safely(handset, "(true); $(true); { sh -c true; };" * 30 + "echo a")
    assert ran == Transcript(((STDOUT, b"a\n"),), 0)


@pytest.mark.parametrize("line", ["mkdir -p {}", "mkdir {}", "echo > {}", "touch {}", "screencap -p {}"])
@pytest.mark.parametrize("path", ["/sdcard/" + "a/" * 5_000, "/sdcard/" + "a" * 300], ids=["path", "name"])
def test_a_file_name_that_is_too_long_is_refused(handset, line, path):
    ran = run_safely(handset, line.format(path.rstrip("/")))
    assert ran.status == 1
    assert handset.files == {}
    assert "mkdir" not in line or b"File name too long" in ran.written[-1][1]


def test_a_line_ends_after_its_time(handset, monkeypatch):
    monkeypatch.setattr(expansion, "MAX_SECONDS", 0.05)
    ran = run_safely(handset, "true;" * 20_000)
    assert ran.status == TOO_LONG
    assert b"runs for more than 0.05 seconds" in ran.written[-1][1]


def test_file_names_multiply_only_up_to_a_limit(handset):
    ran = run_safely(handset, "echo " + "/*/.." * 30)
    assert (ran.status, ran.written[-1][1]) == (TOO_LONG, b"/system/bin/sh: Argument list too long\n")


def test_a_search_ends_after_its_time(handset, monkeypatch):
    monkeypatch.setattr(grep, "SECONDS", 0.0)
    handset.files.put("/sdcard/a", b"aaa\n" * 1000)
    ran = run_safely(handset, "grep b /sdcard/a")
    assert ran.status == 2
    assert b"takes too long" in ran.written[-1][1]


def test_a_served_phone_answers_hostile_lines_with_a_status_and_lives_on(one_adb, monkeypatch):
    broken = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    rng = random.Random(0)
    texts = [text for text in hostile_strings() if "\0" not in text and 0 < len(text) < 60_000]
    programs = ["", "echo ", "input text ", "sh -c ", "am broadcast -a ADB_INPUT_TEXT --es msg "]
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server:
        client = adbutils.AdbClient(port=one_adb.port)
        client.connect(server.serial)
        device = client.device(server.serial)
        with watched() as done:
            for text in [*WHOLE[:20], *rng.sample(texts, 100)]:
                if "\0" not in text:
                    status = device.shell2(rng.choice(programs) + text + " ", v2=True).returncode
                    assert 0 <= status < 256
            device.sync.push(("echo " + "ab'\"`$(" * 150_000).encode()[: 1 << 20], SCRIPT)
            assert device.shell2(f"sh {SCRIPT}", v2=True).returncode == 1
            assert device.shell2("echo alive; false", v2=True).output == "alive\n"
        device.shell("input keyevent WAKEUP HOME")
        np.testing.assert_array_equal(np.array(device.screenshot()), handset.phone.screenshot())
        client.disconnect(server.serial)
    assert (broken, done) == ([], [])
