"""The demo: every stage runs, and no folder of other files is removed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vlm_agent.cli import demo_stages
from vlm_agent.cli.demo_stages import MARKER, DemoError, claim
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.scoring.measures import SHARES_OF_TASKS
from vlm_agent.files.peak_memory import PeakMemory

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS = {"trained", "grey_screens", "no_history", "most_frequent_action", "blind_ceiling"}


def test_the_quick_demo_runs_every_stage(tmp_path):
    """Takes less than a minute on two idle cores: every stage of the demo, at tiny sizes."""
    output = tmp_path / "demo"
    command = [sys.executable, "-m", "vlm_agent.cli", "demo", "--quick", "--output", str(output)]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    commands = [line.split()[2] for line in result.stdout.splitlines() if line.startswith("$ vlm-agent ")]
    assert commands == ["simulate", "convert", "inspect", "train", "evaluate", "evaluate", "inspect"]
    assert (output / "contact_sheet.png").stat().st_size > 0
    assert (output / "evaluation" / "report.html").stat().st_size > 0
    assert 0 < (output / "agent.gif").stat().st_size < 1_000_000
    summary = json.loads((output / "summary.json").read_text())
    assert set(summary) == RUNS | {"online", "seconds", "peak_rss_gb"}
    assert {run: row["success"] for run, row in summary["online"].items() if run != "trained"} == {
        "expert": 100,
        "complete_at_once": 0,
    }
    for row in summary["online"].values():
        for rate, interval in SHARES_OF_TASKS.items():
            assert row[interval][0] <= row[rate] <= row[interval][1]
    assert summary["seconds"] > 0
    assert summary["peak_rss_gb"] > 0
    for run in RUNS:
        for scorer in ("official", "strict"):
            assert set(summary[run][scorer]) == {"overall", *SUBSETS, "memory_goals"}
            assert 0 <= summary[run][scorer]["overall"] <= 100


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
    (tmp_path / "demo" / "summary.json").write_text("{}")
    claim(tmp_path / "demo")
    assert [path.name for path in (tmp_path / "demo").iterdir()] == [MARKER]
    assert "Removing the earlier demo" in capsys.readouterr().out


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
