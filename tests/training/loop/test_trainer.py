"""The normalisation of the loss over accumulated batches and ranks."""

import torch
from helpers import two_ranks
from helpers.packs import pack

from vlm_agent.training.loop.meter import Meter
from vlm_agent.training.loop.trainer import AgentTrainer

CPU = torch.device("cpu")


def trainer() -> AgentTrainer:
    """Without model and arguments."""
    bare = AgentTrainer.__new__(AgentTrainer)
    bare.meter = Meter(CPU, None, None)
    return bare


def weighted(row: dict, weight: float) -> dict:
    return row | {"loss_weights": torch.full(row["labels"].shape, weight)}


ROWS = [pack([("tap", [1, 2, 3])]), weighted(pack([("type", [4, 5])]), 0.25), pack([("tap", [1])])]


def test_the_loss_is_normalised_by_the_weights_of_all_accumulated_batches():
    source = iter(ROWS)
    batches, weight = trainer().get_batch_samples(source, 2, CPU)
    assert batches == ROWS[:2]
    assert (weight.item(), weight.dtype) == (3.5, torch.float32)
    assert trainer().get_batch_samples(source, 2, CPU)[1].item() == 1  # the end of the stream


def test_the_loss_is_normalised_by_the_weights_of_all_ranks(tmp_path):
    printed = two_ranks.run(
        tmp_path,
        """
from training.loop.test_trainer import CPU, ROWS, trainer
from vlm_agent.training.loop import ranks
print("weight", trainer().get_batch_samples(iter(ROWS[ranks.number() :]), 1, CPU)[1].item())
""",
    )
    assert all("weight 3.5" in text for text in printed)
