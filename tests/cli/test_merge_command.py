"""`vlm-agent merge`: its output, and the runs that it refuses."""

import json

import pytest
from helpers import tiny
from helpers.runs import adapted_run

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import FAILED, OK, main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return adapted_run.write_run(tmp_path_factory.mktemp("adapted"))


def test_it_writes_a_checkpoint_with_the_answers_of_the_run(run, tmp_path, capsys):
    output = tmp_path / "merged"
    assert main(["merge", str(run), "--output", str(output), "--samples", "2"]) == OK
    printed = capsys.readouterr().out
    assert printed.startswith(f"{output} computes what {run} computes.\n")
    assert "\n  compared    2 episodes, " in printed
    assert f"Wrote {output / 'model'}" in printed
    assert json.loads((output / "merge.json").read_text())["samples"] == 2
    merged, adapted = VlmAgent.from_run(output), VlmAgent.from_run(run)
    assert merged.answer_episodes([tiny.episode(7)])[0] == adapted.answer_episodes([tiny.episode(7)])[0]


def test_it_can_compare_on_other_shards(run, tmp_path):
    others = tiny.write_shards(tmp_path / "others", [tiny.episode(9)])
    assert main(["merge", str(run), "--output", str(tmp_path / "merged"), "--shards", str(others)]) == OK
    assert json.loads((tmp_path / "merged" / "merge.json").read_text())["samples"] == 1


def test_a_run_that_cannot_be_merged_is_one_message(run, tmp_path, capsys):
    assert main(["merge", str(run), "--output", str(run)]) == FAILED
    assert "holds something already" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "none"), "--output", str(tmp_path / "merged")]) == FAILED
    assert "none" in capsys.readouterr().err
