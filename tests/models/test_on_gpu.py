"""What a GPU computes in bfloat16 is what a CPU computes in float32, within a stated bound.

`make gpu` runs the tests of `cuda`. The same bodies run on the CPU, in bfloat16, with all others.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.utils import send_to_device
from helpers import tiny
from helpers.hardware.second_device import AUTO_UI, episodes, model_and_batch
from helpers.models import families
from helpers.runs import adapted_run

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import OK, main
from vlm_agent.models.attention import Bounds, within_segments
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.precision import use_fa4
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.recipe.model import Lora, TrainedParts

ROOT = Path(__file__).parents[2]
STEPS = 3
LOSS_BOUND = 0.02
"""Relative difference of a step's loss: bfloat16 has 8 bits."""
QUANTISED_BOUND = 0.1
ANSWER_BOUND = 0.9
"""Share of learned tokens at which the most likely token is the same."""

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
on_each_device = pytest.mark.parametrize("device", ["cpu", CUDA], indirect=True)
of_each_family = pytest.mark.parametrize("name", [*families.NAMES, families.QWEN_VL_2023])


@pytest.fixture
def device(request) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU: run `make gpu` where PyTorch finds one")
    return request.param


def losses(name: str, device: str, bf16: bool, change: Callable = lambda model: model) -> torch.Tensor:
    """The loss of each of `STEPS` updates on one row. `change`: of the model on the device."""
    model, batch = model_and_batch(name)
    model = change(model.to(device)).train()
    row = send_to_device({key: value for key, value in batch.items() if key not in NOT_FOR_MODELS}, device)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-3)
    found = []
    for _ in range(STEPS):
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = model(**row).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach().float().cpu())
    return torch.stack(found)


@on_each_device
@pytest.mark.parametrize("name", [*families.NAMES, families.QWEN_VL_2023, AUTO_UI])
def test_three_steps_have_the_losses_of_float32_on_the_cpu(name, device):
    expected, found = losses(name, "cpu", bf16=False), losses(name, device, bf16=True)
    torch.testing.assert_close(found, expected, rtol=LOSS_BOUND, atol=0)


@on_each_device
@of_each_family
def test_two_episodes_have_the_likely_tokens_of_float32_on_the_cpu(name, device):
    family, two = families.family(name), episodes()[:2]
    family.model.train()
    families.fit(family.model, family.row(*map(family.sentences.build, two)), 10)
    family.model.eval()

    def best(bf16: bool) -> tuple[list[int], list]:
        agent = VlmAgent(family.model, family.words, family.sentences, bf16)
        with torch.inference_mode(), agent.precision():
            likely = agent.decoder.prefill([agent.sentences.build(episode) for episode in two]).best
        return likely, agent.answer_episodes(two)

    expected, _ = best(bf16=False)
    family.model.to(device)
    found, answers = best(bf16=True)
    assert sum(map(int.__eq__, expected, found)) >= ANSWER_BOUND * len(expected)
    assert [len(each) for each in answers] == [len(episode) for episode in two]


@on_each_device
@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_quantised_model_trains_near_the_losses_of_float32(kind, device):
    def quantised(adapted):
        base = quantise(families.family("llama_vit").model.to(device), kind)
        model = choose_trained_weights(base, TrainedParts(projector="full"), Lora(rank=2, dropout=0.0))
        weights = dict(adapted.named_parameters())
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.requires_grad:
                    weight.copy_(weights[name])
        return model

    expected, found = losses("llama_vit", "cpu", bf16=False), losses("llama_vit", device, True, quantised)
    torch.testing.assert_close(found, expected, rtol=QUANTISED_BOUND, atol=0)


@on_each_device
def test_a_run_is_merged(tmp_path, device):
    run = adapted_run.write_run(tmp_path, dtype="bfloat16")
    assert main(["merge", str(run), "--output", str(tmp_path / "merged")]) == OK


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), CUDA], indirect=True)
@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_one_rank_trains_under_zero(tmp_path, stage, device):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(3)])
    content = tiny.recipe(shards, tmp_path / "run")
    prefix = "cpu_" if device == "cpu" else ""
    config = ROOT / "deepspeed_configs" / f"{prefix}{stage}.json"
    content["training"] |= {"deepspeed": str(config), "bf16": True, "optimizer": {"learning_rate": 1e-3}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "1", "-m", "vlm_agent.cli"]
    command = [sys.executable, "-m", *launcher, "train", "--config", str(tmp_path / "recipe.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "run" / "progress.jsonl").exists()


@pytest.mark.parametrize("device", [CUDA], indirect=True)
def test_flash_attention_4_has_the_values_of_one_call_a_segment(device):
    if not use_fa4(torch.cuda.get_device_capability()):
        pytest.skip("needs a GPU that runs flash-attn-4, and flash-attn-4")
    ends = torch.tensor([0, 100, 356], dtype=torch.int32, device=device)
    query, key, value = torch.randn(3, 1, 4, 356, 64, device=device, dtype=torch.bfloat16)
    module = torch.nn.Module().train()
    module.is_causal = True
    found, _ = within_segments(module, query, key, value, None, segment_bounds=Bounds((0, 100, 356), ends))
    parts = [
        torch.nn.functional.scaled_dot_product_attention(
            *(one[:, :, first:last].float() for one in (query, key, value)), is_causal=True
        )
        for first, last in ((0, 100), (100, 356))
    ]
    expected = torch.cat(parts, dim=2).transpose(1, 2)
    torch.testing.assert_close(found.float().view_as(expected), expected, rtol=0.02, atol=0.02)
