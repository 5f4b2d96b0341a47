"""A model in bfloat16 keeps exactly where its tokens are; depthwise convolutions compute as their weights are kept."""

import copy

import pytest
import torch
from helpers import tiny
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from vlm_agent.models.build import build_model
from vlm_agent.models.weights.precision import exact_depthwise, to_dtype
from vlm_agent.recipe.model import ModelRecipe

WORDS = tiny.tokenizer()


def frequencies(model: torch.nn.Module) -> list[torch.Tensor]:
    return [buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")]


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> tuple[AutoModelForCausalLM, dict]:
    """A language model in float16, as Llama 2 is published, and the recipe of it and an encoder."""
    folder = tmp_path_factory.mktemp("published")
    llama = AutoModelForCausalLM.from_config(AutoConfig.for_model(**tiny.LLAMA, vocab_size=len(WORDS)))
    llama.half().save_pretrained(folder / "llama")
    AutoModel.from_config(AutoConfig.for_model(**tiny.CONVNEXT)).save_pretrained(folder / "vision")
    parts = {"language_model": {"checkpoint": str(folder / "llama")}, "vision": {"checkpoint": str(folder / "vision")}}
    return llama, parts | {"screen_size": tiny.SCREEN, "visual_grid": tiny.GRID}


def test_a_composed_model_in_bfloat16_rotates_by_the_frequencies_of_float32(published):
    _, parts = published
    exact = frequencies(build_model(ModelRecipe(**parts), WORDS))
    kept = frequencies(build_model(ModelRecipe(**parts, dtype="bfloat16"), WORDS))
    assert kept
    for one, other in zip(exact, kept, strict=True):
        assert other.dtype == torch.float32
        assert torch.equal(one, other)


def test_its_weights_are_the_published_ones_rounded_once(published):
    llama, parts = published
    model = build_model(ModelRecipe(**parts, dtype="bfloat16"), WORDS)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    weights = model.language_model.state_dict()
    assert all(torch.equal(weight.bfloat16(), weights[name]) for name, weight in llama.state_dict().items())


def test_frequencies_in_bfloat16_would_be_wrong_by_more_than_a_radian_at_a_thousand_tokens():
    exact = 10_000 ** -(torch.arange(0, 128, 2) / 128)  # Llama 2's
    assert (1000 * (exact - exact.bfloat16().float())).abs().max() > 1
    assert ((exact - exact.bfloat16().float()) / exact).abs().max() < 0.004


def test_a_cast_changes_all_else_and_can_be_taken_back(published):
    _, parts = published
    model = build_model(ModelRecipe(**parts), WORDS)
    before = [buffer.clone() for buffer in frequencies(model)]
    model = to_dtype(to_dtype(model, torch.bfloat16), torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(before, frequencies(model), strict=True))


def depthwise() -> torch.nn.Conv2d:
    torch.manual_seed(0)
    return torch.nn.Conv2d(6, 6, 7, padding=3, groups=6)


def test_in_mixed_precision_a_depthwise_convolution_is_that_of_float32_and_others_are_not():
    plain, exact = depthwise(), depthwise()
    exact_depthwise(exact)
    pixels = torch.randn(2, 6, 9, 11)
    results = []
    for convolution in (plain, exact, copy.deepcopy(exact)):
        convolution.zero_grad()
        seen = pixels.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=convolution is not plain):
            output = convolution(seen)
        output.square().sum().backward()
        results.append([output, seen.grad, convolution.weight.grad, convolution.bias.grad])
    for one, *others in zip(*results, strict=True):
        assert all(other.dtype == torch.float32 for other in others)
        assert all(torch.allclose(one, other, rtol=1e-5, atol=1e-5) for other in others)
    dense = torch.nn.Conv2d(6, 6, 3)
    exact_depthwise(dense)
    with torch.autocast("cpu", torch.bfloat16):
        assert dense(pixels).dtype == torch.bfloat16


def test_a_depthwise_convolution_kept_in_bfloat16_stays_there():
    convolution = depthwise().bfloat16()
    exact_depthwise(convolution)
    assert convolution(torch.randn(1, 6, 9, 9)).dtype == torch.bfloat16


def test_every_model_that_is_built_computes_its_depthwise_convolutions_so(published):
    model = build_model(ModelRecipe(**published[1]), WORDS)
    (first, *_) = [module for module in model.vision.modules() if getattr(module, "groups", 1) > 1]
    with torch.autocast("cpu", torch.bfloat16):
        assert first(torch.randn(1, first.in_channels, 8, 8)).dtype == torch.float32
