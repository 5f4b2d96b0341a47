"""The normalisation of the loss over accumulated batches and ranks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.training import two_ranks
from helpers.training.packs import pack

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


def test_loss_weights_keep_their_dtype_under_deepspeed():
    """Trainer's own method casts them to that of the weights, so that 0.3 would count as 0.30078125."""
    bare = trainer()
    bare.args, bare.is_deepspeed_enabled = SimpleNamespace(device=CPU), True
    bounds = np.array([0, 4])
    moved = bare._prepare_inputs(weighted(ROWS[0], 0.3) | {"cu_seqlens": bounds})
    assert (moved["loss_weights"].dtype, moved["loss_weights"][0, 0].item()) == (torch.float32, pytest.approx(0.3))
    assert moved["cu_seqlens"] is bounds
