"""Each way in which a training job can end, and the reaction of train.sbatch. All jobs run at once, one node each. A
line of shell replaces the training, and a script that only starts it replaces torchrun."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.slurm.cluster import soon
from helpers.slurm.workplace import Workplace

SECONDS = 90
RESTARTED = '[ -n "${SLURM_RESTART_COUNT:-}" ]'
FINISH = "touch run/run.json"
SAVE = "mkdir -p run/checkpoints/checkpoint-7 && touch run/checkpoints/checkpoint-7/whole.json"
STOP = "touch run/stopped; exit 75"
_LISTENS = (
    "import os, signal, sys\n"
    f'signal.signal(signal.SIGUSR1, lambda *_: sys.exit(os.system("{SAVE}; touch run/stopped") or 75))\n'
    "signal.pause()"
)

PROGRAMS = {
    "gets nowhere": STOP,
    "saves once": f"if {RESTARTED}; then {FINISH}; else {SAVE}; {STOP}; fi",
    "crashes later": f"if {RESTARTED}; then exit 3; fi; {SAVE}; {STOP}",
    "crashes": "echo what went wrong; exit 3",
    "crashes after its end": f"{FINISH}; exit 134",
    "ends without its record": "exit 0",
    "does not listen yet": f"if {RESTARTED}; then {FINISH}; exit; fi; sleep 2; exec python3 -c '{_LISTENS}'",
    "never listens": f"if {RESTARTED}; then {FINISH}; else sleep 1000; fi",
    "is cancelled": "sleep 1000",
    "is preempted": f"if {RESTARTED}; then {FINISH}; else sleep 1000; fi",
}
STOPPED_BY_SIGNAL = ("does not listen yet", "never listens")

_TORCHRUN = """
echo "$@" >"$LOGS/torchrun-words"
echo "$RANKS" >"$LOGS/ranks-folder"
echo "${CUDA_VISIBLE_DEVICES-not set}" >"$LOGS/visible-gpus"
while [ "$1" != --no-python ]; do shift; done
shift
export RANK=0 LOCAL_RANK=0
"$@" &
trap 'kill -s TERM $!' TERM
wait $! || exit 1
"""


@dataclass
class Ended:
    state: str
    log: str
    events: list[str]
    done: list[int]
    logs: Path


@pytest.fixture(scope="module")
def ended(cluster, tmp_path_factory):
    """Every program's job, when all have ended."""
    places, jobs = {}, {}
    for name, program in PROGRAMS.items():
        places[name] = place = Workplace(tmp_path_factory.mktemp("place"), cluster)
        # A job waits 60 s less than this before it is requeued without a save.
        place.set(NOTICE_SECONDS=61 if name == "never listens" else 80)
        place.install("torchrun", _TORCHRUN)
        place.install("vlm-agent", program + "\n")
        jobs[name] = place.submit("slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    for name in (*STOPPED_BY_SIGNAL, "is cancelled", "is preempted"):
        log = places[name].folder / "run" / "logs" / jobs[name] / "rank-0.log"
        soon(log.exists, SECONDS, lambda name=name: places[name].log("train", jobs[name]))
        signal = ["--batch", "--signal=USR1"] if name in STOPPED_BY_SIGNAL else []
        end = ["scontrol", "requeue"] if name == "is preempted" else ["scancel", *signal]
        cluster.run(*end, jobs[name])
    states = dict(zip(jobs, cluster.wait_for(*jobs.values(), seconds=SECONDS), strict=True))
    return {name: _ended(places[name], job, *states[name]) for name, job in jobs.items()}


def _ended(place, job, state):
    lines = [line.split("\t") for line in (place.folder / "run" / "slurm.tsv").read_text().splitlines()]
    logs = place.folder / "run" / "logs" / job
    return Ended(state, place.log("train", job), [line[1] for line in lines], [int(line[4]) for line in lines], logs)


def test_a_job_without_progress_twice_stops_with_a_message(ended):
    job = ended["gets nowhere"]
    assert job.events == ["start", "again", "start", "stopped"]
    assert job.state == "FAILED"
    assert "no progress beyond 0 steps in a checkpoint in two turns in a row" in job.log


def test_a_run_that_was_stopped_after_saving_is_requeued_and_resumes(ended):
    assert ended["saves once"].events == ["start", "again", "start", "done"]
    assert ended["saves once"].state == "COMPLETED"


def test_a_crash_is_not_retried_and_its_last_error_is_shown(ended):
    job = ended["crashes"]
    assert job.events == ["start", "failed"]
    assert job.state == "FAILED"
    assert "what went wrong" in job.log


def test_a_crash_is_not_mistaken_for_the_stop_of_the_previous_turn(ended):
    assert ended["crashes later"].events == ["start", "again", "start", "failed"]


def test_a_crash_after_run_json_was_written_is_not_a_failure(ended):
    assert ended["crashes after its end"].events == ["start", "done"]
    assert ended["crashes after its end"].state == "COMPLETED"


def test_exit_status_0_without_run_json_is_a_failure(ended):
    job = ended["ends without its record"]
    assert job.events == ["start", "failed"]
    assert job.state == "FAILED"
    assert "did not write run/run.json" in job.log


@pytest.mark.parametrize(("name", "done"), [("does not listen yet", [0, 7, 7, 7]), ("never listens", [0, 0, 0, 0])])
def test_a_notice_that_training_ignores_is_repeated_and_the_job_is_requeued(ended, name, done):
    assert ended[name].events == ["start", "again", "start", "done"]
    assert ended[name].done == done


def test_a_cancelled_job_stays_cancelled(ended):
    job = ended["is cancelled"]
    assert job.state == "CANCELLED"
    assert job.events == ["start", "stopped"]


def test_a_preempted_job_is_recorded_at_once_and_resumes(ended):
    assert ended["is preempted"].events == ["start", "stopped", "start", "done"]
    assert ended["is preempted"].state == "COMPLETED"


def test_a_step_that_ends_before_its_script_gets_the_signal_is_not_a_failure(workplace):
    workplace.install("srun", f"if {RESTARTED}; then {FINISH}; else scontrol requeue $SLURM_JOB_ID; exit 1; fi\n")
    job = workplace.submit("slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"COMPLETED"}]
    assert _ended(workplace, job, "COMPLETED").events == ["start", "stopped", "start", "done"]


def test_a_job_that_is_preempted_before_its_step_is_not_a_failure(workplace):
    preempt = f"{RESTARTED} || {{ scontrol requeue $SLURM_JOB_ID; sleep 2; }}\n"
    with (workplace.folder / "environment" / "bin" / "activate").open("a") as file:
        file.write(preempt)
    workplace.install("srun", FINISH + "\n")
    job = workplace.submit("slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"COMPLETED"}]
    assert _ended(workplace, job, "COMPLETED").events == ["start", "stopped", "start", "done"]


def test_a_step_that_ends_in_the_grace_time_of_a_preemption_is_not_a_failure(workplace):
    """Slurm then signals the step alone, and requeues the job only if it still runs when that time is over. The
    controller, busy with preemptions, does not answer the first question."""
    once = "if [ ! -e asked ]; then touch asked; exit 1; fi"
    workplace.install("squeue", f'{once}\nexec {shutil.which("squeue")} "$@"\n')
    workplace.install("torchrun", _TORCHRUN)
    workplace.install("vlm-agent", f"if {RESTARTED}; then {FINISH}; else sleep 1000; fi\n")
    job = workplace.submit("slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    soon((workplace.folder / "run/logs" / job / "rank-0.log").exists, SECONDS, lambda: workplace.log("train", job))
    node = workplace.cluster.job(job)["NodeList"]
    urgent = ("--partition=urgent", "--exclusive", f"--nodelist={node}", "--wrap=sleep 1")
    workplace.cluster.run("sbatch", *urgent, cwd=workplace.folder)
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"COMPLETED"}]
    assert _ended(workplace, job, "COMPLETED").events == ["start", "stopped", "start", "done"]


@pytest.mark.parametrize(("turns", "state"), [(3, "COMPLETED"), (10, "FAILED")])
def test_preemptions_are_not_turns_without_progress_until_they_are_ten(workplace, turns, state):
    workplace.install("torchrun", _TORCHRUN)
    workplace.install("vlm-agent", FINISH + "\n")
    job = workplace.submit("--hold", "slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    (workplace.folder / "run").mkdir()
    at = f"2026-01-01T00:00:00+0000\t{{}}\t{job}\t0\t0\t{{}}\n"
    turn = at.format("start", "node1") + at.format("stopped", "Slurm ended the job")
    (workplace.folder / "run" / "slurm.tsv").write_text(turn * turns)
    workplace.run("scontrol", "release", job)
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{state}]
    assert ("or in ten that Slurm ended" in workplace.log("train", job)) == (state == "FAILED")


def test_torchrun_gets_time_to_save_its_own_port_and_a_folder_visible_in_containers(ended):
    logs = ended["saves once"].logs
    words = (logs / "torchrun-words").read_text().split()
    assert words[words.index("--shutdown-timeout") + 1] == "180"
    assert 20000 <= int(words[words.index("--master-port") + 1]) < 32000
    assert (logs / "ranks-folder").read_text().strip() == f"run/logs/{logs.name}/processes-node-0"


def test_a_site_without_gpus_per_node_hides_those_of_its_nodes(ended):
    assert (ended["saves once"].logs / "visible-gpus").read_text() == "\n"


def test_a_job_killed_twice_at_the_same_step_without_a_record_is_not_restarted(workplace):
    job = workplace.submit("--hold", "slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    (workplace.folder / "run").mkdir()
    earlier = f"2026-01-01T00:00:00+0000\tstart\t{job}\t0\t0\tnode1\n"
    (workplace.folder / "run" / "slurm.tsv").write_text(earlier * 2)
    workplace.run("scontrol", "release", job)
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"FAILED"}]
    assert "two turns in a row" in workplace.log("train", job)
    assert not (workplace.folder / "run" / "logs" / job / "node-0.log").exists()


def test_a_run_finished_before_a_restart_is_not_trained_again(workplace):
    (workplace.folder / "run").mkdir()
    (workplace.folder / "run" / "run.json").touch()
    words = ("slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    restarted, new = workplace.submit("--export=ALL,SLURM_RESTART_COUNT=1", *words), workplace.submit(*words)
    assert workplace.cluster.wait_for(restarted, new, seconds=SECONDS) == [{"COMPLETED"}, {"FAILED"}]
    assert "done before this start" in workplace.log("train", restarted)
    assert "holds a finished run" in workplace.log("train", new)


_SEES_NONE = (
    "PyTorch sees 0 GPU(s) of 2. Its build is for CUDA 13.0 (None: for CPUs), the driver is 535.154.05. Possible "
    "causes: a driver older than the build needs (580 for CUDA 13"
)


@pytest.mark.parametrize(
    ("options", "complaint"), [((), "the job has no GPUs: submit it with --gres=gpu:2"), (["--gres=gpu:2"], _SEES_NONE)]
)
def test_a_node_without_its_gpus_does_not_train_on_its_cpus(workplace, options, complaint):
    workplace.set(GPUS_PER_NODE=2)
    workplace.install("python", "echo 0 13.0\n")
    workplace.install("nvidia-smi", "echo 535.154.05\n")
    job = workplace.submit(*options, "slurm/train.sbatch", "--config", "recipe.yaml", "--output", "run")
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"FAILED"}]
    assert complaint in workplace.log("train", job)
