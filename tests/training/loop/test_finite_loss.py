"""A NaN or infinite loss stops every rank before the update, and names the episodes of the batch."""

import weakref

import pytest
import torch
from helpers.training import two_ranks

from vlm_agent.errors import TrainingError
from vlm_agent.training.loop.finite_loss import FiniteLoss


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_only_the_batch_with_a_nan_loss_is_named(loss):
    watch = FiniteLoss()
    watch.watch(torch.tensor(0.5), ["fine[0:4]"])
    watch.watch(torch.tensor(float(loss)), ["one[0:3]", "two[3:5]"])
    with pytest.raises(TrainingError, match=rf"after 7 steps: {loss} from one\[0:3\], two\[3:5\]\. Nothing") as error:
        watch.check(7)
    assert "fine" not in str(error.value)


@pytest.mark.parametrize("norm", ["nan", "inf"])
def test_a_nan_gradient_stops_the_step_and_names_all_its_episodes(norm):
    watch = FiniteLoss()
    watch.watch(torch.tensor(0.5), ["one", "two"])
    watch.check(7, torch.tensor(3.0))
    watch.watch(torch.tensor(0.5), ["one", "two"])
    with pytest.raises(TrainingError, match=r"gradients are not finite after 7 steps.* read one, two\. "):
        watch.check(7, torch.tensor(float(norm)))


def test_a_nan_loss_with_its_nan_gradients_names_only_the_batch_with_that_loss():
    watch = FiniteLoss()
    watch.watch(torch.tensor(0.5), ["fine"])
    watch.watch(torch.tensor(float("nan")), ["one"])
    with pytest.raises(TrainingError, match=r"the loss is not finite after 2 steps: nan from one\."):
        watch.check(2, torch.tensor(float("nan")))


def test_finite_losses_pass_and_are_not_kept():
    watch = FiniteLoss()
    loss = torch.tensor(1e30, requires_grad=True) * 1
    graph = weakref.ref(loss)
    watch.watch(loss, ["large"])
    del loss
    assert graph() is None
    watch.check(0)
    watch.watch(torch.tensor(0.5), ["next"])
    with pytest.raises(TrainingError, match=r"after 1 steps.* read next\. "):
        watch.check(1, torch.tensor(float("nan")))


def test_half_precision_overflows_are_found():
    watch = FiniteLoss()
    watch.watch(torch.tensor(70000.0).half(), ["large"])
    with pytest.raises(TrainingError, match="inf from large"):
        watch.check(0)


def test_every_rank_stops_and_names_the_episodes_of_the_rank_with_the_nan(tmp_path):
    printed = two_ranks.run(
        tmp_path,
        """
from vlm_agent.errors import UserError
from vlm_agent.training.loop.finite_loss import FiniteLoss
watch = FiniteLoss()
watch.watch(torch.tensor(1.0), ["fine"])
watch.check(0)
watch.watch(torch.tensor(float("nan") if rank == 1 else 1.0), [f"of rank {rank}"])
try:
    watch.check(1)
except UserError as error:
    print(error)
""",
    )
    for out in printed:
        assert out.splitlines()[-1].startswith("the loss is not finite after 1 steps: nan from of rank 1. ")
