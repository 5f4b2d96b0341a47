"""Where `training.bf16: auto` trains in bfloat16."""

import pytest
import torch

from vlm_agent.cli import demo_stages
from vlm_agent.models.weights.precision import has_bf16


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("amx", [True, False])
def test_of_cpus_those_with_amx(amx, no_gpu, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert has_bf16() == amx


@pytest.mark.parametrize(("capability", "is_fast"), [("AVX512", True), ("AVX2", False)])
def test_the_demo_trains_on_everything_on_cpus_with_avx512(capability, is_fast, no_gpu, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert demo_stages._is_fast() == is_fast
