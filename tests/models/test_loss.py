"""The loss: weights, its normalisation over batches, and labels beside inputs or beside outputs."""

import pytest
import torch
from helpers import tiny
from helpers.models import families
from torch import nn
from torch.nn import functional

from vlm_agent.models.loss import Targets, supervise
from vlm_agent.sentences import IGNORED, Sentence

WIDTH, WORDS = 6, 9


@pytest.fixture
def head() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WORDS)


HIDDEN = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([[IGNORED, 3, IGNORED, 4, 5], [IGNORED, IGNORED, 6, 7, IGNORED]])
WEIGHTS = torch.tensor([[9.0, 0.5, 9.0, 2.0, 0.0], [9.0, 9.0, 1.0, 0.25, 9.0]])


def losses(head: nn.Linear) -> torch.Tensor:
    """The losses of LABELS, each predicted from the position before it."""
    places = [(0, 1), (0, 3), (0, 4), (1, 2), (1, 3)]
    return torch.stack([functional.cross_entropy(head(HIDDEN[b, i - 1]), LABELS[b, i]) for b, i in places])


def test_the_loss_is_the_weighted_mean_over_supervised_tokens(head):
    output = supervise(HIDDEN, LABELS, head, None, WEIGHTS)
    weights = torch.tensor([0.5, 2.0, 0.0, 1.0, 0.25])
    assert output.loss.item() == pytest.approx(((losses(head) * weights).sum() / weights.sum()).item())
    assert torch.allclose(output.token_losses, losses(head))


def test_weights_of_1_change_no_bit(head):
    plain, weighted = supervise(HIDDEN, LABELS, head, None), supervise(HIDDEN, LABELS, head, None, torch.ones(2, 5))
    assert torch.equal(plain.loss, weighted.loss)
    assert torch.equal(plain.token_losses, weighted.token_losses)
    items = torch.tensor(11.0)
    one, other = supervise(HIDDEN, LABELS, head, items), supervise(HIDDEN, LABELS, head, torch.tensor(11))
    assert torch.equal(one.loss, other.loss)


def test_losses_of_batches_add_up_to_the_weighted_mean_over_all(head):
    whole = supervise(HIDDEN, LABELS, head, None, WEIGHTS)
    items = torch.tensor(3.75)
    parts = [supervise(HIDDEN[[row]], LABELS[[row]], head, items, WEIGHTS[[row]]) for row in (0, 1)]
    assert sum(part.loss for part in parts).item() == pytest.approx(whole.loss.item())
    assert sum(part.share for part in parts).item() == pytest.approx(1)


@pytest.mark.parametrize("weights", [None, torch.zeros(2, 5)], ids=["no label", "no weight"])
def test_a_batch_without_targets_has_a_loss_of_0(head, weights):
    labels = LABELS if weights is not None else torch.full_like(LABELS, IGNORED)
    assert supervise(HIDDEN, labels, head, None, weights).loss == 0
    assert supervise(HIDDEN, labels, head, torch.tensor(0), weights).loss == 0


def test_labels_beside_the_outputs_are_not_shifted(head):
    shifted = torch.cat([LABELS[:, 1:], torch.full((2, 1), IGNORED)], dim=1)
    weights = torch.cat([WEIGHTS[:, 1:], torch.ones(2, 1)], dim=1)
    beside_inputs = supervise(HIDDEN, LABELS, head, None, WEIGHTS)
    beside_outputs = supervise(HIDDEN, shifted, head, None, weights, shift=False)
    assert torch.equal(beside_inputs.loss, beside_outputs.loss)
    batch = {"labels": LABELS, "kinds": LABELS, "loss_weights": WEIGHTS}
    one, other = Targets.of(batch), Targets.of({"shift_labels": shifted, "kinds": shifted, "loss_weights": weights})
    assert one.total_weight == other.total_weight == 3.75


@pytest.mark.parametrize("name", families.NAMES)
def test_every_family_weighs_the_tokens_of_a_packed_row(name):
    family = families.shared(name)
    plain, weighted = (family.sentences.build(tiny.episode()) for _ in range(2))
    weighted.weights = [0.5 if at % 2 else 2.0 for at in range(len(weighted))]
    row, other = family.row(plain, plain), family.row(plain, weighted)
    assert "loss_weights" not in row
    expected = family.model(**row)
    found = family.model(**other)
    weights = other["loss_weights"][0, 1:][other["labels"][0, 1:] != IGNORED]
    assert torch.equal(found.token_losses, expected.token_losses)
    assert found.loss.item() == pytest.approx(((found.token_losses * weights).sum() / weights.sum()).item(), rel=1e-5)


def test_a_role_that_is_unknown_and_a_negative_weight_are_refused():
    with pytest.raises(ValueError, match="dream"):
        Sentence().learn([1], role="dream")
    with pytest.raises(ValueError, match="must be 0 or greater"):
        Sentence().learn([1], weight=-1)
