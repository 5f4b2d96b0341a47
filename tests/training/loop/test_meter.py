"""The figures of a log line, over batches and ranks."""

from types import SimpleNamespace

import pytest
import torch
from helpers.training import two_ranks
from helpers.training.packs import FLOPS, pack

from vlm_agent.models.cost import TrainingFlops
from vlm_agent.training.loop.meter import Meter


def meter(flops: TrainingFlops | None = FLOPS, peak_flops: float | None = None) -> Meter:
    return Meter(torch.device("cpu"), flops, peak_flops)


def output(*losses: float, element_loss: float | None = None) -> SimpleNamespace:
    element = None if element_loss is None else torch.tensor(element_loss)
    return SimpleNamespace(loss=torch.tensor(sum(losses)), token_losses=torch.tensor(losses), element_loss=element)


def test_the_loss_of_each_kind_is_the_mean_over_its_tokens_in_all_batches():
    counts = meter()
    counts.count(pack([("tap", [1, 2]), ("type", [3])]), output(1.0, 2.0, 5.0))
    counts.count(pack([("tap", [1]), ("complete", [4])]), output(6.0, 0.5))
    figures = counts.read()
    assert {name: value for name, value in figures.items() if name.startswith("loss_")} == {
        "loss_tap": 3.0,
        "loss_type": 5.0,
        "loss_complete": 0.5,
    }
    assert figures["action_loss"] == pytest.approx(14.5 / 5)


def test_supervised_tokens_outside_actions_count_in_the_loss_without_a_kind():
    counts = meter()
    counts.count(pack([(None, [1, 2]), ("swipe", [3])]), output(1.0, 2.0, 6.0))
    figures = counts.read()
    assert figures["action_loss"] == 3.0
    assert [name for name in figures if name.startswith("loss_")] == ["loss_swipe"]


def test_the_element_loss_is_logged_if_the_model_has_one():
    counts = meter()
    for element_loss in (1.0, 3.0):
        counts.count(pack([("tap", [1])]), output(1.0, element_loss=element_loss))
    assert counts.read()["element_loss"] == 2.0
    counts.count(pack([("tap", [1])]), output(1.0))
    assert "element_loss" not in counts.read()


def test_speeds_share_one_clock():
    """Tokens, actions and operations of the same span of time, so that their ratios are exact."""
    counts = meter(peak_flops=1e12)
    counts.count(pack([("tap", [1, 2]), ("type", [3])], gap=3), output(1.0, 1.0, 1.0))
    figures = counts.read()
    assert figures["tokens_per_second"] / figures["actions_per_second"] == pytest.approx(9 / 2)
    assert figures["model_tflops_per_second"] * 1e12 == pytest.approx(figures["tokens_per_second"] * 1e9)
    assert figures["mfu"] == pytest.approx(figures["model_tflops_per_second"])


def test_mfu_is_not_reported_without_a_known_peak():
    counts = meter()
    counts.count(pack([("tap", [1])]), output(1.0))
    figures = counts.read()
    assert "mfu" not in figures and figures["model_tflops_per_second"] > 0


def test_flops_are_not_reported_for_an_unknown_model():
    counts = meter(flops=None, peak_flops=1e12)
    counts.count(pack([("tap", [1])]), output(1.0))
    assert not {"mfu", "model_tflops_per_second"} & counts.read().keys()


def test_each_reading_resets_the_meter():
    counts = meter()
    counts.count(pack([("tap", [1])]), output(4.0))
    counts.read()
    counts.count(pack([("type", [1])]), output(2.0))
    figures = counts.read()
    assert figures["action_loss"] == figures["loss_type"] == 2.0
    assert "loss_tap" not in figures


def test_the_meter_counts_time_waiting_for_batches_and_not_time_computing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("vlm_agent.training.loop.meter.time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow():
        for number in range(2):
            now[0] += 1
            yield number

    counts = meter()
    batches = slow()
    for _ in range(2):
        counts.fetch(batches, 1)
        now[0] += 3
    counts.count(pack([("tap", [1])]), output(1.0))
    assert counts.read()["data_wait"] == 2 / 8


def test_no_batch_of_the_next_step_is_fetched():
    source = iter(range(5))
    counts = meter()
    assert counts.fetch(source, 3) == [0, 1, 2]
    assert next(source) == 3


def test_the_loss_of_a_step_is_the_sum_over_its_batches_and_that_of_a_line_their_mean():
    counts = meter()
    for losses in ([1.0, 2.0], [3.0, 4.0]):
        counts.fetch(iter(losses), 2)
        for loss in losses:
            counts.count(pack([("tap", [1])]), output(loss))
    assert counts.read()["loss"] == 5
    assert counts.read()["loss"] == 0


def test_memory_is_the_peak_of_the_process():
    counts = meter()
    counts.count(pack([("tap", [1])]), output(1.0))
    assert 0.05 < counts.read()["memory_gib"] < 50


def test_figures_are_of_all_ranks_and_the_same_on_each(tmp_path):
    printed = two_ranks.run(
        tmp_path,
        """
from types import SimpleNamespace
from helpers.training.packs import FLOPS, pack
from vlm_agent.training.loop.meter import Meter
meter = Meter(torch.device("cpu"), FLOPS, 1e12)
row = [("tap", [1, 2])] if rank == 0 else [("tap", [1]), ("type", [2, 3])]
losses = [1.0, 2.0] if rank == 0 else [6.0, 1.0, 3.0]
part = torch.tensor(float(1 + rank))
meter.count(pack(row), SimpleNamespace(loss=part, token_losses=torch.tensor(losses), element_loss=None))
figures = meter.read()
ratio = figures["tokens_per_second"] / figures["actions_per_second"]
mfu = figures["mfu"] * 2 / figures["model_tflops_per_second"]
assert figures["loss"] == 3
print(f"{figures['loss_tap']:.3f} {figures['loss_type']:.3f} {figures['action_loss']:.3f} {ratio:.3f} {mfu:.3f}")
""",
    )
    # 4 + 7 tokens, 1 + 2 actions
    assert [out.splitlines()[-1] for out in printed] == [f"3.000 2.000 2.600 {11 / 3:.3f} 1.000"] * 2


def test_losses_are_weighted_and_thoughts_do_not_count_as_actions():
    row = pack([("tap", [1, 2]), (None, [3]), ("type", [4])])
    row["loss_weights"] = torch.where(row["labels"] == 2, 3.0, 1.0)
    row["roles"] = torch.where(row["labels"] == 3, 1, 0)
    counts = meter()
    counts.count(row, output(1.0, 2.0, 10.0, 6.0))
    figures = counts.read()
    assert figures["loss_tap"] == pytest.approx((1 + 3 * 2) / 4)
    assert figures["loss_thought"] == 10
    assert figures["action_loss"] == pytest.approx((1 + 3 * 2 + 6) / 5)
    assert figures["actions_per_second"] / figures["tokens_per_second"] == pytest.approx(2 / 10)


def test_rows_of_a_batch_are_counted_like_batches_of_their_own():
    rows = [pack([("tap", [1, 2])]), pack([("type", [3, 4])])]
    batch = {name: torch.cat([row[name] for row in rows]) for name in ("input_ids", "labels", "kinds")}
    together, alone = meter(), meter()
    together.count(batch, output(1.0, 2.0, 3.0, 5.0))
    alone.count(rows[0], output(1.0, 2.0))
    alone.count(rows[1], output(3.0, 5.0))
    one, other = together.read(), alone.read()
    assert [one[name] for name in LOSSES] == [other[name] for name in LOSSES]
    assert one["actions_per_second"] / one["tokens_per_second"] == pytest.approx(2 / 8)


LOSSES = ("action_loss", "loss_tap", "loss_type")
