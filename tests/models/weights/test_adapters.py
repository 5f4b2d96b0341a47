"""Which weights train, and that exactly those are saved."""

import json
import re

import pytest
import torch
from helpers import tiny
from helpers.models import tiny_text
from peft import PeftModel
from safetensors.torch import load_file, save_file

from vlm_agent.errors import UserError
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import ADAPTER_WEIGHTS
from vlm_agent.models.weights.adapters import (
    choose_trained_weights,
    count_parameters,
    load_adapter,
    merge_adapter,
    save_trained_weights,
)
from vlm_agent.recipe.model import Lora, TrainedParts

WORDS = tiny.tokenizer()
PARTS = LlamaViT.parts
PROJECTOR_PATH = re.compile(r"^base_model\.model\.projector\.modules_to_save\.default\.")
LANGUAGE_MODEL_LORA = re.compile(
    r"^base_model\.model\.language_model\.model\.layers\.\d+\.\w+\.\w+_proj\.lora_[AB]\.default"
)
ALL_FROZEN = dict.fromkeys(PARTS, "frozen")


def prepared(lora: Lora | None = None, llama: dict | None = None, **parts):
    return choose_trained_weights(
        tiny.model(len(WORDS), llama=llama, visual_positions=True), TrainedParts(**parts), lora or Lora(rank=2, alpha=4)
    )


def trained_names(model) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def a_batch() -> dict:
    row = collate([tiny.sentences(WORDS).build(tiny.episode())])
    return {name: value for name, value in row.items() if name not in NOT_FOR_MODELS}


def some_training(model, steps: int = 2):
    """Every trained weight leaves its start."""
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**a_batch()).loss.backward()
        optimizer.step()
    return model.eval()


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(**a_batch()).logits


def test_the_papers_parts_are_the_default():
    model = prepared()
    names = trained_names(model)
    projector = {name for name in names if PROJECTOR_PATH.match(name)}
    assert {PROJECTOR_PATH.sub("", name) for name in projector} == {"linear.weight", "linear.bias", "positions"}
    adapters = names - projector
    assert all(LANGUAGE_MODEL_LORA.match(name) for name in adapters)
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in adapters} == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }
    assert len(adapters) == 2 * 7 * tiny.LLAMA["num_hidden_layers"]


def test_the_recipe_gives_rank_alpha_and_dropout():
    config = prepared(Lora(rank=3, alpha=9, dropout=0.25)).peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (3, 9, 0.25)


KINDS = pytest.mark.parametrize(
    "lora",
    [Lora(rank=2, dropout=0.0, dora=dora, rslora=rslora) for dora in (False, True) for rslora in (False, True)],
    ids=["lora", "rslora", "dora", "dora-rslora"],
)


def test_rslora_is_scaled_by_the_root_of_the_rank():
    def scaling(lora: Lora) -> float:
        model = prepared(lora)
        return model.get_submodule(f"base_model.model.{PARTS['language_model']}.0.mlp.up_proj").scaling["default"]

    assert scaling(Lora(rank=16, alpha=32)) == 2
    assert scaling(Lora(rank=16, alpha=32, rslora=True)) == 8


def test_dora_trains_one_magnitude_for_each_adapted_row_beside_the_adapter():
    plain, dora = prepared(Lora(rank=2)), prepared(Lora(rank=2, dora=True))
    added = trained_names(dora) - trained_names(plain)
    assert trained_names(dora) - added == trained_names(plain)
    assert len(added) == 7 * tiny.LLAMA["num_hidden_layers"]
    for name in added:
        row_count = dora.get_submodule(name.partition(".lora_magnitude_vector")[0]).out_features
        assert dora.get_parameter(name).shape == (row_count,)


@KINDS
def test_a_fresh_adapter_changes_no_logit(lora):
    base = tiny.model(len(WORDS), visual_positions=True)
    assert torch.equal(logits(prepared(lora).eval()), logits(base))


@KINDS
def test_only_trained_parts_get_gradients(lora):
    model = prepared(lora)
    model.train()(**a_batch()).loss.backward()
    assert {name for name, weight in model.named_parameters() if weight.grad is not None} == trained_names(model)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_trained_in_full_alone(part):
    model = prepared(**ALL_FROZEN | {part: "full"})
    assert isinstance(model, LlamaViT)
    assert trained_names(model)
    assert all(f"{name}.".startswith(f"{PARTS[part]}.") for name in trained_names(model))
    counts = count_parameters(model)
    assert [name for name in PARTS if counts[name]["trained"]] == [part]
    assert counts[part]["frozen"] == 0


@pytest.mark.parametrize("part", [part for part in PARTS if part != "norm"])
def test_each_part_can_be_adapted_alone(part):
    model = prepared(**ALL_FROZEN | {part: "lora"})
    assert isinstance(model, PeftModel)
    assert all(name.startswith(f"base_model.model.{PARTS[part]}.") and "lora_" in name for name in trained_names(model))
    assert [name for name, count in count_parameters(model).items() if count["trained"]] == [part]
    some_training(model)


@pytest.mark.parametrize("part", ["head", "embeddings"])
def test_an_adapter_of_the_vocabulary_can_be_loaded(part, tmp_path):
    model = some_training(prepared(**ALL_FROZEN | {"projector": "full", part: "lora"}))
    save_trained_weights(model, tmp_path)
    assert torch.equal(logits(load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path)), logits(model))


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_trained_in_full_beside_an_adapter(part, tmp_path):
    adapted = "language_model" if part == "vision" else "vision"
    model = some_training(prepared(**ALL_FROZEN | {"projector": "full", adapted: "lora", part: "full"}))
    counts = count_parameters(model)
    assert {name for name, count in counts.items() if count["trained"]} == {"projector", adapted, part}
    save_trained_weights(model, tmp_path)
    assert torch.equal(logits(load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path)), logits(model))


def test_a_frozen_part_does_not_move():
    before = {name: value.clone() for name, value in prepared().state_dict().items()}
    model = some_training(prepared())
    trained = trained_names(model)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == trained


@pytest.mark.parametrize("part", ["vision", "projector"])
def test_an_adapter_of_a_part_that_the_model_does_not_have_is_an_error(part):
    """It would train without an adapter, and what reads the recipe would look for one."""
    everything = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "full")
    with pytest.raises(UserError, match=rf"train\.{part} is lora, and this model has no {part} to adapt; remove it"):
        choose_trained_weights(
            tiny_text.model(tiny_text.tokenizer()), TrainedParts(**everything | {part: "lora"}), Lora(rank=2)
        )


def test_a_part_with_nothing_to_adapt_is_an_error():
    with pytest.raises(UserError, match=r"language_model\.model\.norm has no linear layer"):
        prepared(norm="lora")


@pytest.mark.parametrize(
    "parts", [{"head": "full"}, {"embeddings": "full"}, {"embeddings": "full", "head": "full"}, {"head": "lora"},
     {"vision": "lora", "embeddings": "full", "head": "full", "language_model": "full"}]
)  # fmt: skip
def test_tied_embeddings_and_head_cannot_be_trained_separately(parts):
    tied = tiny.LLAMA | {"tie_word_embeddings": True}
    with pytest.raises(UserError, match="one matrix"):
        prepared(llama=tied, **parts)
    everything = prepared(llama=tied, embeddings="full", head="full", language_model="full")
    assert everything.get_input_embeddings().weight is everything.get_output_embeddings().weight
    assert everything.get_input_embeddings().weight.requires_grad


@KINDS
def test_a_loaded_adapter_has_identical_logits(lora, tmp_path):
    model = some_training(prepared(lora))
    untrained = logits(tiny.model(len(WORDS), visual_positions=True))
    save_trained_weights(model, tmp_path)
    assert not list(tmp_path.rglob("*.bin"))
    loaded = load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path).eval()
    assert torch.equal(logits(loaded), logits(model))
    assert not torch.allclose(logits(loaded), untrained)
    assert not trained_names(loaded)


@KINDS
def test_an_adapter_can_be_merged_into_its_base(lora, tmp_path):
    model = some_training(prepared(lora))
    save_trained_weights(model, tmp_path)
    merged = merge_adapter(load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path))
    assert isinstance(merged, LlamaViT)
    assert torch.allclose(logits(merged), logits(model), atol=1e-4)


def test_an_adapter_without_its_projector_is_refused(tmp_path):
    save_trained_weights(prepared(), tmp_path)
    weights = load_file(tmp_path / ADAPTER_WEIGHTS)
    save_file({name: w for name, w in weights.items() if ".projector." not in name}, tmp_path / ADAPTER_WEIGHTS)
    with pytest.raises(UserError, match="lacks projector"):
        load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path)


def test_an_adapter_whose_configuration_forgets_the_projector_too_is_refused(tmp_path):
    save_trained_weights(prepared(), tmp_path)
    weights = load_file(tmp_path / ADAPTER_WEIGHTS)
    save_file({name: w for name, w in weights.items() if ".projector." not in name}, tmp_path / ADAPTER_WEIGHTS)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"modules_to_save": None}))
    with pytest.raises(UserError, match="no projector"):
        load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path)
    load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path, projector_in_base=True)


def test_half_of_a_projector_is_refused_too(tmp_path):
    save_trained_weights(prepared(), tmp_path)
    weights = load_file(tmp_path / ADAPTER_WEIGHTS)
    save_file(
        {n: w for n, w in weights.items() if not n.endswith("projector.linear.weight")}, tmp_path / ADAPTER_WEIGHTS
    )
    with pytest.raises(UserError, match=r"projector\.linear\.weight"):
        load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path)


@pytest.mark.parametrize("change", [{"modules_to_save": ["zzz"]}, {"lora_alpha": None}, {"alpha_pattern": 3}])
def test_a_configuration_with_a_value_that_no_adapter_can_have_is_one_line(change, tmp_path):
    save_trained_weights(prepared(), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError, match=r"does not fit its base, or adapter_config\.json is damaged: .+$"):
        load_adapter(tiny.model(len(WORDS), visual_positions=True), tmp_path)


def test_trained_weights_are_float32_on_a_half_precision_base():
    base = tiny.model(len(WORDS)).to(torch.bfloat16)
    model = choose_trained_weights(base, TrainedParts(), Lora(rank=2))
    kinds = {parameter.requires_grad: parameter.dtype for parameter in model.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    with torch.autocast("cpu", torch.bfloat16):
        model(**a_batch()).loss.backward()


def test_every_parameter_is_counted_once():
    for model in (prepared(), prepared(**ALL_FROZEN | {"vision": "full"})):
        counted = sum(sum(count.values()) for count in count_parameters(model).values())
        # peft keeps a spare copy of a part that trains in full; it is no part of the model.
        own = [parameter for name, parameter in model.named_parameters() if ".original_module." not in name]
        assert counted == sum(parameter.numel() for parameter in own)
    trained = {part: count["trained"] for part, count in count_parameters(prepared()).items()}
    width, grid = tiny.LLAMA["hidden_size"], tiny.GRID[0] * tiny.GRID[1]
    assert trained["projector"] == (16 + 1 + grid) * width
    per_layer = 4 * (width + width) * 2 + 3 * (width + tiny.LLAMA["intermediate_size"]) * 2
    assert trained["language_model"] == per_layer * tiny.LLAMA["num_hidden_layers"]
    assert [part for part, count in trained.items() if count] == ["projector", "language_model"]
