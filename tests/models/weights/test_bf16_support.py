"""Where `training.bf16: auto` trains in bfloat16."""

import pytest
import torch

from vlm_agent.cli import demo_stages
from vlm_agent.models.weights.precision import has_bf16


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("cpu", "gains"),
    [
        ({"amx_tile": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, True),
        ({"amx_tile": False, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, False),
        ({"amx_tile": False, "avx512_bf16": True, "cpu_name": "AMD EPYC"}, True),
        ({"amx_tile": False, "avx512_bf16": False, "cpu_name": "AMD EPYC"}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_of_cpus_those_that_multiply_more_numbers_a_cycle_in_bfloat16(cpu, gains, no_gpu, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)
    assert has_bf16() == gains


@pytest.mark.parametrize(("capability", "is_fast"), [("AVX512", True), ("AVX2", False)])
def test_the_demo_trains_on_everything_on_cpus_with_avx512(capability, is_fast, no_gpu, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert demo_stages._is_fast() == is_fast
