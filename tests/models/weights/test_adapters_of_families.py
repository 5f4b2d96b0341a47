"""What holds of adapters, quantised or not, in every family of models."""

import pytest
import torch
import transformers
from helpers import tiny
from helpers.models import families
from peft import PeftModel
from torch import nn

from vlm_agent.errors import UserError
from vlm_agent.models.weights.adapters import (
    choose_trained_weights,
    count_parameters,
    load_adapter,
    merge_adapter,
    save_trained_weights,
)
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.recipe.model import Lora, TrainedParts

FAMILIES = pytest.mark.parametrize("name", families.NAMES)
QWENS = [name for name in families.NAMES if name != "llama_vit"]
KINDS = pytest.mark.parametrize("kind", [None, "nf4", "int8"])


def adapted(name: str, kind: str | None, dora: bool = False) -> families.Family:
    """LoRA on the language model that already does something."""
    given = families.family(name)
    torch.manual_seed(1)
    projector = "full" if name == "llama_vit" else "frozen"
    model = choose_trained_weights(
        quantise(given.model, kind), TrainedParts(projector=projector), Lora(rank=2, dropout=0.0, dora=dora)
    )
    for weight_name, weight in model.named_parameters():
        if "lora_B" in weight_name:
            nn.init.normal_(weight, std=0.1)
    return families.Family(model.eval(), given.words, given.processor)


def logits(family: families.Family, model=None) -> torch.Tensor:
    row = family.row(family.sentences.build(tiny.episode()))
    with torch.inference_mode():
        return (family.model if model is None else model)(**row).logits


@FAMILIES
def test_by_default_lora_is_in_the_language_model_only(name):
    model = families.adapted(name).model
    layers = f"base_model.model.{model.parts['language_model']}."
    adapters = [weight for weight, _ in model.named_parameters() if "lora_" in weight]
    assert adapters
    assert all(weight.startswith(layers) for weight in adapters)


@FAMILIES
@pytest.mark.parametrize("part", ["vision", "projector"])
@pytest.mark.parametrize("beside", ["frozen", "lora"])
def test_a_part_in_full_trains_itself_and_no_other(name, part, beside):
    """Also where one part lies within another, as Qwen-VL's projector within its vision tower."""
    adapter = "language_model" if part == "vision" else "vision"
    told = dict.fromkeys(TrainedParts.model_fields, "frozen") | {adapter: beside, part: "full"}
    family = families.family(name)
    plain = count_parameters(family.model)
    model = choose_trained_weights(family.model, TrainedParts(**told), Lora(rank=2))
    counts = count_parameters(model)
    assert {trained for trained, count in counts.items() if count["trained"]} == {
        trained for trained, how in told.items() if how != "frozen"
    }
    assert counts[part]["trained"] == sum(plain[part].values())


@FAMILIES
@KINDS
def test_a_saved_adapter_is_loaded_bit_for_bit(name, kind, tmp_path):
    family = adapted(name, kind)
    save_trained_weights(family.model, tmp_path)
    base = quantise(families.family(name).model, kind)
    loaded = load_adapter(base, tmp_path, projector_in_base=name != "llama_vit").eval()
    assert torch.equal(logits(family, loaded), logits(family))


@pytest.mark.parametrize("name", QWENS)
def test_a_projector_that_was_trained_is_asked_for(name, tmp_path):
    family = families.family(name)
    model = choose_trained_weights(family.model, TrainedParts(projector="full"), Lora(rank=2))
    save_trained_weights(model, tmp_path)
    assert isinstance(load_adapter(families.family(name).model, tmp_path), PeftModel)
    save_trained_weights(families.adapted(name).model, tmp_path)
    with pytest.raises(UserError, match="has no projector"):
        load_adapter(families.family(name).model, tmp_path)


@pytest.mark.parametrize("name", QWENS)
@pytest.mark.parametrize(("kind", "dora"), [(None, False), ("nf4", True)])
def test_transformers_own_class_reads_a_merged_checkpoint(name, kind, dora, tmp_path):
    family = adapted(name, kind, dora)
    before = logits(family)
    merged = merge_adapter(family.model)
    assert torch.allclose(logits(family, merged), before, atol=1e-5)
    save_trained_weights(merged, tmp_path)
    theirs, told = getattr(transformers, type(merged).__name__).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    weights = theirs.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in merged.state_dict().items())
