"""`vlm-agent phone`: its address, its messages about the task, and its exit status."""

import signal
import socket
import subprocess
import sys

import pytest

from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.simulator import sample_task
from vlm_agent.simulator.adb_daemon.wire import CNXN, MAX_PAYLOAD, VERSION, Packet, read_packet


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "vlm_agent.cli", "phone", "--port", "0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_serves_a_task_until_ctrl_c_and_reports_whether_it_was_reached():
    with start("--task", "general/test/7") as process:
        host, _, port = process.stdout.readline().removeprefix("adb connect ").strip().partition(":")
        assert process.stdout.readline() == f"goal: {sample_task('general', 'test', 7).goal}\n"
        with socket.create_connection((host, int(port)), timeout=10) as end, end.makefile("rb") as stream:
            end.sendall(Packet(CNXN, VERSION, MAX_PAYLOAD, b"host::").encoded())
            assert read_packet(stream).command == CNXN
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().split("\n") == ["", "not reached", ""]
        assert process.stderr.read() == ""
    assert process.returncode == OK
    assert host == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "expected", "message"),
    [
        (["--port", "5555"], FAILED, "twice"),
        (["--port", "99999"], USAGE, "not a port"),
        (["--task", "general/test"], USAGE, "not a task"),
    ],
)
def test_invalid_ports_and_tasks_are_refused(arguments, expected, message, capsys):
    try:
        status = main(["phone", *arguments])
    except SystemExit as error:
        status = error.code
    assert status == expected
    assert message in capsys.readouterr().err


def test_a_task_of_an_unknown_subset_is_refused(capsys):
    assert main(["phone", "--task", "games/test/7"]) == FAILED
    assert "'games'" in capsys.readouterr().err


def test_a_port_in_use_is_named(capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["phone", "--port", str(port)]) == FAILED
    assert str(port) in capsys.readouterr().err
