"""The command on a model card measures what its scores are: run again, it has the same identity."""

import shlex
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.runs import adapted_run

from vlm_agent.cli import main
from vlm_agent.evaluation.card import offline_command, online_command
from vlm_agent.evaluation.offline.plan import job
from vlm_agent.evaluation.online.evaluate import BASELINES
from vlm_agent.recipe.yaml_file import find_shipped


class PlannedError(Exception):
    """Raised in place of predicting: the plan is written."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return adapted_run.write_run(tmp_path_factory.mktemp("card_command"))


@pytest.fixture
def planned(monkeypatch, run, tmp_path):
    """The plan that a command writes, without predicting."""

    def refuse(*_, **__):
        raise PlannedError

    monkeypatch.setattr("vlm_agent.evaluation.offline.run.predict", refuse)

    def plan(words, output):
        with pytest.raises(PlannedError):
            main([*words, "--output", str(tmp_path / output)])
        return job(tmp_path / output).read_plan()

    return plan


OPTIONS = [
    "",
    "--agent.bf16 true",
    "--agent.constrained true",
    "--controls none --elements read",
    "--controls no_history --agent.batch_tokens 4096 --limit 2",
    "--agent.bf16 true --agent.constrained true --controls none --split train --limit 1",
]


def _again(command, run, output):
    """The words of a printed command, with the run's folder in place of its name."""
    words = shlex.split(shlex.join(command.words))
    assert words[:2] == ["vlm-agent", "evaluate"] and words[-2:] == ["--output", "OUT"]
    return [str(run) if word == run.name else word for word in words[1:-2]]


@pytest.mark.parametrize("options", OPTIONS)
def test_it_has_the_identity_of_the_evaluation(planned, run, options):
    words = ["evaluate", "--checkpoint", str(run), "--shards", str(run.parent / "shards"), "--split", "train"]
    plan = planned([*words, *options.split()], "first")
    again = planned(_again(offline_command(str(run), run.name, plan), run, "second"), "second")
    assert again["described"] == plan["described"]


def test_default_options_are_not_repeated(planned, run):
    shards = str(run.parent / "shards")
    plan = planned(["evaluate", "--checkpoint", str(run), "--shards", shards, "--split", "train"], "first")
    command = offline_command(str(run), run.name, plan)
    expected = ["vlm-agent", "evaluate", "--checkpoint", "run", "--shards", shards, "--split", "train"]
    assert command.words == [*expected, "--output", "OUT"] and command.notes == ()


def test_a_benchmark_of_the_package_is_named_with_its_draw(planned, run, tmp_path):
    shards = tiny.write_shards(tmp_path / "test", [tiny.episode(number) for number in range(2)], split="test")
    words = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--benchmark"]
    plan = planned([*words, str(find_shipped(Path("eval/d_pot.yaml")))], "first")
    command = offline_command(str(run), run.name, plan)
    assert "--benchmark eval/d_pot.yaml" in shlex.join(command.words)
    assert planned(_again(command, run, "second"), "second")["described"] == plan["described"]


def test_the_draw_of_another_benchmark_is_printed_as_its_keys(planned, run, tmp_path):
    keys = {"name": "mine", "about": "a", "source": "s", "per_subset": 1, "subsets": ["general"], "seed": 3}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(keys | {"shards": str(run.parent / "shards"), "split": "train"}))
    plan = planned(["evaluate", "--checkpoint", str(run), "--benchmark", str(tmp_path / "mine.yaml")], "first")
    assert plan["described"]["draw"] == {"per_subset": 1, "subsets": ["general"], "seed": 3}
    assert _with_file(planned, run, tmp_path, plan, "BENCHMARK.yaml")["described"] == plan["described"]


def test_settings_of_an_agent_file_are_printed_as_options(planned, run, tmp_path):
    keys = {"agent": "vlm", "run": str(run), "constrained": True, "bf16": True}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(keys))
    words = ["evaluate", "--agent", str(tmp_path / "mine.yaml"), "--shards", str(run.parent / "shards")]
    plan = planned([*words, "--split", "train"], "first")
    command = offline_command(str(run), run.name, plan)
    assert "--agent.constrained" in command.words and command.notes == ()
    assert planned(_again(command, run, "second"), "second")["described"] == plan["described"]


def _with_file(planned, run, tmp_path, plan, file):
    """The plan of the printed command and the file that its note describes."""
    command = offline_command(str(run), run.name, plan)
    (note,) = command.notes
    assert note.startswith(f"{file}: ")
    content = yaml.safe_load(f"{{{note.removeprefix(f'{file}: ')}}}")
    (tmp_path / file).write_text(yaml.safe_dump(content))
    words = [str(tmp_path / file) if word == file else word for word in _again(command, run, "second")]
    return planned(words, "second")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--agent.bf16 true --controls none --long-screens",
        "--controls no_history --seed 2",
        "--split train --scale 2",
        "--task-set browser",
    ],
)
def test_online_it_has_the_same_identity_and_tasks(monkeypatch, run, tmp_path, options):
    identities = []

    def kept(self, identity):
        identities.append(identity)
        raise PlannedError

    monkeypatch.setattr("vlm_agent.files.jobs.Job.write_or_verify_plan", kept)
    words = ["evaluate", "--online", "--checkpoint", str(run), "--tasks", "3", *options.split()]
    with pytest.raises(PlannedError):
        main([*words, "--output", str(tmp_path / "first")])
    controls = [name for name in identities[0]["runs"] if name not in ("trained", *BASELINES)]
    command = online_command(str(run), run.name, identities[0] | {"tasks": 3}, controls)
    assert "--tasks 3" in shlex.join(command.words)
    thrice = online_command(str(run), run.name, identities[0] | {"tasks": 9, "samples": 3}, controls)
    assert "--tasks 3" in shlex.join(thrice.words)
    again = _again(command, run, "second")
    for file, _, content in (note.partition(": ") for note in command.notes):
        (tmp_path / file).write_text(f"{{{content}}}")
        again = [str(tmp_path / file) if word == file else word for word in again]
    with pytest.raises(PlannedError):
        main([*again, "--output", str(tmp_path / "second")])
    assert identities[0] == identities[1]
