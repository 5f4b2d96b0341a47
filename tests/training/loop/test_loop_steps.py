"""The loop: the loss over accumulated batches and ranks, what a batch keeps on its way, and the learning rate."""

import math

import numpy as np
import pytest
import torch
from helpers.training import tiny_trainer, two_ranks
from helpers.training.packs import NextWord, pack
from helpers.training.tiny_trainer import CPU, STEPS

from vlm_agent.recipe.run import TrainingRecipe
from vlm_agent.training.engine import load
from vlm_agent.training.loop.optimizers import rate


class Weighted(NextWord):
    """Keeps what it is called with."""

    def __init__(self):
        super().__init__()
        self.totals = []

    def forward(self, input_ids, labels, loss_weights=None, num_items_in_batch=None):
        self.totals.append(num_items_in_batch)
        return super().forward(input_ids, labels, num_items_in_batch)


def weighted(row: dict, weight: float) -> dict:
    return row | {"loss_weights": torch.full(row["labels"].shape, weight)}


ROWS = [pack([("tap", [1, 2, 3])]), weighted(pack([("type", [4, 5])]), 0.25), pack([("tap", [1])])]
STREAM = ROWS * (4 * STEPS // len(ROWS))


def test_the_loss_is_normalised_by_the_weights_of_all_accumulated_batches(tmp_path):
    model = Weighted()
    tiny_trainer.train(tmp_path, stream=STREAM, model=model)
    assert [total.item() for total in model.totals[:8]] == [3 + 0.5 + 1 + 3] * 4 + [0.5 + 1 + 3 + 0.5] * 4
    assert model.totals[0].dtype == torch.float32


def test_the_loss_is_normalised_by_the_weights_of_all_ranks(tmp_path):
    printed = two_ranks.run(
        tmp_path,
        """
from helpers.training import tiny_trainer
from training.loop.test_loop_steps import STREAM, Weighted
model = Weighted()
tiny_trainer.train(folder, stream=STREAM, model=model)
print("totals", *(total.item() for total in model.totals[:4]))
""",
    )
    assert all("totals 7.5 7.5 5.0 5.0" in text for text in printed)


def test_two_ranks_train_the_weights_of_one_process(tmp_path):
    """Without dropout, which differs by rank."""
    two_ranks.run(
        tmp_path,
        """
from helpers.training import tiny_trainer
from helpers.training.packs import NextWord
model = NextWord()
model.dropout.p = 0.0
trained, _ = tiny_trainer.train(folder / "both", model=model)
torch.save(tiny_trainer.weights(trained), folder / f"weights-{rank}.pt")
""",
    )
    model = NextWord()
    model.dropout.p = 0.0
    alone = tiny_trainer.weights(tiny_trainer.train(tmp_path / "alone", model=model)[0])
    for rank in range(2):
        assert torch.allclose(torch.load(tmp_path / f"weights-{rank}.pt"), alone, atol=1e-6)


def test_ranks_meet_twice_in_a_step_beside_the_mean_of_gradients(tmp_path):
    """For the weight of the loss; and for whether values are finite, a signal and the age of the newest checkpoint."""
    printed = two_ranks.run(
        tmp_path,
        """
from helpers.training import tiny_trainer
from torch import distributed

calls = []
for name in ("all_reduce", "broadcast_object_list", "all_gather_object", "barrier"):
    genuine = getattr(distributed, name)
    setattr(distributed, name, lambda *a, to=calls, name=name, call=genuine, **b: (to.append(name), call(*a, **b))[1])
steps = []
begin = [tiny_trainer.At(step, lambda: steps.append(len(calls))) for step in range(tiny_trainer.STEPS)]
tiny_trainer.train(folder, *begin, save_steps=None, save_seconds=3600, log_steps=1000)
print("calls", *calls[steps[2] : steps[3]], *calls[steps[3] : steps[4]])
""",
    )
    assert all("calls" + 4 * " all_reduce" in text for text in printed)


def test_gradients_are_clipped_after_they_are_measured(tmp_path):
    loose, _ = tiny_trainer.train(tmp_path / "loose", max_grad_norm=1e9)
    tight, _ = tiny_trainer.train(tmp_path / "tight", max_grad_norm=1e-9)
    assert loose.lines[0]["grad_norm"] == tight.lines[0]["grad_norm"] > 0.01
    moved = (tiny_trainer.weights(tight) - NextWord().table.weight).abs().max()
    assert moved < 0.1 * (tiny_trainer.weights(loose) - NextWord().table.weight).abs().max()


def test_loss_weights_keep_their_dtype_and_arrays_stay_on_the_host():
    bounds = np.array([0, 4])
    (batch,) = load([weighted(ROWS[0], 0.3) | {"cu_seqlens": bounds}], [0], 0, CPU)
    assert (batch["loss_weights"].dtype, batch["loss_weights"][0, 0].item()) == (torch.float32, pytest.approx(0.3))
    assert batch["cu_seqlens"] is bounds


@pytest.mark.parametrize(
    ("schedule", "middle", "last"),
    [
        ("constant", 1, 1),
        ("linear", 0.5, 1 / 16),
        ("trapezoid", 1, 1 / 4),
        ("cosine", 0.5, 0.5 * (1 - math.cos(math.pi / 16))),
    ],
)
def test_the_rate_rises_in_the_warm_up_and_then_follows_the_schedule(schedule, middle, last):
    training = TrainingRecipe(steps=20, warmup_steps=4, schedule=schedule)
    rates = [rate(training, done, 20) for done in range(20)]
    assert rates[:5] == [0, 0.25, 0.5, 0.75, 1]
    assert (rates[12], rates[19]) == (pytest.approx(middle), pytest.approx(last))
