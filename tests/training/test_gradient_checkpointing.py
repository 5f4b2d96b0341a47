"""Gradient checkpointing of none, some or all layers: the choice of `auto`, and that it changes no value."""

import io
import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from helpers.models import families, tiny_auto_ui
from rich.console import Console

from vlm_agent.errors import RecipeError
from vlm_agent.models.auto_ui.family import collate
from vlm_agent.models.cost import Workload
from vlm_agent.models.family import family_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.run import TrainingRecipe, read_recipe
from vlm_agent.training import engine
from vlm_agent.training.dry_run.memory import SHARDINGS, USABLE, Demand, Weights
from vlm_agent.training.engine import checkpoint_layers, decoder_layers
from vlm_agent.training.journal import PROGRESS, read_progress
from vlm_agent.training.train import train
from vlm_agent.training.zero import sharding_of

ROOT = Path(__file__).parents[2]
LAYERS = 6
ROW = Workload(tokens=4000, pairs=0, supervised=100, screens={})
WEIGHTS = Weights(frozen=10**6, frozen_cast=10**6, trained=10**5, optimizer=8 * 10**5, hidden=64)
DDP = SHARDINGS[0]


@pytest.fixture(scope="module")
def demand() -> Demand:
    config = tiny.model(64, llama=tiny.LLAMA | {"num_hidden_layers": LAYERS}).config
    return Demand(WEIGHTS, family_of(config).cost(config), ModelRecipe(base="phone_vlm_tiny"), True, ROW)


def test_more_memory_checkpoints_fewer_layers_and_none_where_all_fit(demand):
    totals = [demand.total(DDP, 1, count) for count in range(LAYERS + 1)]
    assert totals[:-1] == sorted(totals[:-1], reverse=True)
    assert totals[-2] <= totals[-1]  # one layer at a time is computed again, so the last need not be checkpointed
    enough = [round(total / USABLE) + 1 for total in totals[:-1]]
    assert [demand.layers(DDP, 1, memory) for memory in enough] == [*range(LAYERS)]
    assert [demand.layers(DDP, 1, memory - 10**5) for memory in enough] == [*range(1, LAYERS + 1)]
    assert demand.layers(DDP, 1, 2 * enough[0]) == 0


@pytest.mark.parametrize("sharding", SHARDINGS, ids=lambda sharding: sharding.name)
def test_the_sharding_of_a_recipe_is_that_of_its_file(sharding):
    file = None if sharding == DDP else f"deepspeed_configs/{sharding.name}.json"
    training = TrainingRecipe(steps=1, deepspeed=file)
    recipe = read_recipe(ROOT / "recipes/llama_vit_tiny.yaml").model_copy(update={"training": training})
    assert sharding_of(recipe) == sharding


@pytest.mark.parametrize("device", [{"device": "none"}, {}, None])
def test_a_part_whose_device_is_none_is_not_in_cpu_memory(tmp_path, device):
    file = tmp_path / "zero.json"
    content = json.loads((ROOT / "deepspeed_configs/zero3_offload.json").read_text())
    content["zero_optimization"] |= {"offload_param": device, "offload_optimizer": device}
    file.write_text(json.dumps(content))
    training = TrainingRecipe(steps=1, deepspeed=str(file))
    recipe = read_recipe(ROOT / "recipes/llama_vit_tiny.yaml").model_copy(update={"training": training})
    assert not sharding_of(recipe).offload


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", families.NAMES)
def test_no_value_and_no_gradient_depends_on_the_number_of_checkpointed_layers(name, bf16):
    family = families.adapted(name)
    row = family.row(*(family.sentences.build(tiny.episode(number, tiny.ACTIONS[:2])) for number in range(2)))
    assert_equal_gradients(family.model.train(), row, bf16)


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bfloat16"])
def test_nor_those_of_auto_ui(bf16):
    """Its layers share a position bias, whose gradient is a sum of theirs in another order."""
    words = tiny.tokenizer()
    batch = collate(tiny_auto_ui.sentences(words))
    row = {name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}
    assert_equal_gradients(tiny_auto_ui.model(len(words)).train(), row, bf16, 2e-2 if bf16 else 1e-6)


def assert_equal_gradients(model, row: dict, bf16: bool, tolerance: float = 0) -> None:
    """Also through dropout, with none, the lowest and all layers checkpointed."""
    layers = decoder_layers(model)
    assert len(layers) >= 2
    expected = None
    for count in (0, 1, len(layers)):
        checkpoint_layers(model, count)
        assert [layer.gradient_checkpointing for layer in layers] == [True] * count + [False] * (len(layers) - count)
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(**row).loss
        found = {"loss": loss.detach(), **families.gradients(model, loss)}
        expected = found if expected is None else expected
        apart = {one: (found[one] - expected[one]).abs().max().item() for one in expected | found}
        assert max(apart.values()) <= tolerance, apart


def trained(shards: Path, folder: Path, **training) -> tuple[list[float], str]:
    """The losses of a run of LoRA, and its printed text."""
    content = tiny.recipe(shards, folder / "run")
    content["training"] |= {"log_steps": 1, "steps": 2} | training
    content["model"] |= {"train": {}, "element_loss": 0.0}
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    console = Console(file=io.StringIO(), width=200)
    run = train(read_recipe(folder / "recipe.yaml"), console)
    return [line["loss"] for line in read_progress(run / PROGRESS)], console.file.getvalue()


def test_auto_takes_the_layers_that_a_gpu_demands_and_none_on_a_cpu(tmp_path, monkeypatch):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(4)])
    on_cpu, printed = trained(shards, tmp_path / "cpu", gradient_checkpointing="auto")
    assert "gradient checkpointing" not in printed
    monkeypatch.setattr(engine, "gpu_memory", lambda device: 10**9)
    on_a_small_gpu, printed = trained(shards, tmp_path / "small", gradient_checkpointing="auto")
    assert re.search(r"gradient checkpointing: 2 of 2 layers \(estimate 1\.0 of 1\.0 GB\), too much", printed)
    assert on_a_small_gpu == on_cpu
    monkeypatch.setattr(engine, "gpu_memory", lambda device: 2 * 10**9)
    _, printed = trained(shards, tmp_path / "large", gradient_checkpointing="auto")
    assert "gradient checkpointing: 0 of 2 layers (estimate 1.0 of 2.0 GB)\n" in printed


def test_auto_refuses_sentences_of_unknown_length_on_a_gpu(tmp_path, monkeypatch):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode()])
    content = tiny.recipe(shards, tmp_path / "run")
    content["data"] |= {"sentences": "elements"}
    content["training"] |= {"gradient_checkpointing": "auto"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(engine, "gpu_memory", lambda device: 10**9)
    with pytest.raises(RecipeError, match="gradient_checkpointing: auto needs an estimate of the memory; set it to"):
        train(read_recipe(tmp_path / "recipe.yaml"), Console(file=io.StringIO()))
