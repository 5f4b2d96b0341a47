"""Extraction of features as a job array: preempted and killed tasks do not change the output."""

from pathlib import Path

import pytest
from helpers.data.feature_shards import write_several
from helpers.models import vision_towers
from helpers.slurm.cluster import soon

from vlm_agent.cli import main
from vlm_agent.simulator.demonstrations import simulate

SECONDS, TASKS = 180, 2
SUBSETS = ("general", "google_apps", "install", "single")


@pytest.fixture(scope="module")
def extraction(tmp_path_factory):
    """The arguments of the command without --output."""
    folder = tmp_path_factory.mktemp("data")
    write_several(folder / "shards", episodes=1, subsets=SUBSETS)
    checkpoint = vision_towers.write("dinov2", folder / "dinov2")
    return [str(folder / "shards"), "--extractor", "dinov2", "--checkpoint", str(checkpoint), "--form", "patches"]


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_array_with_stopped_and_preempted_tasks_ends_with_the_same_bytes(workplace, extraction, tmp_path):
    """The first start of each task extracts half of its shards, begins a file more, and lasts until it is ended."""
    real = (workplace.folder / "environment" / "bin" / "vlm-agent").rename(workplace.folder / "real")
    workplace.install(
        "vlm-agent",
        'if [ -n "${SLURM_ARRAY_TASK_ID:-}" ] && [ ! -e "begun-$SLURM_ARRAY_TASK_ID" ]; then\n'
        f'    {real} "$@" --shard-count {2 * TASKS}\n'
        '    echo half >"features/.general.npy.$SLURM_ARRAY_TASK_ID.partial"\n'
        '    mkdir "begun-$SLURM_ARRAY_TASK_ID"\n'
        "    sleep 1000 & wait\n"
        f'fi\nexec {real} "$@"\n',
    )
    array = (f"--array=0-{TASKS - 1}", "slurm/features.sbatch", *extraction, "--output", "features")
    job = workplace.submit(*array)
    begun = [workplace.folder / f"begun-{task}" for task in range(TASKS)]
    soon(lambda: all(map(Path.is_dir, begun)), SECONDS, lambda: workplace.log("features", job))
    workplace.run("scancel", "--batch", "--signal=USR1", f"{job}_0")  # its time is up
    workplace.run("scontrol", "requeue", f"{job}_1")  # another job needs the node
    workplace.cluster.wait_for(job, seconds=SECONDS)
    assert {task["JobState"] for task in workplace.cluster.tasks(job)} == {"COMPLETED"}, workplace.log("features", job)
    features = workplace.folder / "features"
    assert not (features / "manifest.json").exists()

    finished = workplace.submit("slurm/features.sbatch", "--finish", "--output", "features")
    assert workplace.cluster.wait_for(finished, seconds=SECONDS) == [{"COMPLETED"}], workplace.log("features", finished)
    assert main(["features", *extraction, "--output", str(tmp_path / "alone")]) == 0
    assert _tree(features) == _tree(tmp_path / "alone")


@pytest.mark.slow
def test_a_pipeline_converts_and_extracts(workplace, extraction):
    simulate(workplace.folder / "data", 5, sizes=((128, 64),), workers=1)
    _, *own = extraction
    jobs = workplace.pipeline(
        *("convert", "--input", "data", "--output", "shards", "then", "features", "--output", "features", *own)
    )
    states = dict(zip(jobs, workplace.cluster.wait_for(*jobs.values(), seconds=SECONDS), strict=True))
    logs = {name: workplace.log(name, job) for name, job in jobs.items()}
    done = {name: {"COMPLETED"} for name in ("convert", "finish", "features", "features_finish")}
    assert states == done | {"failed": {"CANCELLED"}}, logs
    assert (workplace.folder / "features" / "manifest.json").is_file()
