"""The faster patch embedding and attention of vision towers compute the outputs of transformers' own."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.models import families, tiny_qwen
from torch.nn import functional
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

from vlm_agent.models import attention
from vlm_agent.models.attention import WITHIN_SEGMENTS, Bounds, within_segments
from vlm_agent.models.qwen_vl import vision_kernels
from vlm_agent.models.qwen_vl.vision_kernels import flatten_patch_embedding, tower_inputs

SIZES = [(64, 32), (64, 32), (20, 12), (40, 48), (40, 48)]
"""Two pairs of equal screens, and windows of several lengths in all but the smallest."""

every_family = pytest.mark.parametrize("name", tiny_qwen.FAMILIES)


def screens_of(family: families.Family) -> tuple[torch.Tensor, torch.Tensor]:
    """(pixels, grids) of screens of `SIZES`, as the tower takes them."""
    steps = [tiny.episode(number, tiny.ACTIONS[:1], size=size) for number, size in enumerate(SIZES)]
    row = family.row(*(family.sentences.build(episode) for episode in steps))
    return family.model._pixels(row["patches"]), row["grids"]


def plain(family: families.Family) -> families.Family:
    """The family with transformers' own forward passes in its tower."""
    for module in family.model.vision.modules():
        vars(module).pop("forward", None)
    family.model.vision.set_attn_implementation("sdpa")
    return family


@every_family
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tower_output_equals_that_of_transformers(name, dtype):
    fast, reference = (
        family.model.vision.to(dtype) for family in (families.family(name), plain(families.family(name)))
    )
    pixels, grids = screens_of(families.shared(name))
    with torch.inference_mode():
        seen, expected = (tower(pixels.to(dtype), grids).last_hidden_state for tower in (fast, reference))
    assert seen.dtype == dtype
    assert torch.allclose(seen, expected, atol=1e-5 if dtype == torch.float32 else 0.05)


@every_family
def test_gradients_of_a_trained_tower_equal_those_of_transformers(name):
    gradients = []
    for family in (families.family(name), plain(families.family(name))):
        pixels, grids = screens_of(family)
        output = family.model.vision(pixels, grids).last_hidden_state
        gradients.append(families.gradients(family.model.vision, output.square().sum()))
    fast, reference = gradients
    assert fast.keys() == reference.keys()
    assert "patch_embed.proj.weight" in fast
    for weight in fast:
        assert torch.allclose(fast[weight], reference[weight], rtol=1e-3, atol=1e-4 * reference[weight].abs().max())


@every_family
def test_weights_keep_their_names_and_shapes(name):
    fast, reference = families.shared(name).model, plain(families.family(name)).model
    assert {key: value.shape for key, value in fast.state_dict().items()} == {
        key: value.shape for key, value in reference.state_dict().items()
    }


@every_family
def test_bounds_are_read_back_once_and_all_layers_use_them(name, monkeypatch):
    family = families.family(name)
    assert family.model.vision.config._attn_implementation == WITHIN_SEGMENTS
    pixels, grids = screens_of(family)
    calls, known = Counter(), vision_kernels._ON_HOST
    before = len(known)

    def count(module, query, *args, **options):
        calls[module] += 1
        return sdpa(module, query, *args, **options)

    sdpa = attention.sdpa_attention_forward
    monkeypatch.setattr(attention, "sdpa_attention_forward", count)
    held = {}
    monkeypatch.setattr(vision_kernels, "_ON_HOST", held)
    with torch.inference_mode():
        family.model.vision(pixels, grids)
    assert len(held) == (2 if name == "qwen2_5_vl" else 1)  # windows, screens
    assert len(calls) == tiny_qwen.CONFIGS[name]["vision_config"]["depth"]
    assert set(calls.values()) == {len(bounds) - 1 for bounds in held.values()}
    assert len(known) == before


def test_segments_of_unlike_length_are_attended_to_apart():
    torch.manual_seed(0)
    lengths = [3, 5, 3, 1, 5, 3]
    bounds = Bounds.on(torch.device("cpu"), np.cumsum([0, *lengths]))
    query, key, value = torch.randn(3, 1, 2, sum(lengths), 8).requires_grad_().unbind()
    output, _ = within_segments(torch.nn.Module(), query, key, value, None, segment_bounds=bounds, is_causal=False)
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    expected = torch.cat([functional.scaled_dot_product_attention(*part) for part in parts], dim=2).transpose(1, 2)
    assert torch.allclose(output, expected, atol=1e-6)


def convolution(**options) -> torch.nn.Conv3d:
    torch.manual_seed(0)
    return torch.nn.Conv3d(3, 10, **{"kernel_size": (2, 4, 4), "stride": (2, 4, 4)} | options)


@pytest.mark.parametrize("bias", [False, True])
def test_a_patch_embedding_is_a_matrix_product(bias):
    conv, patches = convolution(bias=bias), torch.randn(7, 3, 2, 4, 4)
    expected = conv(patches)
    flatten_patch_embedding(conv)
    assert "forward" in vars(conv)
    assert conv(patches).shape == expected.shape == (7, 10, 1, 1, 1)
    assert torch.allclose(conv(patches), expected, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(patches).dtype == torch.bfloat16


def test_an_input_of_several_patches_is_still_a_convolution():
    conv, video = convolution(), torch.randn(1, 3, 4, 8, 8)
    expected = conv(video)
    flatten_patch_embedding(conv)
    assert torch.equal(conv(video), expected)


@pytest.mark.parametrize("options", [{"stride": (1, 4, 4)}, {"padding": (0, 2, 2)}, {"dilation": 2}], ids=str)
def test_convolutions_that_overlap_or_pad_are_left_alone(options):
    conv = convolution(**options)
    flatten_patch_embedding(conv)
    assert "forward" not in vars(conv)


def test_interpolation_of_each_size_is_computed_once_and_equals_that_of_all_screens_together():
    vision = SimpleNamespace(spatial_merge_size=2, num_position_embeddings=2304)
    grids = torch.tensor([[1, 4, 6], [1, 8, 2], [1, 4, 6]])
    inputs = tower_inputs(grids, vision)
    expected = get_vision_interpolation_indices_and_weights(grids, 48, align_corners=True, spatial_merge_size=2)
    for found, one in zip((inputs["interp_indices"], inputs["interp_weights"]), expected, strict=True):
        assert torch.equal(found, one)
