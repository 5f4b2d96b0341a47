"""`vlm-agent status` of a conversion: what is converted, what is damaged, and which tasks have files left."""

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from helpers.data.conversions import STEPS, converted, write_files

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.cli.status import _ranges
from vlm_agent.datasets.convert import convert, finish
from vlm_agent.datasets.convert.folder import read_status
from vlm_agent.errors import DatasetError
from vlm_agent.files.jobs import ArrayTask, time_left


@pytest.fixture
def inputs(tmp_path):
    return write_files(tmp_path / "in", "ab c d ef")


def status(folder, capsys):
    capsys.readouterr()
    assert main(["status", str(folder)]) == OK
    return " ".join(capsys.readouterr().out.split())


def test_a_job_array_is_followed_to_its_end(inputs, tmp_path, capsys, monkeypatch):
    output = tmp_path / "out"
    convert("aitw", [inputs], output, task=ArrayTask(0, 2), workers=1)
    now = time.time()
    monkeypatch.setattr("vlm_agent.datasets.convert.folder._written", lambda entry: now - 100 * ("00000" in entry.name))
    printed = status(output, capsys)
    assert f"{output}: in progress files 2 of 4, " in printed
    assert f"steps {3 * STEPS} read, {3 * STEPS} written, 0 quarantined, 0 left out episodes 3" in printed
    assert "ETA 0:0" in printed
    assert "waiting general-00001-of-00004, general-00003-of-00004 tasks 1,3, modulo --shard-count" in printed

    convert("aitw", [inputs], output, task=ArrayTask(1, 2), workers=1)
    assert f"{output}: all files are converted; run vlm-agent convert --finish" in status(output, capsys)
    finish(output, workers=1)
    printed = status(output, capsys)
    assert f"{output}: complete files 4 of 4" in printed
    assert "waiting" not in printed
    assert "ETA" not in printed


def test_a_pause_long_ago_does_not_lengthen_the_estimate(inputs, tmp_path, monkeypatch):
    convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(0, 2), workers=1)
    convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(1, 4), workers=1)
    ends = {"00000": 0, "00001": 3 * 86_400, "00002": 3 * 86_400 + 60}
    monkeypatch.setattr("vlm_agent.datasets.convert.folder._written", lambda entry: ends[entry.name[8:13]])
    assert timedelta() < read_status(tmp_path / "out").eta < timedelta(minutes=10)


def test_no_estimate_is_longer_than_a_date():
    assert time_left([(0, 5), (60, 0)], 2_600_000_000_000) is None
    assert time_left([(0, 5), (3000, 1)], 2_600_000_000_000_000_000) is None
    assert time_left([(0, 5), (60, 5)], 10) == timedelta(minutes=2)


def test_damaged_files_are_named_and_inputs_need_not_be_there(inputs, tmp_path, capsys):
    path = inputs / "general-00001-of-00004"
    path.write_bytes(path.read_bytes()[:200])
    converted(inputs, output=tmp_path / "out")
    inputs.rename(tmp_path / "elsewhere")
    assert "damaged general-00001-of-00004" in status(tmp_path / "out", capsys)


def test_a_damaged_entry_is_named(inputs, tmp_path, capsys):
    converted(inputs, output=tmp_path / "out")
    entry = tmp_path / "out/.conversion/general/general-00001-of-00004.parquet.json"
    entry.write_text("{")
    assert main(["status", str(tmp_path / "out")]) == FAILED
    assert f"{entry} is damaged" in capsys.readouterr().err


def test_places_are_written_as_an_array_of_slurm():
    assert _ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert _ranges([3]) == "3"


def test_a_complete_conversion_that_lost_a_shard_is_in_progress(inputs, tmp_path, capsys):
    converted(inputs, output=tmp_path / "out")
    next((tmp_path / "out").glob("general/*.parquet")).unlink()
    assert f"{tmp_path / 'out'}: in progress files 3 of 4" in status(tmp_path / "out", capsys)


def test_a_file_whose_name_is_not_utf_8_is_refused_before_anything_is_written(inputs, tmp_path):
    path = inputs / "general-00001-of-00004"
    path.rename(os.fsdecode(os.fsencode(inputs) + b"/general-\xff-00001-of-00004"))
    with pytest.raises(DatasetError, match=r"the name of the shard .* is not valid Unicode at character 16"):
        converted(inputs, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bad_record_in_a_folder_whose_name_is_not_utf_8_is_quarantined(inputs, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    inputs.rename(folder)
    path = folder / "general-00001-of-00004"
    path.write_bytes(path.read_bytes()[:200])
    summary, *_ = converted(folder, output=tmp_path / "out")
    assert summary.quarantined > 0
    line = json.loads((tmp_path / "out/quarantine.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert line["file"] == str(path)
