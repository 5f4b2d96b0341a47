"""Whatever a step leaves behind, its job is requeued after a notice, else recorded as failed. Stand-ins replace srun,
squeue and scontrol; no cluster."""

import os
import signal
import subprocess
import time

import pytest
from helpers.slurm.workplace import Workplace

from vlm_agent.training.run_folder.status import read_status

NO_STEP = "srun: error: Unable to create step for job 78: Memory required by task is not available"
ENDS = f"echo '{NO_STEP}' >&2\nexit 1\n"
NOTICED = "trap '' USR1\nuntil [ -f noticed ]; do sleep 0.05; done\n"
JOBS = {
    "convert": ("--input", "a", "--output", "shards"),
    "features": ("shards", "--output", "features"),
    "evaluate": ("--shards", "shards", "--output", "out"),
    "compare": ("out", "file.yaml", "--output", "out", "--stage", "offline-x-0"),
}


@pytest.fixture
def alone(tmp_path):
    place = Workplace(tmp_path)
    place.install("scontrol", 'echo "$*" >>calls\n[ "$1" = requeue ] || echo node1\n')
    place.install("squeue", "echo RUNNING N/A\n")
    return place


def _ended(place, name, words, step, program="vlm-agent", notice=False, **variables):
    """The exit status of a job and what it printed."""
    place.install(program, f"touch started\n{NOTICED if notice else ''}{step}")
    environment = os.environ | {"SLURM_JOB_ID": "78", "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NAME": name} | variables
    command, output = ["bash", f"slurm/{name}.sbatch", *words], place.folder / "output"
    with output.open("w") as file:  # a process that repeats the notice outlives the job and would hold a pipe open
        job = subprocess.Popen(command, cwd=place.folder, env=environment, stdout=file, stderr=file)
        while notice and not (place.folder / "started").exists():
            time.sleep(0.02)
        if notice:
            job.send_signal(signal.SIGUSR1)
            (place.folder / "noticed").touch()
        status = job.wait(timeout=60)
    return status, output.read_text()


def _events(place):
    return [line.split("\t")[1] for line in (place.folder / "run" / "slurm.tsv").read_text().splitlines()]


def _train(place, step=ENDS, notice=False, **variables):
    words = ("--config", "recipe.yaml", "--output", "run")
    return _ended(place, "train", words, step, "srun", notice, **variables)


def test_a_step_that_cannot_be_created_is_requeued_after_a_notice(alone):
    assert _train(alone, notice=True)[0] == 75
    assert _events(alone) == ["start", "again"]
    assert "requeue 78" in (alone.folder / "calls").read_text().splitlines()


def test_a_controller_that_is_busy_is_asked_again_to_requeue_a_job(alone):
    for name, script in {"sleep": "exit 0\n", "squeue": "exit 1\n"}.items():
        alone.install(name, script)
    busy = '[ -e "busy" ] || { touch busy; echo "Unable to contact slurm controller" >&2; exit 1; }\n'
    alone.install("scontrol", f'[ "$1" = requeue ] || {{ echo node1; exit; }}\n{busy}echo "$*" >>calls\n')
    assert _train(alone, notice=True)[0] == 75
    assert (alone.folder / "calls").read_text() == "requeue 78\n"
    assert _events(alone) == ["start", "again"]


def test_the_status_of_a_job_that_slurm_refuses_to_requeue_does_not_say_that_it_waits(alone):
    alone.install("sleep", "exit 0\n")
    alone.install("scontrol", '[ "$1" != requeue ] || exit 1\necho node1\n')
    status, printed = _train(alone, notice=True)
    assert status == 75
    assert "Slurm refuses to requeue the job; submit it again to resume" in printed.splitlines()[-1]
    assert read_status(alone.folder / "run").state == (
        "stopped in job 78: Slurm refuses to requeue it; submit it again to resume"
    )


def test_a_step_that_cannot_be_created_is_a_failure_with_the_reason_of_srun(alone):
    status, printed = _train(alone)
    assert status == 1
    assert _events(alone) == ["start", "failed"]
    assert printed.splitlines()[-1] == NO_STEP
    assert "this script failed" not in printed


def test_the_log_of_an_earlier_start_does_not_hide_the_reason_of_this_one(alone):
    logs = alone.folder / "run" / "logs" / "78"
    logs.mkdir(parents=True)
    (logs / "rank-0.log").write_text("what went well\n" * 30)
    os.utime(logs / "rank-0.log", (1, 1))
    assert NO_STEP in _train(alone)[1].splitlines()[-1]
    started = f'echo "the reason of the rank" >>"{logs}/rank-0.log"\nexit 1\n'
    assert "the reason of the rank" in _train(alone, started, SLURM_RESTART_COUNT="1")[1]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_whose_files_vanish_while_they_are_counted_is_requeued_all_the_same(alone, name):
    alone.install("find", "exit 1\n")
    (alone.folder / "out").mkdir()
    for folder in ("shards/.conversion", "features/.features"):
        (alone.folder / folder).mkdir(parents=True)
    status, _ = _ended(alone, name, JOBS[name], "exit 1\n", notice=True)
    assert status == 75
    assert (alone.folder / "calls").read_text() == "requeue 78\n"


@pytest.mark.parametrize("name", ["convert", "features"])
def test_a_job_has_the_workers_of_its_cpus_unless_its_arguments_say_otherwise(alone, name):
    step = 'echo "$*" >>words\n'
    for words in ((), ("--workers", "2")):
        assert _ended(alone, name, (*JOBS[name], *words), step, SLURM_CPUS_PER_TASK="7")[0] == 0
    default, own = (alone.folder / "words").read_text().splitlines()
    assert default.endswith("--workers 7")
    assert own.endswith("--workers 2")


def test_a_script_that_fails_before_its_step_is_recorded_as_failed(alone):
    (alone.folder / "environment" / "bin" / "activate").unlink()
    status, printed = _train(alone)
    assert status == 1
    assert "activate: No such file" in printed
    assert _events(alone) == ["start", "failed"]


def test_the_job_that_reports_failures_outlives_what_slurm_has_forgotten(alone):
    scontrol = 'case "$*" in *" 1") echo slurm_load_jobs error: Invalid job id specified >&2; exit 1;; esac\n'
    scontrol += 'echo "JobId=2 JobState=FAILED Reason=NonZeroExitCode x ExitCode=1:0 x"\n'
    alone.install("scontrol", scontrol)
    search = os.environ | {"PATH": f"{alone.folder}/environment/bin:{os.environ['PATH']}"}
    command = ["bash", "slurm/failed.sbatch", "convert:1", "train:2"]
    done = subprocess.run(command, cwd=alone.folder, env=search, capture_output=True, text=True, check=True)
    assert "convert (job 1): 1 x no longer known to Slurm; see its log" in done.stdout
    assert "train (job 2): 1 x FAILED (NonZeroExitCode, status 1:0)" in done.stdout
