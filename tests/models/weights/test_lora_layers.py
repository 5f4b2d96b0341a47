"""LoRA layers as this package runs them, against peft's own forward pass."""

from functools import partial

import pytest
import torch
from helpers.models import families
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vlm_agent.models.weights.lora_layers import fuse_lora

WIDTH, WIDE, RANK = 16, 24, 3


class Block(nn.Module):
    """q, k and v of one input; o of their sum. `fails`: an exception after q."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDE, bias=False)
        self.v_proj, self.o_proj = nn.Linear(WIDTH, WIDE), nn.Linear(WIDE, WIDTH)
        self.fails = False

    def forward(self, x, other=None):
        q = self.q_proj(x)
        if self.fails:
            raise KeyError("after q")
        k, v = self.k_proj(x if other is None else other), self.v_proj(x)
        return self.o_proj(functional.pad(q, (0, WIDE - WIDTH)) + k * v)


def adapted(dropout=0.0, **options):
    """peft's model, whose adapters do something."""
    torch.manual_seed(0)
    block = Block()
    block.requires_grad_(False)
    config = LoraConfig(
        r=RANK, lora_alpha=7, lora_dropout=dropout, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], **options
    )
    model = get_peft_model(block, config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    return model


def fused(*args, **options):
    model = adapted(*args, **options)
    fuse_lora(model)
    return model


def siblings_of(model):
    """Every group of layers, once."""
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
    return {id(group): group for group in (vars(layer)["forward"].args[1] for layer in layers)}.values()


def results(model, x, *others, autocast=False, run=lambda model, *inputs: model(*inputs)):
    """The output, and gradients of the input and of every weight that trains."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = run(model, x, *others)
    output.float().pow(2).sum().backward()
    return [output.detach(), x.grad, *(weight.grad for weight in model.parameters() if weight.requires_grad)]


def assert_equal_within_rounding(found, wanted, bound=1e-5):
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        scale = float(other.float().abs().max())
        assert torch.allclose(one.float(), other.float(), atol=bound * scale, rtol=bound)


@pytest.fixture
def x():
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_values_and_gradients_are_those_of_peft(x, dora):
    assert_equal_within_rounding(results(fused(use_dora=dora), x), results(adapted(use_dora=dora), x))


@pytest.mark.parametrize("frozen", [torch.float32, torch.bfloat16], ids=str)
def test_under_autocast_values_and_gradients_are_those_of_peft_within_two_percent(x, frozen):
    """Relative to the largest number of each tensor. peft rounds product, scaling and sum to bfloat16 one by one."""
    models = [fused(), adapted()]
    for model in models:
        for weight in model.parameters():
            weight.data = weight if weight.requires_grad else weight.to(frozen)
    found, wanted = (results(model, x.to(frozen), autocast=True) for model in models)
    assert found[0].dtype == torch.bfloat16
    assert_equal_within_rounding(found, wanted, bound=0.02)


def test_a_bfloat16_model_with_a_float32_adapter_computes_without_autocast_as_peft_does(x):
    models = [fused(), adapted()]
    for model in models:
        for weight in model.parameters():
            weight.data = weight if weight.requires_grad else weight.bfloat16()
    found, wanted = (results(model, x.bfloat16()) for model in models)
    assert_equal_within_rounding(found, wanted, bound=0.02)


def gradients(name, own, autocast=False, dtype=torch.float32):
    """The gradients of one step of a family's model behind its loss; `own`: not peft's forward pass."""
    given = families.adapted(name)
    for layer in given.model.modules() if not own else ():
        if isinstance(layer, LoraLayer):
            vars(layer).pop("forward", None)
    given.model.to(dtype)
    row = given.row(given.sentences.build(families.tiny.episode()))
    row = {key: one.to(dtype) if torch.is_tensor(one) and one.is_floating_point() else one for key, one in row.items()}
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = given.model.train()(**row).loss
    found = families.gradients(given.model, loss)
    return torch.cat([loss.detach()[None], *(one.flatten() for one in found.values())])


@pytest.mark.parametrize("name", families.NAMES)
def test_losses_and_gradients_of_every_family_are_those_of_peft(name):
    """In float64, because the rounding of float32 depends on the processor. In bfloat16 both differ from float32 by
    chance, and ours by at most twice what peft's differ."""
    found, wanted = (gradients(name, own, dtype=torch.float64) for own in (True, False))
    assert (found - wanted).norm() < 1e-12 * wanted.norm()
    exact = gradients(name, own=False)
    ours, peft_way = ((gradients(name, own, autocast=True) - exact).norm() for own in (True, False))
    assert ours < 2 * peft_way


def test_layers_that_read_one_input_share_a_mask_that_keeps_the_expected_share(x):
    rate, seen = 0.25, []
    model = fused(dropout=rate).train()
    base = model.get_base_model()
    layers = [base.q_proj, base.k_proj, base.v_proj]
    base.o_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    many = torch.ones(400, WIDTH)
    torch.manual_seed(3)
    model(many)
    torch.manual_seed(3)
    dropped = functional.dropout(many, rate)
    q, k, v = (
        layer.base_layer(many) + layer.scaling["default"] * layer.lora_B["default"](layer.lora_A["default"](dropped))
        for layer in layers
    )
    assert torch.allclose(seen[0], functional.pad(q, (0, WIDE - WIDTH)) + k * v, atol=1e-5)
    assert abs(float((dropped > 0).float().mean()) - (1 - rate)) < 0.02


def test_a_checkpointed_layer_recomputes_the_same_mask_and_leaves_no_tensor(x):
    model = fused(dropout=0.5).train()
    torch.manual_seed(4)
    wanted = results(model, x)
    torch.manual_seed(4)
    found = results(model, x, run=partial(checkpoint, use_reentrant=False))
    assert_equal_within_rounding(found, wanted, bound=1e-6)
    assert all(group.input is None and not group.waiting for group in siblings_of(model))


def test_a_layer_with_another_input_computes_its_own(x):
    other = torch.randn(x.shape)
    assert_equal_within_rounding(results(fused(), x, other), results(adapted(), x, other))


def test_an_exception_between_two_layers_leaves_no_tensor_and_the_next_call_works(x):
    model = fused()
    model.get_base_model().fails = True
    with pytest.raises(KeyError):
        model(x)
    assert all(group.input is None and not group.waiting for group in siblings_of(model))
    model.get_base_model().fails = False
    assert_equal_within_rounding(results(model, x), results(adapted(), x))


def test_a_disabled_a_merged_and_a_second_adapter_run_as_in_peft(x):
    ours, plain = fused(), adapted()
    for model in (ours, plain):
        torch.manual_seed(5)
        model.add_adapter("second", LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    with ours.disable_adapter(), plain.disable_adapter():
        assert torch.equal(ours(x), plain(x))
    for model in (ours, plain):
        model.base_model.set_adapter(["default", "second"])
    assert torch.equal(ours(x), plain(x))
    for model in (ours, plain):
        model.base_model.set_adapter("second")
    assert torch.allclose(ours(x), plain(x), atol=1e-5)
    for model in (ours, plain):
        model.merge_adapter()
    assert torch.equal(ours(x), plain(x))


def test_the_names_and_values_that_are_saved_are_those_of_peft():
    ours, plain = fused().state_dict(), adapted().state_dict()
    assert list(ours) == list(plain)
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_partitioned_weights_are_read_through_their_modules_alone(x):
    """Under ZeRO-3 the weights of another layer are empty while a layer runs; the marks of DeepSpeed alone stand in."""
    model = fused(dropout=0.5).train()
    torch.manual_seed(6)
    wanted = results(model, x)
    called = []
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            for part in (layer.lora_A["default"], layer.lora_B["default"]):
                part.weight.ds_id = 0
                part.register_forward_hook(lambda *_: called.append(1))
    torch.manual_seed(6)
    assert_equal_within_rounding(results(model, x), wanted)
    assert len(called) == 2 * 4


def test_a_second_call_changes_nothing():
    model = fused()
    before = [vars(layer).get("forward") for layer in model.modules()]
    fuse_lora(model)
    assert [vars(layer).get("forward") for layer in model.modules()] == before
