"""The same command resumes; any other command on an existing output is refused with the difference."""

import errno
import os
import shutil
import subprocess
import sys

import pytest
from helpers.data.conversions import command, converted, tree, write_files
from helpers.data.made_episodes import made_episode

from vlm_agent.cli import FAILED, OK, QUARANTINED, main
from vlm_agent.datasets.convert import check_conversion, convert, finish
from vlm_agent.datasets.convert.folder import Options, job
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked


def _arguments(source, output, *more):
    return ["convert", "--input", str(source), "--output", str(output), "--workers", "1", *map(str, more)]


def _stamps(output):
    """What tells that a shard or an entry was written again."""
    files = (*output.glob("*/*.parquet"), *output.glob(".conversion/*/*.json"))
    return {path: path.stat().st_ctime_ns for path in files}


@pytest.mark.parametrize(("files", "status"), [("ab cd", OK), ("ab ca", QUARANTINED)])
def test_the_same_command_again_does_nothing_new(tmp_path, files, status):
    write_files(tmp_path / "in", files)
    assert main(_arguments(tmp_path / "in", tmp_path / "out")) == status
    contents, stamps = tree(tmp_path / "out"), _stamps(tmp_path / "out")
    assert main(_arguments(tmp_path / "in", tmp_path / "out")) == status
    assert tree(tmp_path / "out") == contents
    assert _stamps(tmp_path / "out") == stamps


def test_a_newer_version_that_finds_nothing_to_convert_keeps_the_digest_of_the_shards(source, tmp_path, monkeypatch):
    converted(source, output=tmp_path / "out")
    contents = tree(tmp_path / "out")
    monkeypatch.setattr("vlm_agent.__version__", "99.0")
    converted(source, output=tmp_path / "out")
    assert tree(tmp_path / "out") == contents
    write_files(source, "x", "install")
    _, manifest, *_ = converted(source, output=tmp_path / "out", update=True)
    assert manifest["vlm_agent_version"] == "99.0"


def test_only_missing_output_is_written_again(source, tmp_path):
    converted(source, output=tmp_path / "out")
    contents, stamps = tree(tmp_path / "out"), _stamps(tmp_path / "out")
    gone = [
        "manifest.json",
        "quarantine.jsonl",
        "general/general-00000-of-00001.parquet",
        ".conversion/single/single-00000-of-00001.parquet.json",
    ]
    for name in gone:
        (tmp_path / "out" / name).unlink()
        converted(source, output=tmp_path / "out")
        assert tree(tmp_path / "out") == contents
    remade = {path.name for path, stamp in _stamps(tmp_path / "out").items() if stamps[path] != stamp}
    names = ("general-00000-of-00001.parquet", "single-00000-of-00001.parquet")
    assert remade == {*names, *(f"{name}.json" for name in names)}


def test_a_truncated_shard_is_written_again(source, tmp_path):
    converted(source, output=tmp_path / "out")
    contents = tree(tmp_path / "out")
    shard = tmp_path / "out/general/general-00000-of-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-1])
    converted(source, output=tmp_path / "out")
    assert tree(tmp_path / "out") == contents


def test_a_shard_that_was_overwritten_in_place_is_noticed(source, tmp_path):
    converted(source, output=tmp_path / "out")
    shard = tmp_path / "out/general/general-00000-of-00001.parquet"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(DatasetError, match=r"00000-of-00001\.parquet cannot be read .* remove it"):
        convert("aitw", [source], tmp_path / "out", workers=1)


def test_what_an_interrupted_run_left_half_written_is_removed(source, tmp_path):
    converted(source, output=tmp_path / "out")
    contents = tree(tmp_path / "out")
    for folder in ("general", ".conversion", ".conversion/single", "."):
        (tmp_path / "out" / folder / ".x.0123abcd.partial").write_bytes(b"half")
    converted(source, output=tmp_path / "out")
    assert tree(tmp_path / "out") == contents


CHANGED = [
    (["--splits", "{tmp}/other.json"], ["option splits: [{", "splits.json", "other.json"]),
    (["--mixture", "general=0.5"], ["option mixture: {} before, {\"general\": 0.5} now"]),
    (["--image-format", "png"], ["option screens: ", '"name": "jpeg"', '"name": "png"']),
    (["--quality", "80"], ['"quality": 90', '"quality": 80']),
    (["--max-pixels", "10000"], ['"max_pixels": 20000', '"max_pixels": 10000']),
    (["--multiple", "32"], ['"multiple": 28', '"multiple": 32']),
    (["--source", "aitz", "--input", "{shared}"], ["source: 'aitw' before, 'aitz' now"]),
    (["--input", "{tmp}/aitw/general"], ["input single-00000-of-00001 is missing"]),
    (["--input", "{tmp}/aitw", "{tmp}/more"], ["input install-00000-of-00001 is new"]),
    (["--input", "{tmp}/aitw/single", "{tmp}/aitw/general"], ["the inputs are in a different order"]),
]  # fmt: skip


@pytest.mark.parametrize("when", ["finished", "stopped"])
@pytest.mark.parametrize(
    ("changed", "words"), CHANGED, ids=[" ".join(changed[:1]) + str(n) for n, (changed, _) in enumerate(CHANGED)]
)
def test_a_changed_option_or_input_is_refused_and_the_difference_named(source, tmp_path, capsys, changed, words, when):
    (tmp_path / "other.json").write_text('{"train": ["a"]}')
    write_files(tmp_path / "more", "x", "install")
    aitz = tmp_path / "GENERAL-1.json"
    aitz.write_text("[]")
    options = ["--splits", source / "splits.json", "--image-format", "jpeg", "--max-pixels", 20000]
    arguments = _arguments(source, tmp_path / "out", *options)
    assert main(arguments) == OK
    if when == "stopped":
        (tmp_path / "out/manifest.json").unlink()
    contents = tree(tmp_path / "out")
    capsys.readouterr()
    assert main([*arguments, *(word.format(tmp=tmp_path, shared=aitz) for word in changed)]) == FAILED
    printed = capsys.readouterr().err
    assert "holds a conversion with other settings" in printed
    assert all(word in printed for word in words)
    assert tree(tmp_path / "out") == contents
    assert main(arguments) == OK


def test_a_changed_split_file_is_refused(source, tmp_path):
    splits = [source / "splits.json"]
    convert("aitw", [source], tmp_path / "out", splits, workers=1)
    splits[0].write_text('{"train": ["a", "b"]}')
    with pytest.raises(DatasetError, match="option splits: "):
        convert("aitw", [source], tmp_path / "out", splits, workers=1)


def test_an_input_of_another_size_is_refused(source, tmp_path):
    converted(source, output=tmp_path / "out")
    path = source / "general/general-00000-of-00001"
    before = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"x")
    named = f"input general-00000-of-00001: {before:,} bytes before, {before + 1:,} bytes now"
    with pytest.raises(DatasetError, match=named):
        convert("aitw", [source], tmp_path / "out", workers=1)


def test_an_input_of_the_same_size_and_other_bytes_is_refused(source, tmp_path):
    converted(source, output=tmp_path / "out")
    path = source / "general/general-00000-of-00001"
    old = path.read_bytes()
    path.write_bytes(old[:-1] + bytes([old[-1] ^ 1]))
    with pytest.raises(DatasetError, match=f"{path} has changed since it was converted"):
        convert("aitw", [source], tmp_path / "out", workers=1)
    contents = tree(tmp_path / "out")
    path.write_bytes(old)
    converted(source, output=tmp_path / "out")
    assert tree(tmp_path / "out") == contents


def test_an_input_replaced_by_one_of_the_same_size_and_modification_time_is_refused(source, tmp_path):
    """`cp -p` and `rsync -t` keep the modification time."""
    converted(source, output=tmp_path / "out")
    path = source / "general/general-00000-of-00001"
    before, old = path.stat(), path.read_bytes()
    path.write_bytes(old[:-1] + bytes([old[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DatasetError, match=f"{path} has changed since it was converted"):
        convert("aitw", [source], tmp_path / "out", workers=1)


def test_inputs_may_lie_elsewhere_the_second_time(source, tmp_path):
    converted(source, output=tmp_path / "out")
    contents = tree(tmp_path / "out")
    shutil.move(source, tmp_path / "moved")
    check_conversion("aitw", [tmp_path / "moved"], tmp_path / "out", Options())
    assert tree(tmp_path / "out") == contents
    converted(tmp_path / "moved", output=tmp_path / "out")
    moved = tree(tmp_path / "out")
    assert {name for name in contents if moved[name] != contents[name]} == {".conversion/plan.json"}
    finish(tmp_path / "out", workers=1)  # reads the inputs where they are now


def test_a_file_system_without_locks_is_reported_and_converts(source, tmp_path, monkeypatch, caplog, capsys):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", unsupported)
    converted(source, output=tmp_path / "out")
    assert "out/.conversion: the file system has no locks (Function not implemented)" in caplog.text
    assert main(["status", str(tmp_path / "out")]) == OK
    assert "complete" in capsys.readouterr().out


def test_a_folder_whose_files_belong_to_another_user_is_filled_and_resumed(source, tmp_path, monkeypatch):
    """A network mount may state one owner for all files. Who is not the owner may not set modes and times."""

    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    converted(source, output=tmp_path / "owned")
    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "chmod", refuse)
    for _ in range(2):
        converted(source, output=tmp_path / "out")
        assert tree(tmp_path / "out") == tree(tmp_path / "owned")


@pytest.mark.parametrize("unit", [10**9, 100], ids=["whole seconds", "SMB"])
def test_files_are_not_hashed_again_where_the_file_system_keeps_coarser_times(source, tmp_path, monkeypatch, unit):
    converted(source, output=tmp_path / "out")
    for entry in (tmp_path / "out/.conversion").rglob("*.json"):
        rounded = entry.stat().st_mtime_ns // unit * unit
        os.utime(entry, ns=(rounded, rounded))
    monkeypatch.setattr("vlm_agent.datasets.convert.folder.sha256_of", lambda _: pytest.fail("a file is hashed"))
    converted(source, output=tmp_path / "out")


@pytest.mark.parametrize("stopped_at", ["note_duplicates", "read_duplicates"])
def test_stopped_between_finding_a_duplicate_and_reading_its_file_again(tmp_path, monkeypatch, stopped_at):
    write_files(tmp_path / "in", "ab ca d")
    converted(tmp_path / "in", output=tmp_path / "undisturbed")
    calls = []
    name = f"vlm_agent.datasets.convert.{stopped_at}"
    original = sys.modules["vlm_agent.datasets.convert"].__dict__[stopped_at]

    def stop_behind(*arguments):
        result = original(*arguments)
        calls.append(result)
        if result:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as stopped:
        stopped.setattr(name, stop_behind)
        with pytest.raises(KeyboardInterrupt):
            convert("aitw", [tmp_path / "in"], tmp_path / "out", workers=1)
            convert("aitw", [tmp_path / "in"], tmp_path / "out", workers=1)
    assert read_checked(tmp_path / "out/.conversion/duplicates.json", "") == {
        "general/general-00001-of-00003.parquet": ["a"]
    }
    assert not (tmp_path / "out/manifest.json").exists()
    converted(tmp_path / "in", output=tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "undisturbed")


def test_a_run_is_refused_while_another_holds_the_folder(source, tmp_path, capsys):
    output = tmp_path / "out"
    with job(output).locked():
        for more in ([], ["--shard-index", "0", "--shard-count", "2"]):
            assert main(_arguments(source, output, *more)) == FAILED
            printed = capsys.readouterr().err
            assert printed.startswith(f"vlm-agent convert: another process is writing a conversion to {output};")
            assert len(printed.splitlines()) == 1
        refused = command("--input", source, "--output", output)
        assert refused.returncode == FAILED and "another process is writing a conversion" in refused.stderr
    assert main(_arguments(source, output)) == OK


def test_a_finish_is_refused_while_a_part_is_going_on_and_another_part_is_not(source, tmp_path, capsys):
    output = tmp_path / "out"
    converted(source, output=output)
    with job(output).locked(shared=True):
        assert main(["convert", "--finish", "--output", str(output)]) == FAILED
        assert "another process is writing a conversion to" in capsys.readouterr().err
        assert main(_arguments(source, output, "--shard-index", 0, "--shard-count", 2)) == OK


def test_bad_records_of_an_earlier_run_do_not_weigh_more_for_the_later_one(tmp_path, monkeypatch):
    """The last file is all bad; the others, done before, make that a small part of the whole."""
    monkeypatch.setattr("vlm_agent.datasets.convert.workers.TICK_SECONDS", 0)
    monkeypatch.setattr("vlm_agent.datasets.convert.workers._ENOUGH_STEPS", 8)
    write_files(tmp_path / "in", "abcdef ghijkl mn")
    last = tmp_path / "in/general-00002-of-00003"
    content = made_episode("m", size=(9, 9)), made_episode("m", size=(8, 8)), made_episode("n")
    write_episodes(last, content)
    converted(tmp_path / "in", output=tmp_path / "out", max_bad_fraction=0.2)
    contents = tree(tmp_path / "out")
    (tmp_path / "out/.conversion/general/general-00002-of-00003.parquet.json").unlink()
    converted(tmp_path / "in", output=tmp_path / "out", max_bad_fraction=0.2)
    assert tree(tmp_path / "out") == contents


def test_a_conversion_started_with_relative_paths_can_be_finished_from_another_folder(source, tmp_path, monkeypatch):
    monkeypatch.chdir(source)
    part = ["--shard-index", "0", "--shard-count", "1"]
    assert main(["convert", "--input", "general", "--output", str(tmp_path / "out"), *part]) == OK
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "--finish", "--output", "out"]) == OK


def test_a_killed_worker_is_reported_and_the_same_command_resumes(source, tmp_path):
    """Memory that runs out looks like this."""
    converted(source, output=tmp_path / "undisturbed")
    script = tmp_path / "killed.py"
    script.write_text(KILLED_WORKER)
    run = [sys.executable, str(script), str(source), str(tmp_path / "out")]
    result = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert result.returncode == FAILED
    assert "died (signal 9;" in result.stderr and "run the same command again to resume" in result.stderr
    converted(source, output=tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "undisturbed")


KILLED_WORKER = """
import os, signal, sys
from vlm_agent.datasets.convert import one_input
from vlm_agent.cli import main

if __name__ == "__mp_main__":
    one_input.Conversion.convert = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    sys.exit(main(["convert", "--input", sys.argv[1], "--output", sys.argv[2], "--workers", "2"]))
"""
