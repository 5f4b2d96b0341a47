"""Conversion as a job array: stopped, preempted or killed tasks do not change the output."""

from pathlib import Path

import pytest
from helpers import tiny
from helpers.slurm.cluster import soon

from vlm_agent.cli import main
from vlm_agent.datasets.sources.aitw import write_episodes

SECONDS, TASKS = 90, 3


@pytest.fixture(scope="module")
def aitw(tmp_path_factory):
    """Five files of two episodes."""
    folder = tmp_path_factory.mktemp("aitw")
    for number in range(5):
        episodes = [tiny.episode(2 * number), tiny.episode(2 * number + 1)]
        write_episodes(folder / f"general-{number:05}-of-00005", episodes)
    return folder


@pytest.fixture(scope="module")
def in_one_process(aitw, tmp_path_factory):
    """The output of an uninterrupted conversion."""
    folder = tmp_path_factory.mktemp("converted") / "shards"
    assert main(["convert", *_inputs(aitw), "--output", str(folder), "--workers", "1"]) == 0
    return _tree(folder)


def _inputs(aitw):
    return ["--input", str(aitw)]


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _stuck_at_first(workplace):
    """`vlm-agent`, whose first start in each task converts half of it, begins a file more, and lasts until it is
    ended."""
    real = (workplace.folder / "environment" / "bin" / "vlm-agent").rename(workplace.folder / "real")
    workplace.install(
        "vlm-agent",
        'if [ -n "${SLURM_ARRAY_TASK_ID:-}" ] && [ ! -e "begun-$SLURM_ARRAY_TASK_ID" ]; then\n'
        f'    {real} "$@" --shard-count {2 * TASKS}\n'
        '    echo half >"shards/.general.parquet.$SLURM_ARRAY_TASK_ID.partial"\n'
        '    mkdir "begun-$SLURM_ARRAY_TASK_ID"\n'
        "    sleep 1000 & wait\n"
        f'fi\nexec {real} "$@"\n',
    )


def test_an_array_with_stopped_preempted_and_killed_tasks_ends_with_the_same_bytes(workplace, aitw, in_one_process):
    _stuck_at_first(workplace)
    array = (f"--array=0-{TASKS - 1}%2", "slurm/convert.sbatch", *_inputs(aitw), "--output", "shards")
    job = workplace.submit(*array)
    _until_begun(workplace, job, 0, 1)
    workplace.run("scancel", "--batch", "--signal=USR1", f"{job}_0")  # its time is up
    workplace.run("scontrol", "requeue", f"{job}_1")  # somebody else needs the node
    _until_begun(workplace, job, 2)
    workplace.run("scancel", f"{job}_2")
    workplace.cluster.wait_for(job, seconds=SECONDS)
    states = sorted(task["JobState"] for task in workplace.cluster.tasks(job))
    assert states == ["CANCELLED", "COMPLETED", "COMPLETED"], workplace.log("convert", job)
    finish = ("slurm/convert.sbatch", "--finish", "--output", "shards")
    assert not (workplace.folder / "shards" / "manifest.json").exists()

    again = workplace.submit("--array=2", *array[1:], "--shard-count", TASKS)
    finished = workplace.submit(f"--dependency=afterok:{again}", *finish)
    assert workplace.cluster.wait_for(again, finished, seconds=SECONDS) == [{"COMPLETED"}] * 2
    assert _tree(workplace.folder / "shards") == in_one_process
    logs = workplace.folder / "slurm" / "logs" / f"convert-{job}"
    assert {path.name for path in logs.glob("*.log")} == {f"task-{task}.log" for task in range(TASKS)}


def _until_begun(workplace, job, *tasks):
    folders = [workplace.folder / f"begun-{task}" for task in tasks]
    soon(lambda: all(map(Path.is_dir, folders)), SECONDS, lambda: workplace.log("convert", job))


def test_quarantined_records_do_not_fail_the_job_and_wrong_arguments_do(workplace, aitw):
    """The statuses 3 and 2; the jobs that wait for a conversion depend on the difference."""
    damaged = workplace.folder / "general-00000-of-00001"
    damaged.write_bytes((aitw / "general-00000-of-00005").read_bytes()[:-40])
    script, output = "slurm/convert.sbatch", ("--output", "shards")
    converts = workplace.submit(script, "--input", damaged, aitw / "general-00001-of-00005", *output)
    refused = workplace.submit(f"--dependency=afterany:{converts}", script, "--imput", damaged, *output)
    states = workplace.cluster.wait_for(converts, refused, seconds=SECONDS)
    assert states == [{"COMPLETED"}, {"FAILED"}], workplace.log("convert", converts)
    assert "some records are quarantined" in workplace.log("convert", converts)
    assert (workplace.folder / "shards" / "manifest.json").exists()
    assert "failed with status 2" in workplace.log("convert", refused)


def test_a_task_of_an_array_needs_the_number_of_tasks(workplace, aitw):
    job = workplace.submit("--array=2", "slurm/convert.sbatch", *_inputs(aitw), "--output", "shards")
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"FAILED"}]
    assert "set --shard-count" in workplace.log("convert", job)
