"""A NaN or infinite loss stops every rank before the update, and names the episodes of the batch."""

import pytest
import torch
from helpers.training import two_ranks

from vlm_agent.errors import TrainingError
from vlm_agent.training.loop.finite_loss import check_finite


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_only_the_batch_with_a_nan_loss_is_named(loss):
    seen = [(torch.tensor(0.5), ["fine[0:4]"]), (torch.tensor(float(loss)), ["one[0:3]", "two[3:5]"])]
    with pytest.raises(TrainingError, match=rf"after 7 steps: {loss} from one\[0:3\], two\[3:5\]\. Nothing") as error:
        check_finite(seen, 7)
    assert "fine" not in str(error.value)


@pytest.mark.parametrize("norm", ["nan", "inf"])
def test_a_nan_gradient_stops_the_step_and_names_all_its_episodes(norm):
    seen = [(torch.tensor(0.5), ["one", "two"])]
    check_finite(seen, 7, torch.tensor(3.0))
    with pytest.raises(TrainingError, match=r"gradients are not finite after 7 steps.* read one, two\. "):
        check_finite(seen, 7, torch.tensor(float(norm)))


def test_a_nan_loss_with_its_nan_gradients_names_only_the_batch_with_that_loss():
    seen = [(torch.tensor(0.5), ["fine"]), (torch.tensor(float("nan")), ["one"])]
    with pytest.raises(TrainingError, match=r"the loss is not finite after 2 steps: nan from one\."):
        check_finite(seen, 2, torch.tensor(float("nan")))


def test_half_precision_overflows_are_found():
    check_finite([(torch.tensor(1e30), ["large"])], 0)
    with pytest.raises(TrainingError, match="inf from large"):
        check_finite([(torch.tensor(70000.0).half(), ["large"])], 0)


def test_every_rank_stops_and_names_the_episodes_of_the_rank_with_the_nan(tmp_path):
    printed = two_ranks.run(
        tmp_path,
        """
from vlm_agent.errors import UserError
from vlm_agent.training.loop.finite_loss import check_finite
check_finite([(torch.tensor(1.0), ["fine"])], 0)
try:
    check_finite([(torch.tensor(float("nan") if rank == 1 else 1.0), [f"of rank {rank}"])], 1)
except UserError as error:
    print(error)
""",
    )
    for out in printed:
        assert out.splitlines()[-1].startswith("the loss is not finite after 1 steps: nan from of rank 1. ")
