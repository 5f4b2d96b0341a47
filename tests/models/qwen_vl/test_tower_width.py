"""The MLP of Qwen2.5-VL's tower at a padded width has the results of its own width, and its files."""

import copy

import pytest
import torch
from helpers import tiny
from helpers.models import families, tiny_qwen
from peft import PeftModel

from vlm_agent.models.qwen_vl import vision_kernels
from vlm_agent.models.qwen_vl.vision_kernels import pad_width
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.merge import float32_arithmetic
from vlm_agent.recipe.model import Lora, TrainedParts

WIDTH, PADDED, HIDDEN = 21, 24, 16


@pytest.fixture
def model(monkeypatch):
    """A Qwen2.5-VL whose tower has MLPs of an odd width."""
    config = tiny_qwen.CONFIGS["qwen2_5_vl"]
    odd = config | {"vision_config": config["vision_config"] | {"intermediate_size": WIDTH}}
    monkeypatch.setitem(tiny_qwen.CONFIGS, "qwen2_5_vl", odd)
    return families.family("qwen2_5_vl").model.requires_grad_(False)


def mlps(model: torch.nn.Module) -> list:
    return [module for module in model.modules() if type(module).__name__ == "Qwen2_5_VLMLP"]


def widths(mlp) -> tuple[int, int]:
    """The width that the last product of the MLP reads, and that of its result."""
    seen = []
    hook = mlp.down_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[-1]))
    result = mlp(torch.randn(3, HIDDEN, dtype=mlp.gate_proj.weight.dtype))
    hook.remove()
    return seen[0], result.shape[-1]


def padded(model: torch.nn.Module) -> torch.nn.Module:
    for mlp in mlps(model):
        pad_width(mlp)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients_of_the_input_equal_those_of_the_own_width(model, dtype):
    model.to(dtype)
    states = torch.randn(7, HIDDEN, dtype=dtype)
    for mlp in mlps(model):
        one, other = (states.clone().requires_grad_() for _ in range(2))
        expected = mlp(one)
        pad_width(mlp)
        assert widths(mlp) == (PADDED, HIDDEN)
        result = mlp(other)
        result.float().square().sum().backward()
        expected.float().square().sum().backward()
        bound = 1e-6 if dtype == torch.float32 else 1e-2
        assert torch.allclose(result, expected, atol=bound, rtol=bound)
        assert torch.allclose(one.grad, other.grad, atol=bound, rtol=bound)


def test_autocast_computes_at_the_padded_width(model):
    mlp, states = mlps(model)[0], torch.randn(5, HIDDEN)
    with torch.autocast("cpu", torch.bfloat16):
        expected = mlp(states)
        pad_width(mlp)
        assert torch.allclose(mlp(states), expected, atol=1e-2, rtol=1e-2)


def test_a_training_row_has_the_same_losses_and_gradients(model):
    """LoRA on the language model and a projector trained in full, behind a frozen tower."""
    family = families.family("qwen2_5_vl")
    row = family.row(*(family.sentences.build(tiny.episode(number)) for number in range(2)))
    chosen = choose_trained_weights(model, TrainedParts(projector="full"), Lora(rank=2, dropout=0.0)).eval()
    plain = chosen(**row)
    expected = families.gradients(chosen, plain.loss)
    assert widths(mlps(padded(chosen))[0]) == (PADDED, HIDDEN)
    output = chosen(**row)
    assert torch.allclose(output.token_losses, plain.token_losses, atol=1e-5)
    found = families.gradients(chosen, output.loss)
    assert found.keys() == expected.keys()
    assert any("merger" in name for name in found)
    for name, gradient in found.items():
        assert torch.allclose(gradient, expected[name], atol=1e-5, rtol=1e-3), name


def test_names_shapes_counts_and_saved_files_stay_and_load(model, tmp_path):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    count = sum(parameter.numel() for parameter in model.parameters())
    padded(model)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    model.save_pretrained(tmp_path)
    saved = type(model).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(before[name], saved[name]) for name in before)
    assert saved["model.visual.blocks.0.mlp.down_proj.weight"].shape == (HIDDEN, WIDTH)


def test_weights_loaded_into_a_padded_tower_are_those_it_computes_with(model):
    mlp, states = padded(model) and mlps(model)[0], torch.randn(5, HIDDEN)
    other = copy.deepcopy(mlp)
    mlp.load_state_dict({name: value * 2 for name, value in mlp.state_dict().items()})
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(2)
    assert widths(mlp) == (PADDED, HIDDEN)
    assert widths(other) == (WIDTH, HIDDEN)  # a copy is padded at its own first pass
    assert torch.allclose(mlp(states), other(states), atol=1e-6)


def test_a_padded_tower_that_moves_to_another_dtype_reads_its_new_weights_and_is_padded_again(model):
    mlp = padded(model) and mlps(model)[0]
    mlp.bfloat16()
    assert widths(mlp) == (WIDTH, HIDDEN)
    pad_width(mlp)
    assert widths(mlp) == (PADDED, HIDDEN)
    assert {tensor.dtype for tensor in mlp.gate_proj.padded.values()} == {torch.bfloat16}


def test_memory_is_not_doubled(model):
    for mlp in mlps(padded(model)):
        for layer in (mlp.gate_proj, mlp.up_proj, mlp.down_proj):
            for name, weight in layer.named_parameters():
                assert weight.untyped_storage().data_ptr() == layer.padded[name].untyped_storage().data_ptr()


def test_a_tower_padded_in_inference_mode_can_take_part_in_training(model):
    mlp, states = mlps(model)[0], torch.randn(5, HIDDEN, requires_grad=True)
    with torch.inference_mode():
        pad_width(mlp)
    mlp(states).sum().backward()
    assert states.grad.abs().sum() > 0


@pytest.mark.parametrize("trained", ["lora", "full"])
def test_a_tower_that_trains_keeps_its_width_and_its_gradients(model, trained):
    chosen = choose_trained_weights(model, TrainedParts(vision=trained), Lora(rank=2, dropout=0.0))
    assert isinstance(chosen, PeftModel)
    # peft keeps a frozen copy of a part that trains in full.
    mlp = next(mlp for mlp in mlps(padded(chosen)) if any(weight.requires_grad for weight in mlp.parameters()))
    assert widths(mlp) == (WIDTH, HIDDEN)
    mlp(torch.randn(5, HIDDEN)).square().sum().backward()
    assert all(weight.grad is not None for weight in mlp.parameters() if weight.requires_grad)


def test_weights_that_begin_to_train_leave_their_padding(model):
    mlp = padded(model) and mlps(model)[0]
    mlp.requires_grad_(True)
    assert widths(mlp) == (WIDTH, HIDDEN)
    mlp(torch.randn(5, HIDDEN)).square().sum().backward()
    assert all(weight.grad.shape == weight.shape for weight in mlp.parameters())


def test_partitioned_weights_are_not_padded(model):
    """Under ZeRO-3 DeepSpeed marks every parameter with its identity."""
    mlp = mlps(model)[0]
    mlp.up_proj.weight.ds_id = 7
    pad_width(mlp)
    assert widths(mlp) == (WIDTH, HIDDEN)


def test_arithmetic_in_float32_reads_the_weights_of_a_padded_tower(model):
    mlp, states = mlps(model.to(torch.bfloat16))[0], torch.randn(5, HIDDEN)
    expected = copy.deepcopy(mlp).float()(states)
    pad_width(mlp)
    with float32_arithmetic(mlp):
        pad_width(mlp)
        assert torch.allclose(mlp(states), expected, atol=1e-6)
    assert widths(mlp) == (PADDED, HIDDEN)


def test_a_gpu_pads_before_the_first_pass_and_a_cpu_does_not(model, monkeypatch):
    padded_mlps = []
    monkeypatch.setattr(vision_kernels, "pad_width", padded_mlps.append)
    mlp = mlps(model)[0]
    mlp(torch.randn(5, HIDDEN))
    assert padded_mlps == []
    monkeypatch.setattr(torch.nn.Parameter, "is_cuda", True)
    mlp(torch.randn(5, HIDDEN))
    assert padded_mlps == [mlp]


@pytest.mark.parametrize("name", tiny_qwen.FAMILIES)
def test_towers_of_even_widths_have_no_hook(name):
    assert not any(module._forward_pre_hooks for module in families.shared(name).model.vision.modules())
