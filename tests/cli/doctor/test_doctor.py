"""The doctor: real tools of this machine, and fakes on the path that hang, print garbage or fail."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from helpers.phones import adb_servers

from vlm_agent.cli import FAILED, INTERRUPTED, OK, main
from vlm_agent.cli.doctor import examine
from vlm_agent.cli.doctor.check import AbsentError, BrokenError
from vlm_agent.cli.doctor.checks import CHECKS
from vlm_agent.cli.doctor.examine import Finding

LIMITS = (2.0, 15.0, 45.0)
"""Time limits in seconds: the first in which a busy machine starts a process of the doctor and a shell script in it."""

SLURM = ("sbatch", "srun", "squeue", "sinfo")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts a shell script on the path, before all other programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return put


@pytest.fixture
def slurm(programs):
    """A function that sets what `sinfo` does, beside clients that do nothing."""
    for name in SLURM:
        programs(name, "")
    return lambda script: programs("sinfo", script)


def ends(pid: int) -> bool:
    """Whether a process that was killed ends; the kernel takes a moment."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_every_check_says_what_it_does_who_needs_it_and_what_to_do():
    for name, check in CHECKS.items():
        assert check.action, name
        assert check.needed_by, name
        assert check.remedy, name
        assert "\n" not in check.remedy, name
    assert [name for name, check in CHECKS.items() if check.is_required] == ["training"]


def test_a_working_controller_is_reported_with_its_partitions(slurm):
    slurm("echo 'gpu|up|4'; echo 'cpu|up|12'; echo 'old|down|3'")
    finding = examine.examine("slurm")
    assert (finding.status, finding.found) == ("works", "gpu (4 nodes), cpu (12 nodes)")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("printf 'Segmentation \\033[31mviolation\\n\\n'", "sinfo does not list partitions; it prints"),
        ("exit 0", "sinfo does not list partitions"),
        ("echo unreachable >&2; exit 1", "exits with status 1: unreachable"),
        ("echo 'gpu|down|4'", "no partition is up: gpu"),
        ("kill -SEGV $PPID", "its process ended with signal SIGSEGV"),
    ],
)
def test_a_broken_tool_is_reported_in_one_line_without_control_characters(slurm, script, problem):
    slurm(script)
    finding = examine.examine("slurm")
    assert finding.status == "broken"
    assert problem in finding.problem
    assert finding.problem.isprintable()
    assert "login node" in finding.remedy


def test_a_tool_that_hangs_is_killed_with_what_it_started_when_its_time_is_over(slurm, tmp_path):
    slurm(f"sleep 1000 & echo $$ $! > {tmp_path}/pids; wait")
    for limit in LIMITS:
        finding = examine.examine("slurm", limit)
        assert (finding.status, finding.problem) == (
            "broken",
            f"no result within {limit:g} s, after which it was killed",
        )
        if (tmp_path / "pids").exists() and len(pids := (tmp_path / "pids").read_text().split()) == 2:
            break
    assert all(ends(int(pid)) for pid in pids)


def test_a_machine_without_slurm_lacks_it_and_nothing_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = examine.examine("slurm")
    assert (finding.status, finding.problem) == ("absent", "not on the path: sbatch, srun, squeue, sinfo")


@pytest.fixture
def adb_port(tmp_path, monkeypatch):
    """A port of adb's server that only this test uses."""
    port = adb_servers.free_port()
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
    monkeypatch.setenv("HOME", str(tmp_path))
    return port


@pytest.mark.skipif(adb_servers.PROGRAMS["debian"] is None, reason=adb_servers.MISSING)
def test_adb_works_and_a_server_that_the_check_started_is_stopped(adb_port):
    assert CHECKS["adb"].run().endswith("0 phone(s)")
    assert not adb_servers._listens(adb_port)


@pytest.mark.skipif(adb_servers.PROGRAMS["debian"] is None, reason=adb_servers.MISSING)
def test_a_running_server_of_adb_is_not_stopped(tmp_path, monkeypatch):
    with adb_servers.AdbServer(adb_servers.PROGRAMS["debian"], tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        CHECKS["adb"].run()
        assert adb_servers._listens(server.port)


@pytest.mark.parametrize(
    ("script", "problem"),
    [("echo a phone; exit 0", "prints no version of adb, but 'a phone'"), ("exit 3", "exits with status 3")],
)
def test_another_program_under_the_name_adb_is_broken(adb_port, programs, monkeypatch, script, problem):
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(programs("adb", script)))
    with pytest.raises(BrokenError, match=problem):
        CHECKS["adb"].run()


def test_chromium_renders_a_page():
    assert CHECKS["chromium"].run().startswith("Chromium ")


def test_a_browser_that_does_not_start_is_broken_and_a_missing_one_absent(programs, monkeypatch):
    monkeypatch.setenv("CHROMIUM", str(programs("chromium", "exit 1")))
    assert "does not start" in examine.examine("chromium").problem
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(AbsentError, match="not an executable program"):
        CHECKS["chromium"].run()


@pytest.mark.ocr
def test_a_drawn_word_is_read():
    assert CHECKS["ocr"].run().startswith("RapidOCR ")


def test_this_machine_trains_a_layer():
    assert "PyTorch" in CHECKS["training"].run()


def test_a_gpu_that_pytorch_cannot_use_is_broken_and_a_hidden_one_absent(programs, monkeypatch):
    programs("nvidia-smi", "echo NVIDIA H100, 470.82.01")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("gpu", "training"):
        with pytest.raises(BrokenError, match=r"1 GPU\(s\) \(NVIDIA H100\) that PyTorch cannot use"):
            CHECKS[name].run()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(AbsentError, match=r"hides 1 GPU\(s\)"):
        CHECKS["gpu"].run()


def test_a_missing_package_is_absent(monkeypatch):
    monkeypatch.setattr("vlm_agent.cli.doctor.check.find_spec", lambda name: None)
    for name in ("deepspeed", "chromium", "ocr", "serving"):
        with pytest.raises(AbsentError, match="is not installed"):
            CHECKS[name].run()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["training", "bfloat16", "deepspeed", "serving"])
def test_what_imports_large_libraries_ends_within_the_limit_on_this_machine(name):
    finding = examine.examine(name)
    assert finding.status in (("works", "absent") if name == "bfloat16" else ("works",)), finding


def statuses(monkeypatch, **broken: str) -> None:
    """Replaces the checks' results: all work except those of `broken`, name → status."""

    def examined(name: str) -> Finding:
        status = broken.get(name, "works")
        return Finding(name, status, 0.1) if status == "works" else Finding(name, status, 0.1, "", "is gone", "get it")

    monkeypatch.setattr(examine, "examine", examined)


def test_only_a_required_check_changes_the_exit_status(monkeypatch, capsys):
    statuses(monkeypatch, adb="broken", gpu="absent")
    assert main(["doctor"]) == OK
    printed = capsys.readouterr().out
    assert "adb: is gone. To do: get it. Needed by: act" in printed
    assert len([line for line in printed.splitlines() if "is gone" in line]) == 2
    statuses(monkeypatch, training="broken")
    assert main(["doctor"]) == FAILED


def test_a_check_that_only_names_must_succeed(monkeypatch, capsys):
    statuses(monkeypatch, adb="absent")
    assert main(["doctor", "--only", "slurm"]) == OK
    assert main(["doctor", "--only", "slurm", "adb", "adb"]) == FAILED
    with pytest.raises(SystemExit):
        main(["doctor", "--only", "abd"])
    assert "abd is not a check; choose from training, gpu" in capsys.readouterr().err


def test_json_has_every_check_with_what_to_do(monkeypatch, capsys):
    statuses(monkeypatch, adb="broken")
    assert main(["doctor", "--json"]) == OK
    record = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(record) == list(CHECKS)
    assert record["adb"]["status"] == "broken"
    assert record["adb"]["remedy"] == "get it"
    assert record["training"]["is_required"]
    assert record["slurm"]["needed_by"] == ["slurm/pipeline.sh", "slurm/*.sbatch"]


def test_the_pages_list_every_check():
    page = (Path(__file__).parents[3] / "docs" / "start.md").read_text()
    for name, check in CHECKS.items():
        assert f"| `{name}` | {check.action} | {'; '.join(check.needed_by)} |" in page


@pytest.mark.parametrize(
    ("stop", "handler"), [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)]
)
def test_a_signal_ends_a_check_with_what_it_started(slurm, tmp_path, monkeypatch, stop, handler):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pid_file = tmp_path / "pid"
    slurm(f"echo $$ > {pid_file}; kill -{stop} {os.getpid()}; sleep 1000")
    before = signal.signal(stop, handler)
    try:
        assert main(["doctor", "--only", "slurm"]) == INTERRUPTED
    finally:
        signal.signal(stop, before)
    assert ends(int(pid_file.read_text()))
    assert not list(tmp_path.glob("vlm-agent-doctor-*"))
