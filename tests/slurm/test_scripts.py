"""The scripts pass shellcheck, are accepted by Slurm, and refuse invalid options before submission."""

import os
import shlex
import shutil
import subprocess

import pytest
from helpers.slurm.workplace import REPOSITORY, Workplace

JOBS = sorted(path.name for path in (REPOSITORY / "slurm").glob("*.sbatch"))
EVERYTHING = shlex.split(
    "--nodes 2 convert --input 'my files' --output shards "
    "then train --config recipe.yaml --output runs/x then evaluate --split test"
)
WITH_FEATURES = shlex.split(
    "convert --input a --output shards then features --output features "
    "then train --config recipe.yaml --output runs/x then evaluate"
)


@pytest.fixture
def alone(tmp_path):
    """A folder to submit from, without a cluster. `vlm-agent check` accepts everything."""
    place = Workplace(tmp_path)
    place.install("vlm-agent", "exit 0\n")
    (tmp_path / "recipe.yaml").touch()
    return place


def _submissions(place, *words):
    """The words of each command that --dry-run prints."""
    return [shlex.split(line) for line in place.pipeline_alone("--dry-run", *words).stdout.splitlines()]


def _chain(commands):
    """By job name, what a job waits for."""
    return {_option(words, "--job-name"): _option(words, "--dependency") for words in commands}


def _option(words, name):
    return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), None)


def test_shellcheck_finds_nothing():
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    scripts = [*(REPOSITORY / "slurm").glob("*.sh"), *(REPOSITORY / "slurm").glob("*.sbatch")]
    assert len(scripts) > len(JOBS)
    done = subprocess.run(
        ["shellcheck", "--external-sources", *scripts], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", JOBS)
def test_slurm_accepts_every_script_unchanged(workplace, script):
    assert "to start at" in workplace.run("sbatch", "--test-only", f"slurm/{script}", "--output", "x")


@pytest.mark.parametrize("gpus", [0, 8])
@pytest.mark.parametrize("stages", [EVERYTHING, WITH_FEATURES])
def test_slurm_accepts_every_job_of_a_pipeline(workplace, gpus, stages):
    (workplace.folder / "recipe.yaml").touch()
    workplace.install("vlm-agent", "exit 0\n")
    workplace.set(GPUS_PER_NODE=gpus)
    for words in _submissions(workplace, *stages):
        kept = [word for word in words if not word.startswith("--dependency")]
        assert "to start at" in workplace.run(*kept[:1], "--test-only", *kept[1:])
    assert not workplace.run("squeue", "--noheader")


def test_a_dry_run_shows_the_chain_and_needs_no_slurm(alone):
    assert _chain(_submissions(alone, *EVERYTHING)) == {
        "convert": None,
        "finish": "afterok:ID_OF_CONVERT",
        "train": "afterok:ID_OF_FINISH",
        "evaluate": "afterok:ID_OF_TRAIN",
        "report": "afterok:ID_OF_EVALUATE",
        "failed": "?".join(f"afternotok:ID_OF_{n}" for n in ("CONVERT", "FINISH", "TRAIN", "EVALUATE", "REPORT")),
    }


def test_a_stage_receives_the_output_of_the_previous_one(alone):
    by_name = {_option(words, "--job-name"): words for words in _submissions(alone, *EVERYTHING)}
    assert by_name["convert"][-6:] == ["--input", "my files", "--output", "shards", "--shard-count", "2"]
    assert by_name["train"][-2:] == ["--data.shards", "shards"]
    words = by_name["evaluate"]
    assert [words[words.index(name) + 1] for name in ("--shards", "--checkpoint", "--output")] == [
        "shards",
        "runs/x",
        "runs/x/evaluation",
    ]
    *_, evaluation, _report, _failed = _submissions(alone, *EVERYTHING, "--benchmark", "eval/aitw_standard.yaml")
    assert evaluation[evaluation.index("--shards") + 1] == "shards"


def test_the_finish_has_the_limit_on_bad_steps_of_its_conversion(alone):
    words = ("convert", "--input", "a", "--output", "s")
    for own in ([], ["--max-bad-fraction", "0.01"]):
        _, finish, _ = _submissions(alone, *words, *own)
        assert finish[finish.index("--finish") :] == ["--finish", "--output", "s", *own]


def test_features_are_extracted_between_conversion_and_training(alone):
    commands = _submissions(alone, *WITH_FEATURES)
    chain = _chain(commands)
    assert chain["features"] == "afterok:ID_OF_FINISH"
    assert chain["features_finish"] == "afterok:ID_OF_FEATURES"
    assert chain["train"] == "afterok:ID_OF_FEATURES_FINISH"
    by_name = {_option(words, "--job-name"): words for words in commands}
    extraction = by_name["features"]
    assert extraction[extraction.index("slurm/features.sbatch") + 1 :] == [
        *("shards", "--output", "features", "--config", "recipe.yaml", "--shard-count", "2")
    ]
    train = by_name["train"]
    assert train[train.index("--data.features") + 1] == "features"
    assert by_name["features_finish"][-3:] == ["--finish", "--output", "features"]


def test_explicit_options_of_features_are_not_replaced(alone):
    (alone.folder / "other").mkdir()
    (alone.folder / "other" / "manifest.json").touch()
    own = ("features", "other", "--extractor", "vit", "--output", "f")
    features, *_ = _submissions(alone, *own, "then", "train", "--config", "recipe.yaml", "--output", "r")
    assert features[features.index("slurm/features.sbatch") + 1 :][:5] == ["other", *own[2:]]
    assert "--config" not in features
    train = _submissions(alone, *own, "then", "train", "--config", "recipe.yaml", "--output", "r")[2]
    assert train[train.index("--data.shards") + 1] == "other"


def test_explicit_options_are_not_replaced(alone):
    train_words = ("train", "--config", "recipe.yaml", "--output", "r", "--data.shards", "other")
    train = _submissions(alone, "convert", "--input", "a", "--output", "s", "then", *train_words)[2]
    assert train.count("--data.shards") == 1
    assert train[-1] == "other"


def test_without_a_conversion_evaluation_reads_the_shards_of_training(alone):
    (alone.folder / "s").mkdir()
    (alone.folder / "s" / "manifest.json").touch()
    train, then = ("train", "--config", "recipe.yaml", "--output", "r"), ("then", "evaluate")
    words = ("--data.shards", "other", "--data.shards=my s")  # the last one counts, as in training
    evaluation = _submissions(alone, *train, *words, *then, "--benchmark", "eval/x.yaml")[1]
    assert evaluation[evaluation.index("--shards") + 1] == "my s"
    own = _submissions(alone, *train, *then, "--shards", "other")[1]
    assert own.count("--shards") == 1 and "other" in own


def test_missing_shards_are_an_error_before_submission(alone):
    """Not after the hours of training."""
    train = ("train", "--config", "recipe.yaml", "--output", "r")
    done = alone.pipeline_alone("--dry-run", *train, "then", "evaluate", "--split", "test")
    assert (done.returncode, done.stdout) == (1, "")
    assert "evaluate needs --shards SHARDS (those of --data.shards of train are the default)" in done.stderr


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (16, 4)])
def test_training_gets_the_requested_nodes_and_gpus(alone, nodes, gpus):
    alone.set(GPUS_PER_NODE=gpus, GPU_TYPE="a100", CPUS_PER_GPU=6)
    train, _ = _submissions(alone, "--nodes", nodes, "train", "--config", "recipe.yaml", "--output", "r")
    wanted = {"--nodes": nodes, "--gres": f"gpu:a100:{gpus}", "--cpus-per-task": gpus * 6, "--partition": "gpu"}
    assert {name: _option(train, name) for name in wanted} == {name: str(value) for name, value in wanted.items()}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "name a stage"),
        ("evaluate --output e then train --config recipe.yaml --output r", "unexpected stage 'train'"),
        ("convert --input a --output s then", "a stage must follow `then`"),
        ("convert --input a", "convert needs --output"),
        ("features shards --extractor vit", "features needs --output"),
        ("features --extractor vit --output f", "features needs the folder of the shards"),
        ("features s --output f then evaluate --output e", "unexpected stage 'evaluate'"),
        ("train --output r", "train needs --config"),
        ("train --config nowhere.yaml --output r", "the recipe nowhere.yaml does not exist"),
        ("evaluate --checkpoint r", "evaluate needs --output"),
        ("--nodes 2 compare c.yaml --output o", "each stage of compare has one node, so --nodes has no"),
        ("--nodes 0 train --config recipe.yaml --output r", "--nodes must be 1 or greater, not 0"),
        ("--nodes 2 evaluate --shards s --checkpoint r --output e", "--nodes is for train; remove it"),
        ("--gpu A100-80 train --config recipe.yaml --output r", "--gpu is for the hours that `--dry-run compare`"),
        ("evaluate --online --checkpoint r --output e", "evaluate --online is no job array"),
        ("convert --finish --output s", "all jobs are submitted, also that of --finish; remove it"),
        ("compare c.yaml --output o --report", "all jobs are submitted, also that of --report; remove it"),
        ("train --config recipe.yaml --output r --dry-run", "write --dry-run before the first stage, train"),
    ],
)
def test_invalid_options_are_refused_before_submission(alone, words, complaint):
    done = alone.pipeline_alone("--dry-run", *words.split())
    assert done.returncode == 1
    assert complaint in done.stderr
    assert not done.stdout


def test_mistakes_in_several_stages_are_refused_before_the_first_submission(tmp_path):
    done = Workplace(tmp_path).pipeline_alone(
        *("convert", "--inptu", "data", "--output", "shards"),
        *("then", "train", "--config", REPOSITORY / "recipes/forkme.yaml", "--output", "r", "--training.stepz", 5),
        *("then", "evaluate", "--bf61"),
    )
    assert (done.returncode, done.stdout) == (1, "")
    for complaint in (
        "convert: unknown option --inptu",
        "unknown key training.stepz",
        "evaluate: unknown option --bf61",
    ):
        assert complaint in done.stderr


def test_stages_are_checked_as_they_will_run_with_the_caches_of_the_jobs(alone):
    alone.set(SCRATCH="/large")
    alone.install("vlm-agent", 'echo "$HF_HOME $HF_HUB_OFFLINE" "$@" >called\nexit 1\n')
    done = alone.pipeline_alone(*EVERYTHING)
    assert (done.returncode, done.stdout) == (1, "")
    expected = "/large/huggingface 1 check " + " ".join(EVERYTHING[2:])
    expected = expected.replace(" then evaluate", " --data.shards shards then evaluate")
    expected += " --shards shards --checkpoint runs/x --output runs/x/evaluation\n"
    assert (alone.folder / "called").read_text() == expected


@pytest.mark.parametrize("scratch", ["", "/large"])
def test_the_readme_downloads_into_the_cache_that_jobs_read(scratch):
    readme = (REPOSITORY / "slurm" / "README.md").read_text()
    export = next(line for line in readme.splitlines() if "HF_HOME=" in line).partition("site.sh && ")[2]
    jobs = 'use_caches; echo "${HF_HOME-$HOME/.cache/huggingface}"'
    script = f'SCRATCH={scratch} OFFLINE=1; source slurm/options.sh; ({jobs}); {export}; echo "$HF_HOME"'
    done = subprocess.run(["bash", "-uc", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 1


def test_a_finished_run_is_not_submitted_again(alone):
    (alone.folder / "r").mkdir()
    (alone.folder / "r" / "run.json").touch()
    done = alone.pipeline_alone("--dry-run", "train", "--config", "recipe.yaml", "--output", "r")
    assert "r holds a finished run" in done.stderr


def test_a_missing_environment_is_an_error_before_submission(alone):
    alone.set(VENV="nowhere")
    assert "VENV of slurm/site.sh is nowhere" in alone.pipeline_alone("evaluate", "--output", "e").stderr


def test_jobs_that_a_refused_pipeline_leaves_in_the_queue_are_named(alone):
    """A controller that refuses a submission may not answer the cancellation either."""
    alone.install("sbatch", 'if [ -e submitted ]; then echo "timed out" >&2; exit 1; fi; touch submitted; echo 17\n')
    alone.install("scancel", "exit 1\n")
    path = f"{alone.folder}/environment/bin:{os.environ['PATH']}"
    command = ["slurm/pipeline.sh", "convert", "--input", "a", "--output", "s"]
    environment = os.environ | {"PATH": path}
    done = subprocess.run(command, cwd=alone.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Slurm refused finish, and to cancel the jobs before it: run `scancel 17`" in done.stderr


def test_a_pipeline_that_slurm_refuses_half_way_leaves_nothing_in_the_queue(workplace):
    workplace.set(GPU_PARTITION="no_such_partition")
    workplace.install("vlm-agent", "exit 0\n")
    output = workplace.run(
        *("slurm/pipeline.sh", "convert", "--input", "a", "--output", "s", "then", "evaluate", "--output", "e"),
        check=False,
    )
    assert "Slurm refused evaluate" in output
    assert "invalid partition" in output
    assert not workplace.run("squeue", "--noheader", "--states=PENDING,RUNNING")
