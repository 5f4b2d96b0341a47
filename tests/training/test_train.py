"""A run: its output, the recipes that it refuses, and that a killed run resumes to the same weights."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from helpers import tiny
from helpers.models import tiny_qwen
from helpers.training import forks, two_ranks
from rich.console import Console
from safetensors.torch import load_file

from vlm_agent.agents.controls import CONTROLS
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.errors import RecipeError, TrainingError, UserError
from vlm_agent.files import read_checked, write_checked, write_json
from vlm_agent.models.build import load
from vlm_agent.models.run_layout import BASE_FOLDER, LOCK, trained
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training import engine, zero
from vlm_agent.training.engine import load as load_rows
from vlm_agent.training.journal import PROGRESS, read_progress
from vlm_agent.training.loop import ranks
from vlm_agent.training.run_folder.status import read_status
from vlm_agent.training.train import train

EPISODES = [tiny.episode(number) for number in range(4)]
LORA = {
    "model.train": "{vision: lora, language_model: lora, embeddings: full}",
    "model.lora": "{rank: 2, dropout: 0.1}",
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), EPISODES)


def run(shards: Path, output: Path, name: str = "run", **overrides) -> tuple[Path, str]:
    """Trains, and returns the run folder and the printed text."""
    output.mkdir(exist_ok=True)
    path = output / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe(shards, output / name)))
    printed = Console(file=io.StringIO(), width=200)
    folder = train(read_recipe(path, {key.replace("__", "."): value for key, value in overrides.items()}), printed)
    return folder, printed.file.getvalue()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = (folder / "model").glob("*.safetensors")
    return load_file(file)


def assert_same_weights(one: Path, other: Path) -> None:
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


@pytest.fixture(scope="module")
def finished(shards, tmp_path_factory):
    return run(shards, tmp_path_factory.mktemp("finished"))


def test_a_run_writes_its_recipe_weights_curves_and_record(finished):
    folder, _ = finished
    record = json.loads((folder / "run.json").read_text())
    assert record["figures"]["steps"] == 3
    assert record["figures"]["seconds"] > 0
    assert record["figures"]["last_losses"]["loss"] > 0
    assert record["versions"]["torch"] == torch.__version__
    assert {"python", "transformers", "peft", "accelerate"} <= record["versions"].keys()
    assert record["manifest"]["files"][0]["episodes_written"] == len(EPISODES)
    assert record["commit"] is None or len(record["commit"].removesuffix("-dirty")) == 40
    assert read_recipe(folder / "recipe.yaml").training.steps == 3
    assert list((folder / "tensorboard").rglob("events.out.tfevents.*"))
    assert (folder / "tokenizer" / "tokenizer.json").is_file()
    assert not list(folder.rglob("*.bin"))
    model, tokenizer = load(folder)
    assert len(tokenizer) == model.config.text_config.vocab_size


def test_a_run_prints_trained_parameters_and_speed(finished):
    _, printed = finished
    assert "4 episodes, 4 sentences; 3 steps of 1 rows" in printed
    assert "vision " in printed
    lines = [line for line in printed.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert all("tokens/s" in line and "actions/s" in line and "elements " in line for line in lines)
    assert all("loader wait " in line for line in lines)
    assert lines[-1].endswith("ETA 0:00:00")


def test_the_record_counts_the_parameters_of_all_parts(finished):
    """For one part alone the count would be far off: the tiny vision tower and language model are of similar size."""
    folder, printed = finished
    parts = [line.split() for line in printed.splitlines() if line.endswith(" frozen") and " trained " in line]
    trained, frozen = (sum(int(line[index].replace(",", "")) for line in parts) for index in (1, 3))
    assert len(parts) > 2
    assert json.loads((folder / "run.json").read_text())["figures"]["parameters"] == {
        "trained": trained,
        "frozen": frozen,
    }


def test_a_run_records_its_progress_for_status(finished):
    lines = read_progress(finished[0] / PROGRESS)
    assert [(line["step"], line["steps"]) for line in lines] == [(1, 3), (2, 3), (3, 3)]
    figures = ("seconds", "eta_seconds", "loss", "action_loss", "tokens_per_second", "actions_per_second", "memory_gib")
    assert all(line[name] >= 0 for line in lines for name in figures)
    assert 0 <= lines[-1]["data_wait"] <= 1
    status = read_status(finished[0])
    assert (status.state, status.step, status.loss) == ("finished", 3, lines[-1]["loss"])


def test_the_curves_contain_losses_and_speeds(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = (finished[0] / "tensorboard").rglob("events.out.tfevents.*")
    curves = EventAccumulator(str(events)).Reload().Tags()["scalars"]
    wanted = ("loss", "action_loss", "element_loss", "tokens_per_second", "actions_per_second", "learning_rate")
    assert {f"train/{name}" for name in wanted} <= set(curves)


def test_training_lowers_the_loss(shards, tmp_path):
    _, printed = run(shards, tmp_path, training__steps="12", training__schedule="constant")
    losses = [float(line.split("loss ")[1].split()[0]) for line in printed.splitlines() if line.startswith("step ")]
    assert losses[-1] < losses[0] * 0.9


def test_a_finished_run_is_not_changed(shards, finished):
    folder = finished[0]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    assert "is finished; nothing to do" in run(shards, folder.parent)[1]
    with pytest.raises(RecipeError, match=r"differs in .*seed"):
        run(shards, folder.parent, seed="5")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_every_file_of_a_run_has_the_permissions_of_the_umask(finished):
    umask = os.umask(0o077)
    os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in finished[0].rglob("*") if path.is_file()}
    assert {"model.safetensors", "recipe.yaml"} <= modes.keys()
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o666 & ~umask} == {}


def test_a_failed_start_does_not_block_the_corrected_one(shards, tmp_path):
    with pytest.raises(UserError, match="manifest"):
        run(tmp_path / "no shards here", tmp_path)
    assert run(shards, tmp_path)


def test_an_impossible_validation_does_not_block_a_corrected_one(shards, tmp_path):
    with pytest.raises(RecipeError, match="no episode in split validation"):
        run(shards, tmp_path, training__validation="{}")
    assert run(shards, tmp_path)


def test_keys_that_do_not_affect_the_weights_may_change_on_resume(shards, finished, tmp_path):
    folder, _ = run(shards, tmp_path, training__save_steps="2")
    (folder / "run.json").unlink()
    shutil.rmtree(folder / "checkpoints/checkpoint-3")
    run(shards, tmp_path, data__workers="1")
    assert_same_weights(finished[0], folder)


def test_a_resumed_run_saves_and_logs_at_the_steps_of_its_new_recipe(shards, tmp_path):
    steps = {"training__steps": "6", "training__keep_checkpoints": "6"}
    folder, _ = run(shards, tmp_path, training__save_steps="4", **steps)
    (folder / "run.json").unlink()
    shutil.rmtree(folder / "checkpoints/checkpoint-6")
    _, printed = run(shards, tmp_path, training__save_steps="1", training__log_steps="3", **steps)
    found = {path.name for path in (folder / "checkpoints").glob("checkpoint-*")}
    assert found == {"checkpoint-4", "checkpoint-5", "checkpoint-6"}
    assert "step 6/6" in printed and "step 5/6" not in printed


def test_the_differing_recipe_keys_are_named(shards, tmp_path):
    folder, _ = run(shards, tmp_path, training__steps="1")
    (folder / "run.json").unlink()
    with pytest.raises(RecipeError, match=r"differs in seed, training\.steps; restore these"):
        run(shards, tmp_path, training__steps="2", seed="1")


def test_dropout_masks_differ_between_ranks(shards, tmp_path, monkeypatch):
    first, _ = run(shards, tmp_path, "first", **LORA)
    second = SimpleNamespace(**vars(ranks) | {"number": lambda: 1})
    monkeypatch.setattr("vlm_agent.training.train.ranks", second)

    def rows_of_first(stream, _, steps, recipe, engine):
        return load_rows(stream, range(steps), 0, engine.place.device)

    monkeypatch.setattr("vlm_agent.training.train.rows_of", rows_of_first)
    other, _ = run(shards, tmp_path, "other", **LORA)
    with pytest.raises(AssertionError):
        assert_same_weights(first, other)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (None, {}, "cannot be read: No such file"),
        ("{", {}, "is not a DeepSpeed configuration"),
        ('{"zero_optimization": {"stage": 2}}', {}, "needs a launcher"),
        ('{"zero_optimization": {"stage": 2}, "optimizer": {}}', {}, "a section optimizer; remove it"),
        ('{"zero_optimization": {"stage": 2}, "scheduler": {}}', {}, "a section scheduler; .* training.schedule"),
        ('{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}}', {}, "enables fp16"),
        ('{"zero_optimization": {"stage": 2, "reduce_bucket_size": "5e8"}}', {}, "bucket_size must be a number"),
        ('{"zero_optimization": {"stage": 3, "offload_param": "cpu"}}', {}, "offload_param must be an object"),
        (
            '{"zero_optimization": {"stage": 3}}',
            {"model.train": "{}", "model.quantisation": "nf4"},
            "would partition quantised weights",
        ),
    ],
    ids=[*("missing", "no json", "not launched", "optimizer", "scheduler", "fp16", "bucket", "offload", "quantised")],
)
def test_an_impossible_deepspeed_run_is_refused_before_any_weight_is_read(shards, tmp_path, config, options, message):
    path = tmp_path / "cut.json"
    if config is not None:
        path.write_text(config)
    with pytest.raises(RecipeError, match=message):
        run(shards, tmp_path, training__deepspeed=str(path), training__optimizer="{name: adamw}", **options)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]


def test_another_recipe_is_not_mixed_into_a_run(shards, tmp_path):
    folder, _ = run(shards, tmp_path, training__steps="1")
    (folder / "run.json").unlink()
    before = (folder / "recipe.yaml").read_text()
    with pytest.raises(RecipeError, match="started with another recipe"):
        run(shards, tmp_path, training__steps="2")
    assert (folder / "recipe.yaml").read_text() == before
    assert not list(folder.glob("*.new"))
    run(shards, tmp_path, training__steps="1")


def test_a_resume_on_other_data_is_refused_and_changes_no_file(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", EPISODES)
    folder, _ = run(shards, tmp_path, training__save_steps="2", **LORA)
    (folder / "run.json").unlink()
    shutil.rmtree(shards)
    tiny.write_shards(shards, EPISODES[1:])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(TrainingError, match="data"):
        run(shards, tmp_path, training__save_steps="2", **LORA)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_nan_loss_stops_the_run(shards, tmp_path):
    with pytest.raises(TrainingError, match="not finite"):
        run(shards, tmp_path, training__optimizer="{learning_rate: 1e30}", training__steps="50")
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_same_recipe_trains_the_same_weights(shards, finished, tmp_path):
    assert_same_weights(finished[0], run(shards, tmp_path)[0])


def test_worker_processes_train_the_same_weights(shards, finished, tmp_path):
    assert_same_weights(finished[0], run(shards, tmp_path, data__workers="1")[0])


def test_accumulated_batches_train_the_weights_of_one_large_batch(shards, tmp_path):
    """Without the element loss, whose labels weigh every batch alike, and to rounding."""
    options = {"model__element_loss": "0", "training__optimizer": "{name: adamw}", "training__steps": "2"}
    one, _ = run(shards, tmp_path, "one", **options, training__batch_size="4")
    two, _ = run(shards, tmp_path, "two", **options, training__batch_size="2", training__accumulation="2")
    a, b = weights(one), weights(two)
    assert max((a[name] - b[name]).abs().max().item() for name in a) < 1e-4


@pytest.mark.parametrize("parts", [{}, {"model.train": "{}", "model.lora": "{dropout: 0}"}], ids=["full", "lora"])
def test_checkpointed_activations_train_the_same(shards, tmp_path, parts):
    plain, _ = run(shards, tmp_path, "plain", **parts)
    saving, _ = run(shards, tmp_path, "saving", **parts, training__gradient_checkpointing="true")
    a, b = weights(plain), weights(saving)
    assert max((a[name] - b[name]).abs().max().item() for name in a) < 1e-4


def test_training_on_the_element_loss_alone_works(shards, tmp_path):
    folder, printed = run(shards, tmp_path, data__sentences="elements", training__steps="2")
    assert "step 2/2" in printed
    assert (folder / "run.json").is_file()


@pytest.mark.parametrize("control", ["grey_screens", "no_history"])
def test_an_agent_trained_under_a_control_acts_under_it(shards, tmp_path, control):
    folder, _ = run(shards, tmp_path, data__control=control, training__steps="2")
    agent = VlmSettings(run=str(folder)).load()
    assert agent.control == CONTROLS[control]
    assert isinstance(agent.agent, VlmAgent)


@pytest.mark.parametrize("overrides", [{}, LORA], ids=["whole", "adapter"])
def test_a_checkpoint_equals_the_model_of_a_run_that_ends_there(shards, tmp_path, overrides):
    folder, _ = run(shards, tmp_path, **overrides, training__save_steps="3")
    checkpoint = folder / "checkpoints" / "checkpoint-3"
    finished, on_the_way = VlmAgent.from_run(folder), VlmAgent.from_run(checkpoint)
    assert on_the_way.answer_episodes([EPISODES[0]])[0] == finished.answer_episodes([EPISODES[0]])[0]
    before = VlmSettings(run=str(checkpoint)).identity()
    shutil.rmtree(folder / "model")
    (folder / "run.json").unlink()
    assert VlmSettings(run=str(checkpoint)).identity() == before
    with pytest.raises(FileNotFoundError, match="neither a finished run"):
        VlmSettings(run=str(folder)).identity()


def test_a_finished_run_is_a_base_for_another(shards, finished, tmp_path):
    base = finished[0]
    content = tiny.recipe(shards, tmp_path / "next")
    content["model"] = {
        "base": str(base),
        "train": {"projector": "frozen", "language_model": "lora"},
        "lora": {"rank": 2},
    }
    path = tmp_path / "next.yaml"
    path.write_text(yaml.safe_dump(content))
    folder = train(read_recipe(path), Console(file=io.StringIO()))
    assert not (folder / BASE_FOLDER).exists()
    model, _ = load(folder)
    projector = model.get_submodule("base_model.model.projector").state_dict()
    assert all(torch.equal(value, weights(base)[f"projector.{name}"]) for name, value in projector.items())
    assert not any("projector" in name for name in weights(folder))


def test_a_base_without_a_run_is_refused_by_name(shards, tmp_path):
    content = tiny.recipe(shards, tmp_path / "next") | {"model": {"base": str(tmp_path / "nowhere")}}
    path = tmp_path / "next.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(FileNotFoundError, match=r"neither a finished run nor.*nowhere"):
        train(read_recipe(path), Console(file=io.StringIO()))


def test_an_adapter_on_random_weights_is_saved_with_its_base(shards, tmp_path):
    folder, _ = run(shards, tmp_path, **LORA)
    assert (folder / BASE_FOLDER / "model.safetensors").is_file()
    model, _ = load(folder)
    trained = weights(folder)
    state = model.state_dict()
    assert all(torch.equal(value, state[_in_model(name)]) for name, value in trained.items())
    agent = VlmAgent.from_run(folder)
    assert len(agent.answer_episodes([EPISODES[0]])[0]) == len(EPISODES[0])


def _in_model(saved: str) -> str:
    """Where a tensor of an adapter file lies in the PeftModel."""
    if ".lora_" in saved:
        head, _, kind = saved.rpartition(".lora_")
        letter, _, rest = kind.partition(".")
        return f"{head}.lora_{letter}.default.{rest}" if rest else f"{head}.lora_{letter}.default"
    head, _, last = saved.partition(".projector.")
    if last:
        return f"{head}.projector.modules_to_save.default.{last}"
    return saved.replace("embed_tokens.", "embed_tokens.modules_to_save.default.")


_TRAIN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.train import train
from rich.console import Console
train(read_recipe(Path(sys.argv[1])), Console())
"""


def test_two_processes_train_the_weights_of_one_with_two_batches(shards, tmp_path):
    options = {"model__element_loss": "0", "training__batch_size": "1"}
    alone, _ = run(shards, tmp_path, "alone", **options, training__accumulation="2")
    content = tiny.recipe(shards, tmp_path / "together")
    content["model"]["element_loss"] = 0
    content["training"]["batch_size"] = 1
    (tmp_path / "together.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "train.py").write_text(_TRAIN)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launch, str(tmp_path / "train.py"), str(tmp_path / "together.yaml"), str(Path(__file__).parents[2])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (tmp_path / "together" / "run.json").is_file(), done.stderr
    a, b = weights(alone), weights(tmp_path / "together")
    assert max((a[name] - b[name]).abs().max().item() for name in a) < 1e-5


@pytest.mark.parametrize(("vision", "searched"), [("frozen", False), ("lora", True), ("full", True)])
def test_unused_weights_are_searched_for_only_if_there_can_be_some(shards, tmp_path, monkeypatch, vision, searched):
    """DDP walks the graph of every batch for it. A tower that trains may have some, such as a norm of pooled output."""
    asked = []
    monkeypatch.setattr(engine.ranks, "count", lambda: 2)
    monkeypatch.setattr(
        engine, "DistributedDataParallel", lambda *_, find_unused_parameters: asked.append(find_unused_parameters)
    )
    content = tiny.recipe(shards, tmp_path / "run")
    content["model"]["train"]["vision"] = vision
    recipe = Recipe(**content)
    engine.engine_of(torch.nn.Linear(1, 1), recipe, engine.Place(torch.device("cpu"), bf16=False))
    assert asked == [searched]


def test_no_rank_exits_while_rank_0_saves_the_finished_run_and_no_thread_outlives_its_group(shards, tmp_path):
    """A launcher would end rank 0 some time after the others are gone. A DDP model that is alive when its rank leaves
    keeps the process group: its threads and the end of the interpreter can then wait for each other forever."""
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe(shards, tmp_path / "run")))
    printed = two_ranks.run(
        tmp_path,
        """
import time
from rich.console import Console
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training import train as module

genuine = module.save
def slow(*arguments):
    time.sleep(2)
    genuine(*arguments)
module.save = slow

leave = ranks.leave
def leave_and_look():
    assert gloo_threads()
    leave()
    assert not gloo_threads()
ranks.leave = leave_and_look

module.train(read_recipe(folder / "recipe.yaml"), Console())
ranks.leave = leave
assert (folder / "run" / "run.json").is_file()
print("all is saved")
""",
    )
    assert all("all is saved" in words for words in printed)


def test_deepspeed_counts_one_row_a_device_and_step(shards, tmp_path):
    content = tiny.recipe(shards, tmp_path / "run")
    content["training"]["accumulation"] = 3
    given = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "zero_optimization": {"stage": 2}}
    write_json(tmp_path / "zero.json", given)
    content["training"] |= {"deepspeed": str(tmp_path / "zero.json"), "optimizer": {"name": "adamw"}}
    used = zero.configuration(Recipe(**content), bf16=False).config
    sizes = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    assert [used[name] for name in sizes] == [1, 3, 3]
    assert (used["gradient_clipping"], used["bf16"]) == (1.0, {"enabled": False})


@pytest.mark.parametrize("other", [{"gradient_clipping": 0.5}, {"bf16": {"enabled": True}}, {"train_batch_size": 8}])
def test_a_deepspeed_file_with_another_value_than_the_recipe_is_refused(shards, tmp_path, other):
    (name,) = other
    write_json(tmp_path / "zero.json", other | {"zero_optimization": {"stage": 2}})
    content = tiny.recipe(shards, tmp_path / "run")
    content["training"] |= {"deepspeed": str(tmp_path / "zero.json"), "optimizer": {"name": "adamw"}}
    with pytest.raises(RecipeError, match=rf'zero.json sets {name} to .*; write "auto"'):
        zero.configuration(Recipe(**content), bf16=False)


def test_ranks_wait_an_hour_for_each_other_with_and_without_deepspeed(shards, tmp_path, monkeypatch):
    import deepspeed

    content = tiny.recipe(shards, tmp_path / "run")
    content["training"]["optimizer"]["name"] = "adamw"
    waits = []
    monkeypatch.setattr(deepspeed, "init_distributed", lambda backend, timeout: waits.append(timeout))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **how: waits.append(how["timeout"]))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    engine.take_place(Recipe(**content))
    content["training"]["deepspeed"] = "deepspeed_configs/cpu_zero2.json"
    engine.take_place(Recipe(**content))
    assert [wait.total_seconds() for wait in waits] == [3600, 3600]


_KILLED = """
import sys, os, signal
from pathlib import Path
from vlm_agent.training import train as module
from rich.console import Console
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.loop.preemption import Preemption

stops = Preemption.stops

def kill(self, step, steps, number):
    if step == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return stops(self, step, steps, number)

Preemption.stops = kill
module.train(read_recipe(Path(sys.argv[1])), Console())
"""


@pytest.mark.parametrize("overrides", [{}, LORA], ids=["muon", "lora"])
def test_a_killed_run_resumes_to_the_weights_of_an_uninterrupted_one(shards, tmp_path, overrides):
    options = overrides | {"training__steps": "6", "training__save_steps": "2"}
    undisturbed, _ = run(shards, tmp_path, "undisturbed", **options)
    content = tiny.recipe(shards, tmp_path / "killed")
    path = tmp_path / "killed.yaml"
    path.write_text(yaml.safe_dump(content))
    recipe = read_recipe(path, {key.replace("__", "."): value for key, value in options.items()})
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(recipe.to_yaml())
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    printed = tmp_path / "printed"
    assert forks.start(script, resolved, 5, output=printed).wait() == -signal.SIGKILL, printed.read_text()
    assert not (tmp_path / "killed" / "run.json").exists()
    # What a kill in the middle of writing leaves: a newer checkpoint without its last file.
    half = tmp_path / "killed" / "checkpoints" / "checkpoint-5"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    console = Console(file=io.StringIO(), width=200)
    before = read_progress(tmp_path / "killed" / PROGRESS)[-1]["total_seconds"]
    train(recipe, console)
    steps = [line.split()[1] for line in console.file.getvalue().splitlines() if line.startswith("step ")]
    assert steps == ["5/6", "6/6"]
    recorded = read_progress(tmp_path / "killed" / PROGRESS)
    assert [line["step"] for line in recorded] == [1, 2, 3, 4, 5, 6]
    figures = json.loads((tmp_path / "killed" / "run.json").read_text())["figures"]
    assert figures["seconds"] >= before + recorded[-1]["seconds"] > before > 0
    assert_same_weights(undisturbed, tmp_path / "killed")


def test_a_run_resumes_where_the_folder_of_its_base_has_moved_and_not_on_another_base(shards, finished, tmp_path):
    def adapted(base: Path) -> Path:
        content = tiny.recipe(shards, tmp_path / "adapter")
        content["model"] = {"base": str(base), "lora": {"rank": 2, "dropout": 0.0}}
        content["training"] |= {"save_steps": 2}
        return train(Recipe(**content), Console(file=io.StringIO()))

    first, second = (Path(shutil.copytree(finished[0], tmp_path / name)) for name in ("first", "second"))
    folder = adapted(first)
    shutil.rmtree(first)
    (folder / "run.json").unlink()
    shutil.rmtree(folder / "checkpoints/checkpoint-3")
    assert adapted(second) == folder
    assert read_recipe(folder / "recipe.yaml").model.base == str(second)
    (weights_file,) = (second / "model").glob("*.safetensors")
    content = weights_file.read_bytes()
    weights_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (folder / "run.json").unlink()
    with pytest.raises(UserError, match=r"safetensors differs from the SHA-256"):
        adapted(second)
    record = read_checked(second / "run.json", "")  # of another run, whose files are as it wrote them
    write_checked(second / "run.json", record | {"files": trained(second).digests})
    with pytest.raises(UserError, match=r"model\.base .* has changed since"):
        adapted(second)


def test_a_qwen_vl_trained_in_full_resumes_to_the_weights_of_an_uninterrupted_run(shards, tmp_path):
    """transformers saves its weights under other names than those of its state."""
    model = tiny_qwen.recipe("qwen2_5_vl")
    words = tiny_qwen.tokenizer(model)
    tiny_qwen.model(model, words).save_pretrained(tmp_path / "checkpoint")
    words.save_pretrained(tmp_path / "checkpoint")

    def trained_to(name: str) -> Path:
        content = tiny.recipe(shards, tmp_path / name)
        content["model"] = {
            "vlm": {"checkpoint": str(tmp_path / "checkpoint")},
            "min_pixels": 4 * 64,
            "max_pixels": 24 * 64,
            "train": dict.fromkeys(("projector", "embeddings", "language_model", "norm", "head"), "full"),
        }
        content["training"] |= {"save_steps": 2, "optimizer": {"learning_rate": 1e-2}}
        return train(Recipe(**content), Console(file=io.StringIO()))

    whole, resumed = trained_to("whole"), trained_to("resumed")
    shutil.rmtree(resumed / "checkpoints" / "checkpoint-3")
    (resumed / "run.json").unlink()
    shutil.rmtree(resumed / "model")
    assert_same_weights(whole, trained_to("resumed"))
