"""The demo removes no folder of other files, and explains what fails; test_installs.py runs every stage of it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vlm_agent.cli import INTERRUPTED, demo_stages, main
from vlm_agent.cli.demo_stages import MARKER, DemoError, claim
from vlm_agent.errors import DatasetError
from vlm_agent.files.peak_memory import PeakMemory


@pytest.mark.parametrize("content", [{}, [], {"tasks": [{}], "runs": []}, {"tasks": [], "runs": {"trained": {}}}])
def test_results_of_another_shape_are_refused_with_their_name_and_a_remedy(tmp_path, content):
    readers = {
        "online/online.json": (demo_stages._success, demo_stages._trace_to_draw),
        "evaluation/metrics.json": (demo_stages._scores,),
    }
    for name, reads in readers.items():
        (tmp_path / name).parent.mkdir()
        wrong = [1] if name.startswith("evaluation") else content  # an empty object is an evaluation without runs
        (tmp_path / name).write_text(json.dumps(wrong))
        for read in reads:
            folder = tmp_path / "online" if read is demo_stages._trace_to_draw else tmp_path
            with pytest.raises(DatasetError, match=r"is damaged .*run the demo again") as refused:
                read(folder)
            assert str(tmp_path / name) in str(refused.value)


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DemoError, match="is not the output of a demo"):
        claim(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "demo"
    path.write_text("mine")
    with pytest.raises(DemoError, match="is not the output of a demo"):
        claim(path)
    assert path.read_text() == "mine"


def test_the_files_of_an_earlier_demo_are_removed(tmp_path, capsys):
    claim(tmp_path / "demo")
    for name in demo_stages.WRITTEN:
        (tmp_path / "demo" / name).write_text("{}") if "." in name else (tmp_path / "demo" / name).mkdir()
    (tmp_path / "demo" / "features_patches").mkdir()  # as docs/training.md does
    claim(tmp_path / "demo")
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {MARKER, "features_patches"}
    assert "Removing the earlier demo" in capsys.readouterr().out


def test_a_demo_that_is_terminated_ends_the_command_under_way(tmp_path, monkeypatch):
    stop = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
    monkeypatch.setattr(demo_stages, "run_demo", lambda *_: subprocess.run([sys.executable, "-c", stop], check=True))
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the demo would end alone"))
    try:
        assert main(["demo", "--output", str(tmp_path / "demo")]) == INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_its_recipe_nothing_is_removed(tmp_path, monkeypatch):
    claim(tmp_path / "demo")
    (tmp_path / "demo" / "summary.json").write_text("{}")
    monkeypatch.setattr(demo_stages, "RECIPE", Path("recipes/absent.yaml"))
    with pytest.raises(DemoError, match="not part of this installation"):
        demo_stages.run_demo(tmp_path / "demo")
    assert (tmp_path / "demo" / "summary.json").exists()


def test_a_command_that_fails_stops_the_demo(capfd):
    with pytest.raises(DemoError, match="inspect` failed with status 1"):
        demo_stages._run("inspect", "no-such-folder")
    printed = capfd.readouterr()
    assert printed.out == "$ vlm-agent inspect no-such-folder\n"
    assert "no manifest.json" in printed.err


def test_memory_of_child_processes_counts():
    code = "import time; block = b'x' * 200_000_000; print(flush=True); time.sleep(60)"
    with PeakMemory() as alone:
        pass
    with PeakMemory() as memory, subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        memory._done.wait(1.5)
        child.kill()
    assert memory.peak - alone.peak > 150_000_000
