"""A job array: parts of the inputs, in any order and at once, and a finish."""

import json
import os
import subprocess

import pytest
from helpers.data.conversions import CLI, command, converted, tree, write_files
from helpers.data.made_episodes import made_episode

from vlm_agent.cli import FAILED, OK, QUARANTINED, USAGE, main
from vlm_agent.datasets.convert import convert, finish
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.errors import DatasetError
from vlm_agent.files.jobs import ArrayTask

FILES = "ab cd ea f g"
"""The third of five files has an episode of the first."""


@pytest.fixture
def inputs(tmp_path):
    return write_files(tmp_path / "in", FILES)


@pytest.fixture
def undisturbed(inputs, tmp_path):
    converted(inputs, output=tmp_path / "undisturbed")
    return tree(tmp_path / "undisturbed")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_parts_and_a_finish_give_the_bytes_of_one_run(inputs, undisturbed, tmp_path, order):
    output = tmp_path / "out"
    for index in order:
        summary = convert("aitw", [inputs], output, task=ArrayTask(index, 3), workers=1)
        assert [file.name for file in summary.files] == [f"general-{n:05d}-of-00005" for n in range(index, 5, 3)]
        assert not (output / "manifest.json").exists()
    finish(output, workers=1)
    assert tree(output) == undisturbed


def test_parts_at_once_give_the_bytes_of_one_run(inputs, undisturbed, tmp_path):
    output = tmp_path / "out"
    parts = [
        subprocess.Popen(
            [
                *CLI,
                "--workers",
                "1",
                "--input",
                inputs,
                "--output",
                output,
                "--shard-index",
                str(index),
                "--shard-count",
                "3",
            ],
            stdout=subprocess.DEVNULL,
        )
        for index in range(3)
    ]
    assert [part.wait(timeout=60) for part in parts] == [OK] * 3
    for _ in range(2):
        assert command("--finish", "--output", output, "--workers", 1).returncode == QUARANTINED
        assert tree(output) == undisturbed


def test_a_part_again_and_a_whole_run_behind_parts_change_nothing(inputs, undisturbed, tmp_path):
    output = tmp_path / "out"
    convert("aitw", [inputs], output, task=ArrayTask(1, 2), workers=1)
    converted(inputs, output=output)
    assert tree(output) == undisturbed
    convert("aitw", [inputs], output, task=ArrayTask(0, 2), workers=1)
    assert tree(output) == undisturbed


def test_a_finish_before_all_parts_are_done_names_what_is_missing(inputs, tmp_path, capsys):
    output = tmp_path / "out"
    summary = convert("aitw", [inputs], output, task=ArrayTask(0, 2), workers=1)
    assert summary.waiting == 2
    capsys.readouterr()
    assert main(["convert", "--finish", "--output", str(output)]) == FAILED
    names = "general/general-00001-of-00005.parquet, general/general-00003-of-00005.parquet"
    named = f"2 of 5 shards are not converted yet ({names})"
    assert capsys.readouterr().err.startswith(f"vlm-agent convert: {named}")
    assert not (output / "manifest.json").exists()


def test_a_finish_names_the_missing_one_of_two_files_with_the_same_name(tmp_path, capsys):
    for subset in ("general", "single"):
        write_episodes(tmp_path / "in" / subset / "part.tfrecord", [made_episode(subset, subset)])
    convert("aitw", [tmp_path / "in"], tmp_path / "out", task=ArrayTask(1, 2), workers=1)
    assert main(["convert", "--finish", "--output", str(tmp_path / "out")]) == FAILED
    assert "1 of 2 shards are not converted yet (general/part.tfrecord.parquet)" in capsys.readouterr().err


def test_finish_without_a_conversion_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="does not hold a conversion"):
        finish(tmp_path)
    with pytest.raises(DatasetError, match="does not hold a conversion"):
        finish(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_more_parts_than_files_leave_some_with_nothing_to_do(inputs, tmp_path):
    summary = convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(6, 7), workers=1)
    assert summary.files == [] and summary.waiting == 5


def test_a_part_with_another_option_is_refused(inputs, tmp_path):
    convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(0, 2), workers=1)
    with pytest.raises(DatasetError, match=r"option mixture: \{\} before"):
        convert("aitw", [inputs], tmp_path / "out", mixture={"general": 0.5}, task=ArrayTask(1, 2), workers=1)


def test_a_finish_with_a_split_file_that_has_changed_is_refused(inputs, tmp_path):
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": list("abcdefg")}))
    for index in (0, 1):
        convert("aitw", [inputs], tmp_path / "out", [splits], task=ArrayTask(index, 2), workers=1)
    splits.write_text(json.dumps({"train": list("ab")}))
    with pytest.raises(DatasetError, match="option splits: "):
        finish(tmp_path / "out", workers=1)
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_finish_with_missing_inputs_names_them(inputs, tmp_path, capsys):
    convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(0, 1), workers=1)
    gone = inputs / "general-00003-of-00005"
    gone.unlink()
    capsys.readouterr()
    assert main(["convert", "--finish", "--output", str(tmp_path / "out")]) == FAILED
    error = capsys.readouterr().err
    assert error.startswith(f"vlm-agent convert: {gone} is not there any more; run `vlm-agent convert` with --input")


def test_partial_shards_of_killed_tasks_are_removed_when_the_input_is_converted_again(inputs, tmp_path):
    convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(0, 5), workers=1)
    (shard,) = (tmp_path / "out").rglob("general-00000*.parquet")
    left = [shard.with_name(f".{shard.name.replace('00000-of', '00001-of')}.{n:08x}.partial") for n in range(3)]
    others = shard.with_name(f".{shard.name.replace('00000-of', '00002-of')}.00000000.partial")
    for path in (*left, others):
        path.write_bytes(b"PAR1")
        os.utime(path, (0, 0))
    os.utime(left[0])  # of a task that Slurm believes dead, and that still writes
    convert("aitw", [inputs], tmp_path / "out", task=ArrayTask(1, 5), workers=1)
    assert [path.exists() for path in left] == [True, False, False]
    assert others.exists()  # of an input that another task may be converting


def test_a_finish_says_where_moved_split_files_are_named(inputs, tmp_path, capsys):
    splits = tmp_path / "splits.json"
    splits.write_text('{"train": []}')
    convert("aitw", [inputs], tmp_path / "out", [splits], task=ArrayTask(0, 1), workers=1)
    splits.rename(tmp_path / "elsewhere.json")
    capsys.readouterr()
    assert main(["convert", "--finish", "--output", str(tmp_path / "out")]) == FAILED
    assert f"{splits} is not there any more; run `vlm-agent convert` with" in capsys.readouterr().err


def test_finish_and_parts_take_no_arguments_that_contradict(inputs, tmp_path, capsys):
    for arguments, words in [
        (["--input", inputs, "--shard-index", "0"], "--shard-index and --shard-count must be used together"),
        (["--input", inputs, "--finish"], "--finish reads inputs and options from --output"),
        ([], "--input is missing"),
    ]:
        with pytest.raises(SystemExit) as leaving:
            main(["convert", "--output", str(tmp_path / "out"), *map(str, arguments)])
        assert leaving.value.code == USAGE
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
