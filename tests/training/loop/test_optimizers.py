"""Two optimisers act as one."""

import pytest
import torch
from helpers import tiny
from helpers.training import two_ranks
from helpers.training.muon_moves import moved
from pydantic import ValidationError
from torch.optim.lr_scheduler import LambdaLR
from transformers import T5Config, T5ForConditionalGeneration

from vlm_agent.recipe.run import OptimizerRecipe
from vlm_agent.training.loop.optimizers import Muon, optimizer_of, orthogonal


@pytest.fixture
def model():
    return tiny.model(300, visual_positions=True)


def muon(model, weight_decay=0.0):
    return optimizer_of(model, OptimizerRecipe(name="muon", learning_rate=1e-3, weight_decay=weight_decay))


def step(model, optimizer) -> None:
    optimizer.zero_grad()
    sum((parameter**2).sum() for parameter in model.parameters() if parameter.requires_grad).backward()
    optimizer.step()


def test_muon_takes_weight_matrices_and_adamw_the_rest(model):
    optimizer = muon(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, others = (
        {names[id(p)] for group in part.param_groups for p in group["params"]} for part in optimizer.parts
    )
    assert "language_model.model.layers.0.self_attn.q_proj.weight" in matrices
    assert "projector.linear.weight" in matrices
    assert {"language_model.model.embed_tokens.weight", "language_model.lm_head.weight"} <= others
    assert "projector.positions" in others
    assert "language_model.model.norm.weight" in others
    assert matrices | others == set(names.values())
    assert not matrices & others


def test_muon_leaves_the_embeddings_of_a_t5_to_adamw():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    t5 = T5ForConditionalGeneration(T5Config(**sizes))
    optimizer = muon(t5)
    names = {id(parameter): name for name, parameter in t5.named_parameters()}
    matrices = {names[id(p)] for group in optimizer.parts[0].param_groups for p in group["params"]}
    assert "encoder.block.0.layer.0.SelfAttention.q.weight" in matrices
    assert not [name for name in matrices if "shared" in name or "relative_attention_bias" in name]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_betas_of_a_recipe_are_those_of_adamw(model, name):
    """The defaults are the values from before the key existed."""

    def betas(**keys) -> set[tuple[float, float]]:
        optimizer = optimizer_of(model, OptimizerRecipe(name=name, **keys))
        return {
            group["betas"]
            for part in getattr(optimizer, "parts", [optimizer])
            for group in part.param_groups
            if "betas" in group
        }

    assert betas() == {(0.9, 0.98)}
    assert betas(betas=[0.9, 0.95]) == {(0.9, 0.95)}
    with pytest.raises(ValidationError):
        OptimizerRecipe(betas=[0.9, 1.0])


def test_frozen_weights_are_not_optimised(model):
    model.vision.requires_grad_(False)
    before = [parameter.clone() for parameter in model.vision.parameters()]
    for optimizer in (optimizer_of(model, OptimizerRecipe(weight_decay=0.1)), muon(model, 0.1)):
        step(model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before, model.vision.parameters(), strict=True))


def test_a_model_without_matrices_to_train_still_trains(model):
    model.requires_grad_(False)
    model.language_model.model.norm.requires_grad_(True)
    before = model.language_model.model.norm.weight.clone()
    step(model, muon(model))
    assert not torch.equal(before, model.language_model.model.norm.weight)


def test_a_schedule_sets_both_rates_before_and_after_loading(model):
    optimizer = muon(model)
    scheduler = LambdaLR(optimizer, lambda count: 0.5**count)
    for expected in (1.0, 0.5, 0.25):
        assert [part.param_groups[0]["lr"] for part in optimizer.parts] == pytest.approx(
            [1e-2 * expected, 1e-3 * expected]
        )
        step(model, optimizer)
        scheduler.step()
        optimizer.load_state_dict(optimizer.state_dict())


def test_a_saved_optimizer_continues_bit_for_bit(model):
    weights = {name: value.clone() for name, value in model.state_dict().items()}

    def run(interrupted: bool) -> dict:
        model.load_state_dict(weights)
        optimizer = muon(model, 0.1)
        for number in range(4):
            if interrupted and number == 2:
                saved = optimizer.state_dict()
                optimizer = muon(model, 0.1)
                optimizer.load_state_dict(saved)
            step(model, optimizer)
        return {name: value.clone() for name, value in model.state_dict().items()}

    straight, resumed = run(False), run(True)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize("shape", [(8, 8), (24, 8), (8, 24), (1, 5)])
def test_muon_brings_every_singular_value_near_one(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.min() > 0.6 and values.max() < 1.3


@pytest.mark.parametrize(("dtype", "apart_at_most"), [(torch.float32, 0.02), (torch.bfloat16, 0.002)])
@pytest.mark.parametrize("shape", [(16, 6), (6, 16)])
def test_muon_steps_as_torchs_own_does_in_bfloat16(shape, dtype, apart_at_most):
    torch.manual_seed(0)
    start, gradients = torch.randn(shape), torch.randn(4, *shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = Muon([ours], 0.02, 0.1, dtype), torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1)
    for gradient in gradients:
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    moved, apart = (ours - start).norm(), (ours - theirs).norm()
    assert apart < apart_at_most * moved


def test_muon_takes_matrices_only():
    with pytest.raises(ValueError, match="needs matrices"):
        Muon([torch.nn.Parameter(torch.zeros(3))], 0.1, 0.0)


def test_ranks_share_muons_work_and_end_with_the_weights_of_one(tmp_path):
    lines = two_ranks.run(tmp_path, "from helpers.training.muon_moves import moved\nprint(*moved())")
    weights, calls = moved()
    assert [line.split()[0] for line in lines] == [weights] * 2
    assert sum(int(line.split()[1]) for line in lines) == calls == 12
    assert all(0 < int(line.split()[1]) < 12 for line in lines)
