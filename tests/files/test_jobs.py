"""A job's folder is resumed by the same command only, and held by one process at a time."""

import errno
import json
import os
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files.jobs import ArrayTask, Job, ShardJob, all_done, time_left


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "out", "an experiment", plan=".work/plan.json", lock=".work/lock", identity_key="decides")


def test_the_first_run_writes_the_plan_and_the_same_run_is_accepted(job):
    job.write_or_verify_plan({"decides": {"seed": 1}, "where": "here"})
    job.write_or_verify_plan({"decides": {"seed": 1}, "where": "there"})
    assert job.read_plan() == {"decides": {"seed": 1}, "where": "here"}


def test_of_two_tasks_with_other_settings_that_begin_at_once_one_is_refused(job, monkeypatch):
    """A network file system shows the plan of another machine late."""
    job.write_or_verify_plan({"decides": {"size": 1}})
    before = sorted(job.folder.rglob("*"))
    monkeypatch.setattr(type(job.plan_path), "exists", lambda path: path != job.plan_path)
    job.write_or_verify_plan({"decides": {"size": 1}})
    with pytest.raises(DatasetError, match="size was 1, and is 2"):
        job.write_or_verify_plan({"decides": {"size": 2}})
    assert sorted(job.folder.rglob("*")) == before
    assert job.read_plan() == {"decides": {"size": 1}}


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_plan_is_written_where_files_have_one_name_only(job, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    job.write_or_verify_plan({"decides": {"size": 1}})
    assert job.read_plan() == {"decides": {"size": 1}}


def test_every_difference_is_named(job):
    job.write_or_verify_plan({"decides": {"seed": 1, "model": {"name": "a", "size": 3}}})
    with pytest.raises(DatasetError) as error:
        job.write_or_verify_plan({"decides": {"seed": 2, "model": {"name": "a"}, "steps": [1]}})
    first, *lines = str(error.value).splitlines()
    assert first.startswith(f"{job.folder} holds an experiment with other settings; ")
    assert lines == ["  seed was 1, and is 2", "  model.size was 3, and is null", "  steps was null, and is [1]"]


def test_a_job_can_compare_in_its_own_words(job):
    job.write_or_verify_plan({"decides": {"seed": 1}})
    with pytest.raises(DatasetError, match="another seed"):
        job.write_or_verify_plan({"decides": {"seed": 2}}, lambda before, now: ["another seed"])
    job.write_or_verify_plan({"decides": {"seed": 2}}, lambda before, now: [])


def test_without_an_identity_key_the_whole_plan_counts(tmp_path):
    job = Job(tmp_path, "an experiment")
    job.write_or_verify_plan({"seed": 1})
    with pytest.raises(DatasetError, match="where was null, and is"):
        job.write_or_verify_plan({"seed": 1, "where": "here"})


def test_a_folder_of_something_else_is_refused(job):
    job.folder.mkdir()
    (job.folder / ".work").mkdir()
    (job.folder / ".plan.json.0123.partial").touch()  # another task of the array is writing
    job.check_folder()
    (job.folder / "thesis.tex").touch()
    with pytest.raises(DatasetError, match="is not empty and does not hold an experiment"):
        job.write_or_verify_plan({"decides": {}})
    with pytest.raises(DatasetError, match="is a file; an experiment needs a folder"):
        Job(job.folder / "thesis.tex", "an experiment").check_folder()
    with pytest.raises(DatasetError, match=r"does not hold an experiment: .*plan\.json is missing"):
        job.read_plan()


def test_a_plan_of_another_command_is_neither_damaged_nor_compared(tmp_path):
    """Both commands may name their plan plan.json; the remedy must not be to remove the other one's results."""
    with_identity = Job(tmp_path / "evaluation", "an evaluation", identity_key="described")
    with_identity.write_or_verify_plan({"described": {"seed": 1}, "given": {}})
    whole = Job(tmp_path / "comparison", "a comparison")
    whole.write_or_verify_plan({"agents": ["a"], "quick": False})
    for job, folder, plan in (
        (with_identity, whole.folder, {"described": {"seed": 1}, "given": {}}),
        (whole, with_identity.folder, {"agents": ["a"], "quick": False}),
    ):
        foreign = replace(job, folder=folder)
        with pytest.raises(DatasetError, match=f"does not hold {job.noun}.* is of another command; choose another"):
            foreign.write_or_verify_plan(plan)
    with pytest.raises(DatasetError, match="is of another command"):
        replace(with_identity, folder=whole.folder).read_plan()


@pytest.mark.parametrize(("content", "is_free"), [("", True), ("a reply", False)])
def test_after_an_error_a_folder_is_free_unless_a_file_has_content(tmp_path, content, is_free):
    job = ShardJob.of(tmp_path / "out", "an annotation", ".annotation")
    with pytest.raises(UserError, match="no model"), job.started({"described": {"model": "typo"}}, None):
        (job.plan_path.parent / "calls").mkdir()
        (job.plan_path.parent / "calls" / "1.asked").write_text(content)
        raise UserError("no model")
    assert (list(job.folder.iterdir()) == []) == is_free


def test_a_long_value_is_cut_in_the_message(job):
    job.write_or_verify_plan({"decides": {"ids": list(range(10_000))}})
    with pytest.raises(DatasetError) as error:
        job.write_or_verify_plan({"decides": {"ids": []}})
    assert len(str(error.value)) < 1000
    assert "58,890 characters), and is []" in str(error.value)


@pytest.mark.parametrize("content", ["{", "[]", "{}", json.dumps({"decides": 3})])
def test_a_damaged_plan_is_named(job, content):
    job.plan_path.parent.mkdir(parents=True)
    job.plan_path.write_text(content)
    with pytest.raises(DatasetError, match=r"plan\.json is damaged.*; remove .* and start again"):
        job.write_or_verify_plan({"decides": {}})


def test_a_folder_is_held_by_one_process_or_shared_by_an_array(job):
    with (
        job.locked(shared=True),
        job.locked(shared=True),
        pytest.raises(DatasetError, match="another process is writing an experiment to"),
        job.locked(),
    ):
        pass
    with job.locked(), pytest.raises(DatasetError, match="another process"), job.locked(shared=True):
        pass


def test_only_the_process_that_holds_a_folder_removes_partial_files(job):
    job.folder.mkdir()
    left = job.folder / ".file.0123.partial"
    left.touch()
    with job.locked(shared=True):
        assert left.exists()
    with job.locked():
        assert not left.exists()
        left.touch()
    assert not left.exists()


def test_a_full_disk_is_an_error_that_names_the_folder_and_other_errors_stay(job):
    refusal = rf"cannot write to {job.folder}: No space left .* again to resume"
    with pytest.raises(DatasetError, match=refusal), job.locked():
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(FileNotFoundError), job.locked():
        raise FileNotFoundError(errno.ENOENT, "missing")


@pytest.fixture
def shards(tmp_path):
    """A job that writes the name of each shard, and a function that runs it."""
    job = ShardJob.of(tmp_path / "out", "an experiment", ".work")

    def run(names, task=None, stop_at=None):
        """The shards that were written."""
        written = []

        def work(name, report):
            assert not (job.folder / "manifest.json").exists()
            if name == stop_at:
                raise KeyboardInterrupt
            written.append(name)
            job.entry_path(name).write_text(name)
            report(1)

        with job.started({"described": {"names": names}, "where": "here"}, task):
            mine = names if task is None else task.items(names)
            job.fill({name: 1 for name in mine if not job.entry_path(name).exists()}, work, "steps", CONSOLE)
        return written

    return job, run


CONSOLE = Console(file=StringIO())


def test_a_shard_with_an_entry_is_not_written_again(shards):
    job, run = shards
    with pytest.raises(KeyboardInterrupt):
        run(["a", "b", "c"], stop_at="c")
    (job.folder / "manifest.json").touch()
    assert run(["a", "b", "c"]) == ["c"]
    (job.folder / "manifest.json").touch()
    assert run(["a", "b", "c"]) == []
    assert (job.folder / "manifest.json").exists()
    with pytest.raises(DatasetError, match=r"names was \[.*\], and is"):
        run(["a"])


def test_tasks_of_an_array_write_their_shares_side_by_side(shards):
    job, run = shards
    with job.locked(shared=True):
        assert run(["a", "b", "c"], ArrayTask(1, 2)) == ["b"]
        with pytest.raises(DatasetError, match="another process is writing an experiment"):
            run(["a", "b", "c"])
    assert run(["a", "b", "c"], ArrayTask(0, 2)) == ["a", "c"]


def test_the_first_shards_that_wait_are_named():
    entries = dict.fromkeys("abcdef") | {"g": 1}
    with pytest.raises(DatasetError, match=r"^6 of 7 shards are not read yet \(a, b, c, d, e, …\); run their part of"):
        all_done(entries, "read")
    assert all_done({"g": 1}, "read") == {"g": 1}


@pytest.mark.parametrize(
    ("stamps", "left", "seconds"),
    [
        ([(1000.0, 700), (1010.0, 300), (1020.0, 100)], 800, 40),
        ([(1000.0, 0), (1010.0, 0)], 3, 30),
        ([(1000.0, 700), (1010.0, 300)], 0, None),
        ([(1000.0, 700)], 800, None),
        ([(1000.0, 700), (1000.0, 300)], 800, None),
    ],
    ids=["400 bytes in 20 s", "empty files", "nothing left", "one file", "no time between them"],
)
def test_the_time_left_follows_from_what_was_written_after_the_first_file(stamps, left, seconds):
    assert time_left(stamps, left) == (None if seconds is None else timedelta(seconds=seconds))
