"""torch's variable-length attention computes the same as one call per sentence or window."""

import logging

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.hardware import varlen_on_cpu
from helpers.models import families, tiny_qwen
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import varlen as torch_varlen

from vlm_agent.models import attention
from vlm_agent.models.attention import Bounds, within_segments

LENGTHS = (3, 1, 7, 5)
EPISODES = [tiny.episode(number, tiny.ACTIONS[: number + 1], size=(40, 32 + 16 * number)) for number in range(3)]
every_family = pytest.mark.parametrize("name", families.NAMES)


def states(heads: int = 4, key_heads: int = 2, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Query, key and value of four segments, in transformers' layout."""
    torch.manual_seed(0)
    sizes = (heads, key_heads, key_heads)
    return [torch.randn(1, count, sum(LENGTHS), 8, dtype=dtype).requires_grad_() for count in sizes]


def bounds() -> Bounds:
    return Bounds.on(torch.device("cpu"), np.cumsum([0, *LENGTHS]))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_output_and_gradients_equal_those_of_a_call_per_segment(causal, key_heads, scaling, monkeypatch):
    calls = varlen_on_cpu.use(monkeypatch)
    one, other = states(key_heads=key_heads), states(key_heads=key_heads)
    output = attention.run_kernel(*one, bounds(), causal, scaling)
    options = {"is_causal": causal, "scale": scaling, "enable_gqa": True}
    parts = zip(*(tensor.split(LENGTHS, dim=2) for tensor in other), strict=True)
    expected = torch.cat([functional.scaled_dot_product_attention(*part, **options) for part in parts], dim=2)
    assert calls == [(4, sum(LENGTHS), 4, key_heads, causal)]
    assert torch.allclose(output, expected.transpose(1, 2), atol=1e-6)
    weights = torch.randn_like(output)
    (output * weights).sum().backward()
    (expected.transpose(1, 2) * weights).sum().backward()
    for tensor, reference in zip(one, other, strict=True):
        assert torch.allclose(tensor.grad, reference.grad, atol=1e-5)


def without_gqa(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
    """The signature of torch 2.11."""
    return torch_varlen.varlen_attn(
        *(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k), scale=scale, window_size=window_size, enable_gqa=True
    )


def test_a_torch_without_the_option_for_fewer_key_heads_is_called_without_it(monkeypatch):
    varlen_on_cpu.use(monkeypatch)
    expected = attention.run_kernel(*states(), bounds(), causal=True, scaling=None)
    monkeypatch.setattr(attention, "varlen_attn", without_gqa)
    monkeypatch.setattr(attention, "_TAKES_GQA", False)
    assert torch.equal(attention.run_kernel(*states(), bounds(), causal=True, scaling=None), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_long_segments_by_one_call_each_have_the_output_and_gradients_of_the_kernel(dtype, monkeypatch):
    calls = varlen_on_cpu.use(monkeypatch)
    results = []
    for is_long in (False, True):
        monkeypatch.setattr(attention, "has_long_segments", lambda *_, is_long=is_long: is_long)
        parts = states(key_heads=4, dtype=dtype)
        output, _ = within_segments(torch.nn.Module(), *parts, None, segment_bounds=bounds(), is_causal=False)
        output.float().square().sum().backward()
        results.append((output, *(part.grad for part in parts)))
    assert len(calls) == 1
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("changes", "is_long"),
    [
        ({}, True),
        ({"capability": (10, 0)}, True),
        ({"capability": (8, 0)}, False),
        ({"mean": 2047}, False),
        ({"causal": True}, False),
        ({"fa4": True}, False),
    ],
    ids=str,
)
def test_one_call_each_is_for_long_bidirectional_segments_on_hopper_without_fa4(changes, is_long, monkeypatch):
    case = {"capability": (9, 0), "mean": 2048, "causal": False, "fa4": False} | changes
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: case["capability"])
    monkeypatch.setattr(attention, "use_fa4", lambda _: case["fa4"])
    with FakeTensorMode():
        query = torch.empty(1, 4, 3 * case["mean"], 16, dtype=torch.bfloat16, device="cuda")
        limits = Bounds((0, 100, case["mean"], 3 * case["mean"]), torch.zeros(4, dtype=torch.int32, device="cuda"))
        assert attention.has_long_segments(query, limits, case["causal"]) == is_long
        assert attention.can_run_kernel(query)


def row_of(family: families.Family) -> dict:
    return family.row(*(family.sentences.build(episode) for episode in EPISODES))


@every_family
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "activations recomputed"])
def test_a_training_row_has_the_same_losses_and_gradients(name, checkpointed, monkeypatch):
    def learn() -> tuple[torch.Tensor, dict]:
        family = families.adapted(name)
        if checkpointed:
            family.model.activation_checkpointing_enable()
        output = family.model.train()(**row_of(family))
        return output.token_losses, families.gradients(family.model, output.loss)

    expected = learn()
    calls = varlen_on_cpu.use(monkeypatch)
    losses, gradients = learn()
    assert torch.allclose(losses, expected[0], atol=1e-5)
    assert gradients.keys() == expected[1].keys()
    for weight, gradient in gradients.items():
        assert (gradient - expected[1][weight]).norm() < 1e-4 * expected[1][weight].norm(), weight
    in_language = [call for call in calls if call[4]]
    assert {call[0] for call in in_language} == {len(EPISODES)}
    assert len(in_language) == 2 * (2 if checkpointed else 1)  # layers, each once more when recomputed


@pytest.mark.parametrize("name", tiny_qwen.FAMILIES)
def test_a_vision_tower_makes_one_call_per_layer(name, monkeypatch):
    calls = varlen_on_cpu.use(monkeypatch)
    family = families.shared(name)
    row = row_of(family)
    with torch.inference_mode():
        family.model.vision(family.model._pixels(row["patches"]), row["grids"])
    assert len(calls) == tiny_qwen.CONFIGS[name]["vision_config"]["depth"]
    segments = {call[0] for call in calls}
    assert len(row["grids"]) in segments
    assert len(segments) == (2 if name == "qwen2_5_vl" else 1)  # windows and screens


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_operator_accepts_fake_cuda_tensors_and_returns_the_shape_of_a_row(dtype):
    """The shapes and dtypes of torch's own operator on CUDA; `backward` on fake CUDA tensors needs a CUDA build."""
    with FakeTensorMode():
        query, key = (torch.empty(1, heads, 15, 16, dtype=dtype, device="cuda") for heads in (4, 2))
        limits = Bounds((0, 6, 15), torch.zeros(3, dtype=torch.int32, device="cuda"))
        output = attention.run_kernel(query, key, key, limits, causal=True, scaling=None)
        assert output.shape == (1, 15, 4, 16)
        assert (output.dtype, output.device.type) == (dtype, "cuda")


def test_autocast_covers_the_operator_as_it_covers_pytorchs_attention(monkeypatch):
    varlen_on_cpu.use(monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = within_segments(torch.nn.Module(), *states(), None, segment_bounds=bounds())
        assert output.dtype == functional.scaled_dot_product_attention(*states(key_heads=4)).dtype == torch.bfloat16
    output.sum().backward()


def test_bounds_hold_the_longest_segment():
    assert (bounds().host, bounds().longest, bounds().device.dtype) == ((0, 3, 4, 11, 16), 7, torch.int32)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"head": 72}, None),
        ({"dtype": torch.float32}, "bfloat16 and float16, and the states are torch.float32"),
        ({"capability": (7, 5)}, "this GPU has 7.5"),
        ({"head": 100}, "these have 100"),
        ({"head": 512}, "these have 512"),
        ({"dropout": 0.1}, "no dropout"),
    ],
    ids=str,
)
def test_it_runs_in_half_precision_on_ampere_and_later(changes, reason):
    usual = {"dtype": torch.bfloat16, "head": 128, "dropout": 0.0, "capability": (9, 0)}
    found = attention._obstacle(**usual | changes)
    assert found is None if reason is None else reason in found


def test_a_gpu_that_cannot_run_it_logs_the_reason_once(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    attention._warn.cache_clear()
    with FakeTensorMode(), caplog.at_level(logging.WARNING):
        query = torch.empty(1, 4, 15, 16, dtype=torch.bfloat16, device="cuda")
        assert not attention.can_run_kernel(query)
        assert not attention.can_run_kernel(query)
    assert [record.message.startswith("SLOW ATTENTION") for record in caplog.records] == [True]


def test_a_cpu_does_not_run_it_and_logs_nothing(caplog):
    assert not attention.can_run_kernel(states()[0])
    assert not caplog.records
