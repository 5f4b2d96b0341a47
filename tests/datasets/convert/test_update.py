"""`convert --update`: new and replaced inputs are converted into the folder of an earlier conversion."""

import errno
import io
import json
import os
import time

import pytest
from helpers.data.conversions import command, converted, tree, write_files
from helpers.data.made_episodes import made_episode
from rich.console import Console
from rich.filesize import decimal

from vlm_agent.cli import FAILED, OK, QUARANTINED, main
from vlm_agent.datasets.convert import convert, finish, folder
from vlm_agent.datasets.convert.summary import missing_files
from vlm_agent.datasets.shards import writer
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.errors import DatasetError
from vlm_agent.files.jobs import ArrayTask

FIRST, SECOND, THIRD = (f"general-0000{number}-of-00003" for number in range(3))


@pytest.fixture
def inputs(tmp_path):
    return write_files(tmp_path / "in", "ab ca e")


@pytest.fixture
def output(inputs, tmp_path):
    converted(inputs, output=tmp_path / "out")
    return tmp_path / "out"


def written(inputs, name, ids):
    write_episodes(inputs / name, [made_episode(letter, "general") for letter in ids])


def fresh(inputs, folder):
    """The files of a conversion of the inputs as they are into a new folder."""
    converted(inputs, output=folder / "fresh")
    return tree(folder / "fresh")


def damage(inputs):
    path = inputs / FIRST
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def test_a_truncated_download_is_replaced(inputs, tmp_path):
    whole = damage(inputs)
    printed = converted(inputs, output=tmp_path / "out")[-1]
    assert f"add --update: {FIRST}" in " ".join(printed.split())
    (inputs / FIRST).write_bytes(whole)
    with pytest.raises(DatasetError, match="add --update to convert new and changed inputs"):
        convert("aitw", [inputs], tmp_path / "out", workers=1)
    converted(inputs, output=tmp_path / "out", update=True)
    assert tree(tmp_path / "out") == fresh(inputs, tmp_path)


def test_a_file_of_the_same_size_is_replaced(inputs, output, tmp_path):
    old = (inputs / THIRD).read_bytes()
    (inputs / THIRD).write_bytes(old[:-1] + bytes([old[-1] ^ 1]))
    with pytest.raises(DatasetError, match="add --update to convert changed files again"):
        convert("aitw", [inputs], output, workers=1)
    converted(inputs, output=output, update=True)
    assert tree(output) == fresh(inputs, tmp_path)


def test_a_changed_file_is_noticed_also_where_the_clock_was_ahead_at_the_conversion(inputs, output):
    later = time.time() + 3600
    for entry in (output / ".conversion/general").iterdir():
        os.utime(entry, (later, later))
    old = (inputs / THIRD).read_bytes()
    (inputs / THIRD).write_bytes(old[:-1] + bytes([old[-1] ^ 1]))
    with pytest.raises(DatasetError, match="add --update to convert changed files again"):
        convert("aitw", [inputs], output, workers=1)


def test_an_episode_that_the_replaced_file_owned_comes_from_the_later_file(inputs, output, tmp_path):
    """The second file was converted without `a`, which the first one had."""
    written(inputs, FIRST, "bd")
    converted(inputs, output=output, update=True)
    assert tree(output) == fresh(inputs, tmp_path)


def test_new_files_are_added_and_only_they_are_converted(inputs, output, tmp_path):
    entry = output / ".conversion/general" / f"{THIRD}.parquet.json"
    before = entry.stat().st_mtime_ns
    write_files(inputs, "xy", "install")
    converted(inputs, output=output, update=True)
    assert tree(output) == fresh(inputs, tmp_path)
    assert entry.stat().st_mtime_ns == before


def test_the_remedy_follows_a_long_list_of_new_files(inputs, output):
    write_files(inputs, "h i j k l m n o p q r s", "install")
    with pytest.raises(DatasetError, match="… and 2 more\n  add --update to convert new and changed inputs"):
        convert("aitw", [inputs], output, workers=1)


def test_tasks_of_an_array_update(inputs, output, tmp_path):
    written(inputs, FIRST, "bd")
    write_files(inputs, "xy", "install")
    for index in (1, 0):
        convert("aitw", [inputs], output, task=ArrayTask(index, 2), workers=1, update=True)
    finish(output, workers=1)
    assert tree(output) == fresh(inputs, tmp_path)


def test_other_options_and_missing_inputs_are_refused_with_it_too(inputs, output):
    contents = tree(output)
    write_files(inputs, "xy", "install")
    with pytest.raises(DatasetError, match="option mixture"):
        convert("aitw", [inputs], output, workers=1, mixture={"general": 0.5}, update=True)
    (inputs / FIRST).unlink()
    with pytest.raises(DatasetError, match=f"input {FIRST} is missing"):
        convert("aitw", [inputs], output, workers=1, update=True)
    assert tree(output) == contents


def test_a_copy_to_another_disk_is_hashed_once_and_by_the_task_that_owns_the_file(inputs, tmp_path, monkeypatch):
    output = tmp_path / "out"
    for index in (0, 1):
        convert("aitw", [inputs], output, task=ArrayTask(index, 2), workers=1)
    for path in inputs.iterdir():
        path.chmod(0o600)  # changes the status, as rsync does
    time.sleep(
        0.05
    )  # more than a tick of the file system's clock: a change within the tick of the check would be missed
    hashed, sha256_of = [], folder.sha256_of
    monkeypatch.setattr(folder, "sha256_of", lambda files: hashed.extend(files) or sha256_of(files))
    convert("aitw", [inputs], output, task=ArrayTask(1, 2), workers=1)
    assert hashed == [inputs / SECOND]
    console = Console(record=True, width=200, file=io.StringIO())
    finish(output, console, workers=1)
    size = decimal(sum((inputs / name).stat().st_size for name in (FIRST, THIRD)))
    assert f"checked 2 of 2 files that were copied or changed, {size} of {size}" in console.export_text()
    assert sorted(hashed[:3]) == [inputs / FIRST, inputs / SECOND, inputs / THIRD]


def test_a_task_names_the_command_that_completes_the_array(inputs, tmp_path, capsys):
    words = ["convert", "--input", str(inputs), "--output", str(tmp_path / "out"), "--workers", "1"]
    for index, waiting in ((0, "1 file(s) of other tasks to convert"), (1, "No file of other tasks to convert")):
        assert main([*words, "--shard-index", str(index), "--shard-count", "2"]) == OK
        printed = " ".join(capsys.readouterr().out.split())
        assert f"{waiting}; then run: vlm-agent convert --finish --output {tmp_path / 'out'}" in printed
    assert main(["convert", "--finish", "--output", str(tmp_path / "out")]) == QUARANTINED  # `a` is in two files
    assert "--finish" not in capsys.readouterr().out


def test_splits_that_keep_no_episode_are_a_failure(inputs, tmp_path):
    (tmp_path / "splits.json").write_text(json.dumps({"train": ["of another data set"]}))
    words = ["--input", inputs, "--splits", tmp_path / "splits.json", "--output", tmp_path / "out", "--workers", 1]
    result = command(*words)
    assert result.returncode == FAILED
    assert "No episode was written" in result.stdout


def test_groups_are_written_before_the_manifest_and_not_replaced(inputs, tmp_path, capsys):
    groups, output = tmp_path / "groups.json", tmp_path / "out"
    groups.write_text(json.dumps({"memory": ["a"]}))
    words = ["convert", "--input", str(inputs), "--output", str(output), "--workers", "1", "--groups", str(groups)]
    assert main(words) == main(words) == QUARANTINED
    assert (output / "groups.json").stat().st_mtime_ns < (output / "manifest.json").stat().st_mtime_ns
    groups.write_text(json.dumps({"memory": ["b"]}))
    assert main(words) == FAILED
    assert "holds other groups; move it away to replace them" in capsys.readouterr().err


def test_an_error_while_a_shard_is_written_names_the_shard(inputs, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "pyarrow names no file")

    monkeypatch.setattr(writer.ParquetWriter, "write_table", fail)
    with pytest.raises(DatasetError, match=rf"{tmp_path}/out/general/{FIRST}\.parquet: Input/output error"):
        convert("aitw", [inputs], tmp_path / "out", workers=1)


def test_files_that_a_numbered_set_lacks_are_counted():
    names = ["general-00000-of-00002", "general-00001-of-00002", "install-00002-of-00004", "GENERAL-1", "x-1-of-2.json"]
    assert list(missing_files(names)) == [
        "3 of the 4 files install-*-of-00004 are not in the input, install-00000-of-00004 first"
    ]
    assert list(missing_files(["general-1-of-2.gz"])) == [
        "1 of the 2 files general-*-of-2.gz are not in the input, general-0-of-2.gz first"
    ]
    assert list(missing_files([f"general-0000{number}-of-00002" for number in range(3)])) == []
    assert list(missing_files([f"general-0000{number}-of-00003" for number in range(1, 4)])) == [
        "1 of the 3 files general-*-of-00003 are not in the input, general-00000-of-00003 first"
    ]
