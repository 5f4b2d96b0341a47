"""The loss of a policy gradient, beside its formula and beside the cross entropy."""

import math

import pytest
import torch
from torch.nn import functional

from vlm_agent.models.loss import Policy, supervise

LOGITS = torch.tensor([[[2.0, 0.5, -1.0], [0.0, 1.0, 0.3], [1.0, 1.0, 1.0], [0.2, 0.1, 0.0]]])
LABELS = torch.tensor([[-100, 0, 2, 1]])
CLIP = (0.2, 0.28)


def loss(advantages, sampled, temperature=1.0, weights=None):
    hidden = LOGITS.clone().requires_grad_()
    columns = (torch.tensor([[0.0, *column]]) for column in (advantages, sampled))
    policy = Policy(*columns, temperature, CLIP)
    output = supervise(hidden, LABELS, lambda states: states, None, weights, policy=policy)
    output.loss.backward()
    output.loss = output.loss.detach()
    return output, hidden.grad


def own(temperature=1.0) -> list[float]:
    scores = torch.log_softmax(LOGITS[0, :3] / temperature, -1)
    return [float(scores[place, label]) for place, label in enumerate(LABELS[0, 1:])]


def test_the_gradient_at_the_sampler_is_that_of_the_weighted_cross_entropy():
    output, gradient = loss([1.0, -0.5, 2.0], own())
    hidden = LOGITS.clone().requires_grad_()
    losses = functional.cross_entropy(hidden[0, :3], LABELS[0, 1:], reduction="none")
    (losses * torch.tensor([1.0, -0.5, 2.0])).mean().backward()
    assert torch.allclose(gradient, hidden.grad, atol=1e-6)
    assert float(output.loss) == pytest.approx(-(1 - 0.5 + 2) / 3)
    assert int(output.clipped) == 0


@pytest.mark.parametrize(
    ("advantage", "ratio", "value"),
    [(1.0, 1.5, 1.28), (1.0, 0.5, 0.5), (-1.0, 1.5, -1.5), (-1.0, 0.5, -0.8), (1.0, 1.1, 1.1)],
)
def test_a_ratio_is_clipped_only_where_that_lowers_the_gain(advantage, ratio, value):
    sampled = [one - math.log(ratio) for one in own()]
    output, gradient = loss([advantage] * 3, sampled)
    assert float(output.loss) == pytest.approx(-value, rel=1e-5)
    is_clipped = value != pytest.approx(advantage * ratio)
    assert int(output.clipped) == 3 * is_clipped
    assert bool(gradient.abs().sum() < 1e-6) == is_clipped


def test_tokens_without_a_sampler_have_their_advantage_times_the_cross_entropy():
    output, gradient = loss([1.0, 0.0, 3.0], [math.nan] * 3)
    assert float(output.loss) == pytest.approx((-own()[0] - 3 * own()[2]) / 3)
    assert gradient.isfinite().all()
    assert not gradient[0, 1].any()


def test_the_temperature_divides_the_logits():
    output, _ = loss([1.0] * 3, own(0.5), temperature=0.5)
    assert float(output.loss) == pytest.approx(-1)
    assert output.token_losses.tolist() == pytest.approx([-one for one in own(0.5)])


def test_a_row_that_nothing_is_learned_of_has_neither_loss_nor_gradient():
    output, gradient = loss([0.0] * 3, own(), weights=torch.zeros(1, 4))
    assert float(output.loss) == 0
    assert not gradient.any()
