"""Counted bytes are those of small real models; estimated bytes are close to those that torch saves."""

import json
from pathlib import Path

import pytest
import torch
from helpers import tiny
from torch import nn
from transformers import AutoConfig

from vlm_agent.models.cost import Precision, Workload, decoder_shape, layer_bytes, logit_bytes
from vlm_agent.models.family import family_of
from vlm_agent.models.fused import fuse
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.recipe.model import Lora, TrainedParts
from vlm_agent.recipe.run import OptimizerRecipe
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.training.dry_run.memory import CUDA_BYTES, SHARDINGS, Weights, quantised_bytes, spread, weigh
from vlm_agent.training.loop.optimizers import optimizer_of

ROOT = Path(__file__).resolve().parents[3]
PAPERS = TrainedParts()
FULL = TrainedParts(**dict.fromkeys(TrainedParts.model_fields, "full"))
ALL_BUT_VISION = TrainedParts(**dict(FULL) | {"vision": "frozen"})  # some weights of this tower get no gradient
WEIGHTS = Weights(frozen=1000, frozen_cast=800, trained=100, optimizer=800, hidden=10)


def optimiser(model, name):
    return optimizer_of(model, OptimizerRecipe(name=name))


def step(model, optimizer):
    ids = torch.tensor([[SCREEN_TOKEN] * 8 + [1, 2, 3]])
    screens = torch.zeros(1, 3, *tiny.SCREEN, dtype=torch.uint8)
    model(input_ids=ids, screens=screens, labels=torch.full_like(ids, 5)).loss.backward()
    optimizer.step()


def size(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize(("train", "name"), [(PAPERS, "adamw"), (ALL_BUT_VISION, "muon")])
def test_weights_gradients_and_states_are_those_of_a_real_step(train, name):
    model = choose_trained_weights(tiny.model(64), train, Lora(rank=2)).train()
    optimizer = optimiser(model, name)
    counted = spread(weigh(model, tiny.model(64).parts, optimizer, None, bf16=False), SHARDINGS[0], gpus=1, bf16=False)
    step(model, optimizer)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    states = [
        state
        for part in getattr(optimizer, "parts", [optimizer])
        for of_parameter in part.state.values()
        for state in of_parameter.values()
        if state.dim() > 0  # AdamW counts its steps in a scalar
    ]
    assert counted.weights == size(model.parameters())
    assert counted.gradients == size(parameter.grad for parameter in trained) == size(trained)
    assert counted.optimizer == size(states)


def test_a_model_on_the_meta_device_has_the_memory_of_the_real_one():
    def weights(device):
        with torch.device(device):
            model = tiny.model(64, dtype="bfloat16").to(torch.bfloat16)
            model = choose_trained_weights(model, PAPERS, Lora())
        return weigh(model, tiny.model(64).parts, optimiser(model, "adamw"), None, bf16=True)

    assert weights("meta") == weights("cpu")


def test_deepspeed_casts_float32_weights():
    model = tiny.model(64).requires_grad_(False)
    mixed = weigh(model, model.parts, nothing_trained(), None, bf16=True)
    assert mixed.frozen == 2 * mixed.frozen_cast == size(model.parameters())


@pytest.mark.parametrize("path", sorted((ROOT / "deepspeed_configs").glob("*")), ids=lambda path: path.stem)
def test_no_file_of_deepspeed_configs_overlaps_communication(path):
    """DeepSpeed's default for ZeRO-3 is true. Without it there is one gradient bucket, which `spread` counts."""
    assert json.loads(path.read_text())["zero_optimization"]["overlap_comm"] is False


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_quantised_weights_are_as_large_as_bitsandbytes_makes_them(kind):
    model = tiny.model(64, llama=tiny.LLAMA | {"hidden_size": 64, "intermediate_size": 320})
    expected = weigh(model.requires_grad_(False), model.parts, nothing_trained(), kind, bf16=False).frozen
    real = quantise(model, kind)
    assert expected == sum(stored(module) for module in real.modules())


def nothing_trained():
    return torch.optim.AdamW([nn.Parameter(torch.zeros(0))])


def stored(module: nn.Module) -> int:
    """Bytes of a module's own parameters, with the quantisation state of bitsandbytes."""
    own = size(module.parameters(recurse=False))
    weight = getattr(module, "weight", None)
    state = getattr(weight, "quant_state", None)
    if state is not None:
        own += size([state.absmax, state.code, state.state2.absmax, state.state2.code, state.offset])
    if getattr(weight, "SCB", None) is not None:
        own += size([weight.SCB])
    return own


def test_each_zero_stage_partitions_its_documented_states():
    ddp, zero2, zero3, offload = (spread(WEIGHTS, sharding, gpus=4, bf16=True) for sharding in SHARDINGS)
    assert (ddp.weights, ddp.gradients, ddp.optimizer) == (1400, 400, 800)
    assert (zero2.weights, zero2.gradients, zero2.optimizer) == (1000, 50, 300)
    assert (zero3.weights, zero3.gradients, zero3.optimizer) == (250, 50, 300)
    assert (offload.weights, offload.gradients, offload.optimizer, offload.host) == (0, 0, 0, 600)
    assert ddp.host == zero2.host == zero3.host == 0
    assert [memory.buffers - CUDA_BYTES for memory in (ddp, zero2, zero3, offload)] == [
        600,
        2 * 2 * 10**8,
        200 + 1000,
        200 + 1000,
    ]
    assert spread(WEIGHTS, SHARDINGS[0], gpus=1, bf16=False).buffers == CUDA_BYTES


def test_deepspeed_in_float32_keeps_a_copy_of_trained_weights():
    _, zero2, *_ = (spread(WEIGHTS, sharding, gpus=2, bf16=False) for sharding in SHARDINGS)
    assert (zero2.weights, zero2.gradients, zero2.optimizer) == (1200, 200, 600)


LLAMA = tiny.LLAMA | {"hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4, "num_key_value_heads": 2}


def saved_by_a_layer(train: TrainedParts, lora: Lora, numbers: Precision) -> float:
    """Bytes that torch saves for the backward pass per token and layer: the increase for one more of each."""
    return saved(2, train, lora, numbers) - saved(1, train, lora, numbers)


def saved(layers: int, train: TrainedParts, lora: Lora, numbers: Precision) -> float:
    model = tiny.model(64, llama=LLAMA | {"num_hidden_layers": layers})
    fuse(model)
    model = model.to(torch.bfloat16) if numbers.frozen_bf16 else model
    model = choose_trained_weights(model, train, lora).train()
    decoder = (model if train == FULL else model.get_base_model()).language_model.model
    decoder.set_attn_implementation("sdpa")
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def storages(tokens: int) -> int:
        seen = {}

        def keep(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                seen[storage.data_ptr()] = storage  # held, so that no other takes its address
            return tensor

        embeddings = torch.zeros(1, tokens, 128, dtype=decoder.embed_tokens.weight.dtype, requires_grad=True)
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=numbers.bf16),
        ):
            decoder(inputs_embeds=embeddings, use_cache=False)
        return sum(storage.nbytes() for storage in seen.values())

    return (storages(48) - storages(16)) / 32


NO_DROPOUT = Lora(rank=4, dropout=0.0)


FLOAT32, MIXED, BFLOAT16 = Precision(False, False), Precision(True, False), Precision(True, True)


@pytest.mark.parametrize(
    ("train", "numbers"),
    [(PAPERS, FLOAT32), (PAPERS, MIXED), (PAPERS, BFLOAT16), (FULL, FLOAT32), (FULL, MIXED)],
    ids=["lora float32", "lora mixed", "lora bfloat16", "full float32", "full mixed"],
)
def test_activations_of_a_layer_are_near_what_torch_saves(train, numbers):
    decoder = decoder_shape(tiny.model(64, llama=LLAMA).config.text_config)
    estimate = layer_bytes(decoder, train, NO_DROPOUT, numbers)
    assert estimate == pytest.approx(saved_by_a_layer(train, NO_DROPOUT, numbers), rel=0.05)


def test_dropout_of_adapters_keeps_a_mask_and_a_copy_of_each_input():
    decoder = decoder_shape(tiny.model(64, llama=LLAMA).config.text_config)
    lora = Lora(rank=4, dropout=0.1)
    on_cpu = 3 * (2 * 128 + 128 + 320)  # where masks are float32, not bytes
    estimate = layer_bytes(decoder, PAPERS, lora, FLOAT32) + on_cpu
    assert estimate == pytest.approx(saved_by_a_layer(PAPERS, lora, FLOAT32), rel=0.02)


def test_checkpointing_keeps_one_layer_and_the_inputs_of_all():
    config = tiny.model(64, llama=LLAMA | {"num_hidden_layers": 8}).config
    cost, decoder = family_of(config).cost(config), decoder_shape(config.text_config)
    row = Workload(tokens=100, pairs=0, supervised=10, screens={})
    numbers = Precision(bf16=True, frozen_bf16=True)
    plain, light = (cost.activation_bytes(row, PAPERS, NO_DROPOUT, numbers, checkpointed) for checkpointed in (0, 8))
    one = 100 * layer_bytes(decoder, PAPERS, NO_DROPOUT, numbers)
    logits = logit_bytes(decoder.vocabulary, numbers, 10)
    assert (plain, light) == (8 * one + logits, one + 100 * (8 * 128 * 2 + 2 * 320 * 2) + logits)


@pytest.mark.parametrize("family", ["llama_vit", "qwen2_5_vl"])
def test_a_trained_tower_keeps_more_than_a_frozen_one_needs_for_a_moment(family):
    config = tiny.model(64).config if family == "llama_vit" else AutoConfig.for_model(family)
    row = Workload(tokens=0, pairs=0, supervised=0, screens={tiny.SCREEN: 3})
    sizes = [
        family_of(config).cost(config).activation_bytes(row, train, Lora(), Precision(True, True), checkpointed=0)
        for train in (PAPERS, FULL)
    ]
    assert 0 < sizes[0] < sizes[1]


def test_nf4_takes_4_1_bits_a_weight_and_int8_a_little_over_8():
    assert 8 * quantised_bytes((4096, 11008), "nf4") / (4096 * 11008) == pytest.approx(4.127, abs=0.001)
    assert 8 * quantised_bytes((4096, 11008), "int8") / (4096 * 11008) == pytest.approx(8.003, abs=0.001)
