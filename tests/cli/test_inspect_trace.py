"""`vlm-agent inspect TRACE`: every step is printed and drawn."""

import pytest
from PIL import Image

from vlm_agent.cli import OK, USAGE, main
from vlm_agent.evaluation.online.runs import BASELINES, EXPERT, play
from vlm_agent.simulator.demonstrations import simulated_tasks


@pytest.fixture
def trace(tmp_path):
    play(EXPERT, BASELINES[EXPERT], simulated_tasks(1, 0)[0], tmp_path / "trace")
    return tmp_path / "trace"


def test_a_trace_is_printed_step_by_step_and_drawn(trace, tmp_path, capsys):
    sheet, moving = tmp_path / "new" / "sheet.png", tmp_path / "new" / "a.gif"
    assert main(["inspect", str(trace), "--output", str(sheet), "--animate", str(moving)]) == OK
    printed = capsys.readouterr().out
    assert simulated_tasks(1, 0)[0].task.goal in printed
    assert "'complete'" in printed
    assert "Ended: complete" in printed
    with Image.open(sheet) as image:
        assert image.format == "PNG"
    with Image.open(moving) as image:
        assert image.n_frames > 1


def test_the_trace_of_a_killed_run_is_marked(trace, capsys):
    path = trace / "steps.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert main(["inspect", str(trace)]) == OK
    assert "the run was killed" in capsys.readouterr().out


@pytest.mark.parametrize("option", [["--draw", "first"], ["--split", "test"], ["--html"]])
def test_options_for_shards_are_refused(trace, option, capsys):
    with pytest.raises(SystemExit):
        main(["inspect", str(trace), *option])
    assert "is a trace" in capsys.readouterr().err


def test_a_folder_without_a_trace_cannot_be_animated(tmp_path, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["inspect", str(tmp_path), "--animate", "a.gif"])
    assert refused.value.code == USAGE
    assert "is not a trace" in capsys.readouterr().err
