"""The workload of batches, and the estimate of activations; tests/training/dry_run/test_flops.py counts operations."""

import pytest
import torch
from helpers import tiny
from helpers.models import tiny_auto_ui

from vlm_agent.models.auto_ui.cost import AutoUiCost
from vlm_agent.models.auto_ui.family import collate
from vlm_agent.models.cost import NO_WORK, Precision, Workload
from vlm_agent.models.family import family_of
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.recipe.model import Lora, TrainedParts

WORDS = tiny.tokenizer()
FULL = TrainedParts(**dict.fromkeys(("projector", "embeddings", "language_model", "norm", "head"), "full"))
ADAPTED = TrainedParts()
NO_DROPOUT = Lora(rank=4, dropout=0.0)
WIDE = {"d_model": 128, "d_kv": 32, "num_heads": 4, "d_ff": 320}


def test_a_workload_counts_sentences_without_padding_and_adds_up():
    sentences = tiny_auto_ui.sentences(WORDS, 3, screens=(1, 2))
    config = tiny_auto_ui.config(len(WORDS))
    cost = family_of(config).cost(config)
    batch = collate(sentences)
    on_meta = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    loads = [cost.workload(collate([one])) for one in sentences]
    assert cost.workload(on_meta) == sum(loads, NO_WORK)
    source, target = batch["source_lengths"][1], batch["target_lengths"][1]
    read = (source, source**2, source * target, 6, source * 6)
    assert loads[1] == Workload(source + target, target * (target + 1) // 2, target, {}, *read)
    assert loads[1] * 3 == loads[1] + loads[1] + loads[1]


def saved_bytes(config, train: TrainedParts, bf16: bool, source: int, target: int) -> int:
    """What torch keeps for the backward pass, on a CPU."""
    model = choose_trained_weights(tiny_auto_ui.model(64, **config), train, NO_DROPOUT).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage  # held, so that no other takes its address
        return tensor

    ids, labels = torch.ones(1, source, dtype=torch.int64), torch.ones(1, target, dtype=torch.int64)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        model(input_ids=ids, attention_mask=torch.ones_like(ids), features=torch.ones(1, 20, 6), shift_labels=labels)
    return sum(storage.nbytes() for storage in seen.values())


@pytest.mark.parametrize("projection", ["relu", "gated-gelu"])
@pytest.mark.parametrize("train", [FULL, ADAPTED], ids=["full", "lora"])
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "mixed"])
def test_activations_are_near_what_torch_saves(bf16, train, projection):
    """A CPU's attention keeps more than a GPU's fused kernel, which the estimate is for."""
    config = WIDE | {"feed_forward_proj": projection}
    cost = AutoUiCost(tiny_auto_ui.config(64, **config))
    load = cost.workload({"source_lengths": [96], "target_lengths": [48], "feature_counts": [20]})
    estimate = cost.activation_bytes(load, train, NO_DROPOUT, Precision(bf16, False), checkpointed=0)
    assert estimate == pytest.approx(saved_bytes(config, train, bf16, 96, 48), rel=0.4)


def test_checkpointing_keeps_less_and_a_frozen_model_little():
    cost = AutoUiCost(tiny_auto_ui.config(64, **WIDE, num_layers=8, num_decoder_layers=8))
    load = cost.workload({"source_lengths": [96], "target_lengths": [48], "feature_counts": [20]})
    numbers = Precision(True, False)
    plain, light = (cost.activation_bytes(load, FULL, Lora(), numbers, checkpointed) for checkpointed in (0, 16))
    assert light < plain / 3
    head = TrainedParts(projector="frozen", language_model="frozen", head="full")
    assert cost.activation_bytes(load, head, Lora(), numbers, checkpointed=0) < plain / 6
