"""Fused norms, SwiGLU and rotary embedding, against those of transformers."""

import logging
import sys

import pytest
import torch
from helpers import tiny
from helpers.models import families
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from transformers import AutoModel, PixtralVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VLAttention,
    Qwen2_5_VLRMSNorm,
    Qwen2_5_VLTextConfig,
    Qwen2MLP,
)

from vlm_agent.models import fused
from vlm_agent.models.fused import OnGpu, fuse, gated_mlp, normalise

NAMES = (*families.NAMES, families.QWEN_VL_2023)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def is_fused(module) -> bool:
    return getattr(vars(module).get("forward"), "__func__", None) in (normalise, gated_mlp)


def gradients(module, x, autocast=False):
    """The output, and the gradients of the input and of the weights."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = module(x)
    output.backward(torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output))
    return output.detach(), x.grad, *(weight.grad for weight in module.parameters())


def assert_near(found, wanted, bound):
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert (one.float() - other.float()).norm() <= bound * other.float().norm()


def norm(dtype):
    torch.manual_seed(0)
    module = Qwen2_5_VLRMSNorm(32).to(dtype)
    torch.nn.init.normal_(module.weight)
    return module


@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("weight", [torch.float32, torch.bfloat16], ids=str)
@DTYPES
def test_a_norm_gives_the_same_bits_and_near_gradients(dtype, weight, autocast):
    """In bfloat16 transformers' gradients are rounded between its operations, and ours once."""
    x = (3 * torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(1))).to(dtype)
    own, ours = norm(weight), norm(weight)
    fuse(ours)
    wanted, found = gradients(own, x, autocast), gradients(ours, x, autocast)
    assert is_fused(ours)
    assert torch.equal(found[0], wanted[0])
    assert_near(found, wanted, 1e-6 if dtype == weight == torch.float32 else 0.01)


@DTYPES
def test_the_kernel_of_a_gpu_computes_the_same_norm(dtype):
    x, module = torch.randn(7, 32).to(dtype), norm(dtype)
    kernel = functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)
    assert_near([kernel], [module(x)], 1e-6 if dtype == torch.float32 else 0.01)


@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@DTYPES
def test_an_mlp_gives_the_same_bits_and_near_gradients(dtype, autocast):
    torch.manual_seed(0)
    own = Qwen2MLP(Qwen2_5_VLTextConfig(hidden_size=32, intermediate_size=48)).to(dtype)
    ours = Qwen2MLP(own.config).to(dtype)
    ours.load_state_dict(own.state_dict())
    fuse(ours)
    x = torch.randn(2, 7, 32).to(dtype)
    wanted, found = gradients(own, x, autocast), gradients(ours, x, autocast)
    assert is_fused(ours)
    assert torch.equal(found[0], wanted[0])
    assert_near(found, wanted, 1e-6 if dtype == torch.float32 and not autocast else 0.01)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_and_the_gradients_of_every_family_are_those_of_transformers(name, checkpointing):
    found = []
    for own in (False, True):
        given = families.adapted(name)
        base = given.model.get_base_model()
        if name in ("llama_vit", families.QWEN_VL_2023):  # built without its family
            fuse(base)
        layers = [module for module in base.modules() if is_fused(module)]
        assert {vars(layer)["forward"].__func__ for layer in layers} == {normalise, gated_mlp}
        for layer in layers if own else ():
            del vars(layer)["forward"]
        if checkpointing:
            given.model.activation_checkpointing_enable()
        loss = given.model.train()(**given.row(given.sentences.build(tiny.episode()))).loss
        found.append(families.gradients(given.model, loss) | {"loss": loss.detach()})
    ours, wanted = found
    assert ours.keys() == wanted.keys()
    for weight in wanted:
        assert (ours[weight] - wanted[weight]).norm() <= 1e-4 * wanted[weight].norm() + 1e-7, weight


def test_a_norm_and_an_mlp_save_their_inputs_alone():
    module, mlp = norm(torch.float32), Qwen2MLP(Qwen2_5_VLTextConfig(hidden_size=32, intermediate_size=48))
    mlp.requires_grad_(False)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one.numel()) or one, lambda one: one):
        x = torch.randn(10, 32, requires_grad=True)
        normalise(module, x)
        gated_mlp(mlp, x)
    weights = [32, 48 * 32, 48 * 32, 48 * 32]
    for size in weights:
        saved.remove(size)
    assert sorted(saved) == [10, 320, 480, 480]


def compiled_by(counter, function):
    wrapped = OnGpu(function)
    wrapped._compiled = torch.compile(function, backend=counter, dynamic=True)
    return wrapped


@pytest.fixture
def counter():
    torch._dynamo.reset()
    yield CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


def test_rows_of_any_length_share_a_graph_of_rotary_embedding(counter):
    rotary = sys.modules[Qwen2_5_VLAttention.__module__].apply_rotary_pos_emb
    function = getattr(rotary, "function", rotary)
    wrapped = compiled_by(counter, function)
    for length in (33, 12, 700, 5, 64):
        query, key = (torch.randn(1, length, heads, 16, requires_grad=True).transpose(1, 2) for heads in (4, 2))
        angles = torch.randn(1, length, 16)
        wanted = function(query, key, angles.cos(), angles.sin())
        with torch.autocast("cpu", torch.bfloat16):
            found = wrapped.compiled(query, key, angles.cos(), angles.sin())
        assert_near(found, wanted, 1e-6)
        sum(one.sum() for one in found).backward()
    assert counter.frame_count <= 2


def test_rows_of_any_length_share_a_graph_of_swiglu_and_of_its_gradient(counter):
    for function, inputs in ((fused._gated.function, 2), (fused._gate_gradients.function, 3)):
        wrapped = compiled_by(counter, function)
        for length in (33, 12, 700, 5, 64):
            tensors = [torch.randn(1, length, 48) for _ in range(inputs)]
            assert torch.equal(torch.cat([*wrapped.compiled(*tensors)]), torch.cat([*function(*tensors)]))
    assert counter.frame_count <= 4


def test_a_function_that_cannot_be_compiled_runs_as_it_is_and_a_line_says_so(caplog):
    def plus(one):
        return one + 1

    def broken(*_):
        raise TorchDynamoException("no compiler\nat line 3")

    wrapped = OnGpu(plus)
    wrapped._compiled = broken
    with caplog.at_level(logging.WARNING):
        assert [wrapped.compiled(torch.zeros(1)).item() for _ in range(2)] == [1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "plus runs without torch.compile, which is slower: no compiler"
    ]


def test_a_rotary_embedding_takes_the_options_that_some_towers_call_it_with():
    config = PixtralVisionConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=32)
    tower = AutoModel.from_config(config).eval()
    pixels = torch.rand(1, 3, 32, 32)
    wanted = tower(pixels).last_hidden_state
    fuse(tower)
    assert_near(tower(pixels).last_hidden_state, wanted, 1e-6)


def test_on_a_cpu_nothing_is_compiled_and_a_second_call_wraps_nothing_again():
    model = families.family("qwen2_5_vl").model
    home = sys.modules[Qwen2_5_VLAttention.__module__]
    before = (home.apply_rotary_pos_emb, home.apply_rotary_pos_emb_vision)
    assert all(isinstance(one, OnGpu) for one in before)
    fuse(model)
    assert (home.apply_rotary_pos_emb, home.apply_rotary_pos_emb_vision) == before
    assert all(one._compiled is None for one in (*before, fused._gated, fused._gate_gradients))
