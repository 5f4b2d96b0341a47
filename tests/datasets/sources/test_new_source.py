"""A new source is one `Source` and one entry of SOURCES: every command that takes a source reads it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from vlm_agent.cli import FAILED, OK, QUARANTINED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources import BadRecord, EpisodeStep, Input, Source, inputs_of_episodes, main_files
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.episodes import Action, Step
from vlm_agent.files.hashing import HashedFiles


def is_data(path: Path) -> bool:
    return path.suffix == ".toy"


def inputs(paths: Sequence[Path]) -> list[Input]:
    """All episodes of a folder, under the folder's name as their subset."""
    folders = sorted({path.parent for path in paths})
    return [
        input_
        for folder in folders
        for input_ in inputs_of_episodes(
            sorted(path for path in paths if path.parent == folder), folder.name, folder.name, lambda path: ()
        )
    ]


def read(input_: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    """A file is one episode: a goal, then a point a line, tapped on a grey screen."""
    for path in main_files(input_, files, is_data):
        goal, *points = path.read_text().splitlines()
        for number, line in enumerate(points):
            try:
                y, x = map(float, line.split())
                step = Step(np.full((64, 32, 3), 128, np.uint8), Action.tap(y, x))
            except ValueError as error:
                yield BadRecord(path, number, 0, str(error))
                continue
            yield EpisodeStep(path, number, 0, len(line), path.stem, input_.subset, number, len(points), goal, step)


TOY = Source("toy", "taps in text files", "first.toy", is_data, inputs, read)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(SOURCES, "toy", TOY)


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data" / "kitchen"
    data.mkdir(parents=True)
    for name in ("first", "second", "third"):
        (data / f"{name}.toy").write_text(f"open {name}\n0.25 0.5\n0.75 0.5\n")
    return data.parent


def convert(folder, output, *options):
    return main(["convert", "--source", "toy", "--input", str(folder), "--output", str(output), *options])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_is_converted_and_inspected_under_its_own_subset(registered, folder, tmp_path, capsys, workers):
    (folder / "garden").mkdir()
    (folder / "garden" / "fourth.toy").write_text("open fourth\n0.5 0.5\n")
    assert convert(folder, tmp_path / "shards", "--workers", workers) == OK
    shards = ShardDataset(tmp_path / "shards")
    assert sorted(zip(shards.ids, shards.subsets, strict=True)) == [
        ("first", "kitchen"),
        ("fourth", "garden"),
        ("second", "kitchen"),
        ("third", "kitchen"),
    ]
    assert len(ShardDataset(tmp_path / "shards", subset="garden")) == 1
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "shards")]) == OK
    assert "kitchen" in capsys.readouterr().out


def test_a_subset_or_share_with_a_typo_is_refused_with_those_that_exist(registered, folder, tmp_path, capsys):
    assert convert(folder, tmp_path / "shards", "--mixture", "kitchn=0.5") == FAILED
    assert "kitchn; subsets are" in (error := capsys.readouterr().err)
    assert "kitchen" in error
    assert convert(folder, tmp_path / "shards", "--mixture", "kitchen=1") == OK


def test_bad_records_are_quarantined_and_good_episodes_kept(registered, folder, tmp_path):
    (folder / "kitchen" / "second.toy").write_text("open second\n0.25 0.5\nnowhere\n")
    assert convert(folder, tmp_path / "shards") == QUARANTINED
    assert set(ShardDataset(tmp_path / "shards").ids) == {"first", "third"}
    assert "second.toy" in (tmp_path / "shards" / "quarantine.jsonl").read_text()


def test_killed_and_started_again_it_ends_with_the_same_bytes(registered, folder, tmp_path):
    script = f"""
import os, signal, sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parent)!r}]
from pathlib import Path
from test_new_source import SOURCES, TOY, convert
from vlm_agent.datasets.shards.writer import ShardWriter
SOURCES["toy"] = TOY
write = ShardWriter.write_row
def killing(self, *episode):
    write(self, *episode)
    os.kill(os.getpid(), signal.SIGKILL)
ShardWriter.write_row = killing
convert(Path({str(folder)!r}), Path({str(tmp_path / "killed")!r}), "--workers", "1")
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert convert(folder, tmp_path / "killed", "--workers", "1") == OK
    assert convert(folder, tmp_path / "whole", "--workers", "1") == OK
    for name in ("manifest.json", "index.parquet", "kitchen/kitchen-00000-of-00001.parquet"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert json.loads((tmp_path / "whole" / "manifest.json").read_text())["source"] == "toy"


def test_an_unknown_source_is_answered_with_the_registered_ones(registered, folder, tmp_path, capsys):
    assert main(["convert", "--source", "toi", "--input", str(folder), "--output", str(tmp_path / "out")]) == FAILED
    assert f"choose one of {', '.join(SOURCES)}" in capsys.readouterr().err
