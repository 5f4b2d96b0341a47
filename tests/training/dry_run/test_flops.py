"""The counted operations are those that torch counts while tiny models run forward and backward."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.models import tiny_auto_ui
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForImageTextToText

from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.cost import workload
from vlm_agent.models.cost import NO_WORK, Flops, TrainingFlops, UnknownCostError, Workload, causal_pairs
from vlm_agent.models.family import family_of
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.lora_layers import IN_PLACE_FLOPS
from vlm_agent.recipe.model import Lora, TrainedParts
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import pack
from vlm_agent.training.engine import checkpoint_layers

RANK = 4
WITHIN = 0.02
FROZEN = dict.fromkeys(("vision", "projector", "embeddings", "language_model", "norm", "head"), "frozen")
FULL = dict.fromkeys(FROZEN, "full")
VIT = {
    "model_type": "vit",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 64,
    "patch_size": 8,
}
SIGLIP = {**VIT, "model_type": "siglip_vision_model"}
CLIP = {**VIT, "model_type": "clip_vision_model"}
GROUPED = tiny.LLAMA | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
}
IDS = {"image_token_id": 120, "video_token_id": 121, "vision_start_token_id": 122, "vision_end_token_id": 123}
QWEN = {
    "qwen2_vl": {
        "text_config": TEXT,
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 4},
    },
    "qwen2_5_vl": {
        "text_config": TEXT,
        "vision_config": {
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 80,
            "num_heads": 2,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [2],
        },
    },
    "qwen3_vl": {
        "text_config": TEXT | {"head_dim": 16},
        "vision_config": {
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 80,
            "num_heads": 2,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    },
}


def flops_of(config, train: TrainedParts, rank: int, checkpointed: int) -> TrainingFlops:
    return TrainingFlops(family_of(config).cost(config), train, rank, checkpointed)


def counted(run) -> tuple[int, int]:
    """Operations that torch counts in `run` and in the backward pass of its result."""
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE_FLOPS) as counter:
        result = run()
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE_FLOPS) as counter:
        result.sum().backward()
    return forward, counter.get_total_flops()


def agree(work: Flops, seen: tuple[int, int]) -> None:
    assert work.forward == pytest.approx(seen[0], rel=WITHIN)
    assert work.backward + work.recomputed == pytest.approx(seen[1], rel=WITHIN)


def every_pair(lengths: list[int]) -> int:
    """What plain attention computes: masked pairs too."""
    return sum(length**2 for length in lengths)


LLAMA_VIT = {
    "the paper's": {"projector": "full", "language_model": "lora"},
    "only the projector": {"projector": "full"},
    "adapters all through": {"vision": "lora", "projector": "full", "embeddings": "lora", "language_model": "lora"},
    "only the language model": {"language_model": "full"},
    "head and norm": {"norm": "full", "head": "full"},
    "everything": FULL,
}


@pytest.mark.parametrize("parts", LLAMA_VIT.values(), ids=LLAMA_VIT)
def test_counted_flops_of_llama_vit_equal_measured_ones(parts):
    check_llama_vit(VIT, parts)


@pytest.mark.parametrize("vision", [SIGLIP, CLIP, tiny.CONVNEXT], ids=lambda vision: vision["model_type"])
def test_any_encoder_is_counted_frozen_and_trained(vision):
    check_llama_vit(vision, LLAMA_VIT["the paper's"])
    check_llama_vit(vision, FULL)


def check_llama_vit(vision: dict, parts: dict[str, str]) -> None:
    train = TrainedParts(**FROZEN | parts)
    model = tiny.model(64, vision, GROUPED)
    adapted = choose_trained_weights(model, train, Lora(rank=RANK)).train()
    for part in (model.vision, model.language_model):
        part.set_attn_implementation("eager")
    tokens = [SCREEN_TOKEN] * 8 + [1, 2, 3, 4]
    ids = torch.tensor([tokens * 2])
    labels = torch.full_like(ids, IGNORED)
    labels[:, -3:] = 5
    screens = torch.zeros(2, 3, *tiny.SCREEN, dtype=torch.uint8)
    seen = counted(lambda: adapted(input_ids=ids, screens=screens, labels=labels).loss)
    load = Workload(len(tokens) * 2, every_pair([len(tokens) * 2]), 3, Counter({tiny.SCREEN: 2}))
    agree(flops_of(model.config, train, RANK, checkpointed=0).of(load), seen)


AUTO_UI = {
    "everything": FULL,
    "adapters": {"projector": "full", "language_model": "lora"},
    "only adapters": {"language_model": "lora"},
    "adapters of the fusion": {"projector": "lora", "head": "lora"},
    "only the fusion": {"projector": "full"},
    "only the embeddings": {"embeddings": "lora", "norm": "full"},
    "head and norm": {"norm": "full", "head": "full"},
}


@pytest.mark.parametrize("proj", ["relu", "gated-gelu"])
@pytest.mark.parametrize("parts", AUTO_UI.values(), ids=AUTO_UI)
def test_counted_flops_of_auto_ui_equal_measured_ones(parts, proj):
    model = tiny_auto_ui.model(64, d_model=32, d_ff=64, feed_forward_proj=proj)
    for stack in (model.t5.encoder, model.t5.decoder):
        stack.set_attn_implementation("eager")
    sources, targets, vectors, features = 12, 7, 5, model.config.features["size"]
    train = TrainedParts(**FROZEN | parts)
    adapted = choose_trained_weights(model, train, Lora(rank=RANK)).train()
    ids, labels = torch.ones(2, sources, dtype=torch.int64), torch.ones(2, targets, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "features": torch.ones(2, vectors, features)}
    with sdpa_kernel(SDPBackend.MATH):
        seen = counted(lambda: adapted(**inputs, shift_labels=labels).loss)
    load = replace(workload([sources] * 2, [targets] * 2, [vectors] * 2), pairs=2 * targets**2)
    agree(flops_of(model.config, train, RANK, checkpointed=0).of(load), seen)


def qwen(family: str):
    """A random model, its configuration, two screens of different sizes for it and the grids of those."""
    sizes = {"patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2, "in_channels": 3}
    window = {"window_size": 16} if family == "qwen2_5_vl" else {}
    parts = QWEN[family]
    config = AutoConfig.for_model(
        family, text_config=parts["text_config"], vision_config=parts["vision_config"] | sizes | window, **IDS
    )
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").train()
    return model, config, [(6, 10), (8, 4)]


def read(model, grids: list[tuple[int, int]], kept: int) -> torch.Tensor:
    """The logits of the last `kept` tokens behind screens of these grids."""
    ids = [token for rows, columns in grids for token in [122, *[120] * (rows * columns // 4), 123, 1, 2]]
    ids = torch.tensor([ids])
    patches = torch.randn(sum(rows * columns for rows, columns in grids), 3 * 2 * 4 * 4)
    return model(
        input_ids=ids,
        pixel_values=patches,
        image_grid_thw=torch.tensor([(1, *grid) for grid in grids]),
        mm_token_type_ids=(ids == 120).int(),
        logits_to_keep=torch.arange(ids.shape[1] - kept, ids.shape[1]),
        use_cache=False,
    ).logits


def qwen_load(grids: list[tuple[int, int]], kept: int) -> Workload:
    tokens = sum(rows * columns // 4 + 4 for rows, columns in grids)
    sizes = [(4 * rows, 4 * columns) for rows, columns in grids]
    return Workload(tokens, every_pair([tokens]), kept, Counter(sizes))


def adapt(model, train: TrainedParts):
    if train.language_model == "lora":
        linear = r".*language_model.*_proj"
        return get_peft_model(model, LoraConfig(r=RANK, lora_dropout=0.0, target_modules=linear))
    for parameter in model.model.visual.parameters():
        parameter.requires_grad_(train.vision == "full")
    return model


@pytest.mark.parametrize("parts", [FROZEN | {"language_model": "lora"}, FULL], ids=["lora", "full"])
@pytest.mark.parametrize("family", QWEN)
def test_counted_flops_of_qwen_equal_measured_ones(family, parts):
    model, config, grids = qwen(family)
    train = TrainedParts(**parts)
    adapted = adapt(model, train)
    seen = counted(lambda: read(adapted, grids, kept=3))
    agree(flops_of(config, train, RANK, checkpointed=0).of(qwen_load(grids, 3)), seen)


def test_a_windowed_tower_attends_within_its_windows_only():
    _, config, (grid, _) = qwen("qwen2_5_vl")
    tower = family_of(config).cost(config).tower
    assert (tower.window, tower.full_layers) == (4, 1)
    assert tower.pairs(*grid) == 60**2 + 2 * (4**2 + 2**2) * (4**2 + 4**2 + 2**2)


@pytest.mark.parametrize("checkpointed", [1, 3])
def test_recomputation_by_checkpointing_is_counted_separately(checkpointed):
    model, config, grids = qwen("qwen2_5_vl")
    train = TrainedParts(**FROZEN | {"language_model": "lora"})
    adapted = adapt(model, train)
    checkpoint_layers(adapted, checkpointed)
    model.disable_input_require_grads()  # gradients that transformers asks for and nothing here needs
    _, backward = counted(lambda: read(adapted, grids, kept=3))
    load = qwen_load(grids, 3)
    again = flops_of(config, train, RANK, checkpointed).of(load)
    plain = flops_of(config, train, RANK, checkpointed=0).of(load)
    assert again.model == plain.model == plain.hardware
    assert again.backward + again.recomputed == pytest.approx(backward, rel=WITHIN)
    assert again.hardware > (1 + 0.09 * checkpointed) * again.model


def test_attention_is_counted_within_sentences_and_causally():
    assert causal_pairs(np.array([3, 1, 4])) == 6 + 1 + 10
    batch = {"lengths": [3, 1, 4], "supervised": 5, "screen_sizes": [(16, 24), [8, 8], (16, 24)]}
    for config in (qwen("qwen2_5_vl")[1], tiny.model(8).config):
        row = family_of(config).cost(config).workload(batch)
        assert row == Workload(8, 17, 5, {(16, 24): 2, (8, 8): 1})


def test_the_flops_of_a_sum_of_workloads_are_the_sum_of_their_flops():
    """The meter adds up workloads and counts their FLOPs once for each log line."""
    loads = [Workload(80, 900, 7, {(32, 48): 2}), Workload(50, 400, 3, {(32, 48): 1, (16, 16): 4})]
    for config in (qwen("qwen2_5_vl")[1], tiny.model(8).config):
        flops = flops_of(config, TrainedParts(**FROZEN | {"language_model": "lora"}), RANK, checkpointed=1)
        assert flops.of(sum(loads, NO_WORK)) == sum(map(flops.of, loads), Flops())


def test_a_workload_is_counted_without_reading_a_value_of_a_tensor():
    sentence = Sentence()
    sentence.read([1])
    sentence.see(np.zeros((3, 16, 8), np.uint8), tokens=2)
    sentence.learn([2, 3])
    row = pack([sentence, sentence])
    on_meta = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in row.items()}
    cost = family_of(tiny.model(8).config).cost(tiny.model(8).config)
    assert cost.workload(on_meta) == cost.workload(row) == Workload(10, 15 + 15, 4, {(16, 8): 2})


def test_lora_costs_about_four_operations_a_weight_and_token_and_full_training_six():
    text = AutoConfig.for_model(**tiny.LLAMA | {"hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000})
    config = tiny.model(8).config
    config.text_config = text
    decoder = family_of(config).cost(config).decoder
    weights = 2 * (4 * 4096**2 + 3 * 4096 * 11008)
    load = Workload(tokens=1000, pairs=0, supervised=0, screens={})

    def cost(**parts):
        train = TrainedParts(**FROZEN | parts)
        return flops_of(config, train, 16, checkpointed=0).of(load).model / weights / 1000

    assert decoder.layers == 2
    assert cost(projector="full", language_model="lora") == pytest.approx(4, rel=0.02)
    assert cost(language_model="full", embeddings="full") == pytest.approx(6, rel=0.001)
    assert cost() == pytest.approx(2)


def test_an_unknown_model_type_is_refused_by_name():
    with pytest.raises(CheckpointError, match="'vit'"):
        family_of(AutoConfig.for_model(**VIT))
    config = tiny.model(8).config
    config.text_config = AutoConfig.for_model("mixtral")
    with pytest.raises(UnknownCostError, match="'mixtral'"):
        family_of(config).cost(config)
