"""Validation during training: its figures, its sample, and that training does not feel it."""

import random

import numpy as np
import pytest
import torch
from helpers.training import tiny_trainer, two_ranks
from helpers.training.packs import NextWord, knows_successors, pack

from vlm_agent.errors import TrainingError
from vlm_agent.sentences import IGNORED
from vlm_agent.training.loop.validation import Validation, fixed_sample

CPU = torch.device("cpu")


def validated(model, *packs, workers: int = 0) -> dict[str, float]:
    return Validation(list(packs), workers).run(model, CPU)


def test_an_action_is_exact_when_every_one_of_its_tokens_is_the_first_choice():
    model = knows_successors({0: 1, 1: 2, 2: 3})
    figures = validated(
        model, pack([("tap", [1, 2, 3]), ("tap", [1, 2, 2]), ("type", [4])]), pack([("tap", [1]), ("complete", [1, 2])])
    )
    assert figures["eval_accuracy_tap"] == pytest.approx(2 / 3)
    assert figures["eval_accuracy_type"] == 0
    assert figures["eval_accuracy_complete"] == 1
    assert figures["eval_accuracy"] == pytest.approx(3 / 5)
    assert not any("swipe" in name for name in figures)


def test_the_loss_is_the_mean_over_all_supervised_tokens_without_dropout():
    model = NextWord().eval()
    packs = [pack([("tap", [1, 2, 3])]), pack([("type", [4])])]
    losses = torch.cat([model(row["input_ids"], row["labels"]).token_losses for row in packs])
    assert validated(model.train(), *packs)["eval_loss"] == pytest.approx(losses.mean().item())


def test_supervised_tokens_outside_actions_count_without_a_kind():
    figures = validated(knows_successors({0: 1}), pack([(None, [1]), ("tap", [2])]))
    assert figures["eval_accuracy"] == 0.5
    assert [name for name in figures if name.startswith("eval_accuracy_")] == ["eval_accuracy_tap"]


@pytest.mark.parametrize("training", [True, False])
def test_validation_restores_the_mode_of_the_model(training):
    model = NextWord().train(training)
    validated(model, pack([("tap", [1, 2])]))
    assert model.training is training


def test_a_failed_validation_leaves_the_model_in_training_mode():
    model = NextWord().train()
    with pytest.raises(TypeError):
        validated(model, {"input_ids": torch.zeros(1, 1)})
    assert model.training


def test_a_validation_that_draws_random_numbers_restores_their_state():
    class Drawing(list):
        def __getitem__(self, number):
            torch.rand(3), random.random(), np.random.rand()
            return super().__getitem__(number)

    def drawn() -> tuple:
        return torch.rand(1).item(), random.random(), np.random.rand()

    model = NextWord()

    def seed() -> None:
        torch.manual_seed(1), random.seed(1), np.random.seed(1)

    seed()
    expected = drawn()
    seed()
    Validation(Drawing([pack([("tap", [1])])]), 0).run(model, CPU)
    assert drawn() == expected


def test_worker_processes_compute_the_same_figures():
    packs = [pack([("tap", [1, 2])], first=number) for number in range(4)]
    assert validated(NextWord(), *packs, workers=2) == validated(NextWord(), *packs)


def test_a_run_ends_with_the_same_weights_with_and_without_validation(tmp_path):
    without, _ = tiny_trainer.train(tmp_path / "without")
    with_it, _ = tiny_trainer.train(tmp_path / "with", validate=2)
    assert torch.equal(tiny_trainer.weights(without), tiny_trainer.weights(with_it))
    assert [line["step"] for line in with_it.lines if "eval_loss" in line] == [2, 4, 6]


def test_the_sample_is_spread_over_subsets_and_depends_on_ids_alone():
    ids = [f"{subset}{number}" for subset in "abc" for number in range({"a": 50, "b": 50, "c": 1}[subset])]
    subsets = [name[0] for name in ids]
    chosen = {ids[index] for index in fixed_sample(ids, subsets, 9)}
    assert sorted(name[0] for name in chosen) == ["a"] * 4 + ["b"] * 4 + ["c"]
    order = random.Random(0).sample(range(len(ids)), len(ids))
    shuffled = [ids[index] for index in order]
    again = fixed_sample(shuffled, [name[0] for name in shuffled], 9)
    assert {shuffled[index] for index in again} == chosen
    assert chosen < {ids[index] for index in fixed_sample(ids, subsets, 20)}


def test_a_sample_larger_than_the_split_is_all_of_it():
    assert sorted(fixed_sample(["a", "b"], ["x", "y"], 10)) == [0, 1]


def test_ranks_divide_the_rows_and_call_the_model_equally_often(tmp_path):
    packs = [pack([("tap", [1, 2]), ("type", [3])], first=number) for number in range(3)]
    alone = validated(NextWord(), *packs)
    printed = two_ranks.run(
        tmp_path,
        """
from helpers.training.packs import NextWord, pack
from vlm_agent.training.loop.validation import Validation
class Counted(NextWord):
    calls = 0
    def forward(self, *args, **options):
        self.calls += 1
        return super().forward(*args, **options)
model = Counted()
packs = [pack([("tap", [1, 2]), ("type", [3])], first=number) for number in range(3)]
figures = Validation(packs, 0).run(model, torch.device("cpu"))
print(model.calls, *(f"{name}={value:.9f}" for name, value in figures.items()))
""",
    )
    expected = " ".join(["2", *(f"{name}={value:.9f}" for name, value in alone.items())])
    assert [out.splitlines()[-1] for out in printed] == [expected] * 2


def test_thoughts_count_in_the_loss_by_weight_and_not_in_accuracy():
    row = pack([(None, [2]), ("tap", [1]), ("type", [1, 3])])
    row["roles"] = torch.where(row["labels"] == 2, 1, 0)
    row["loss_weights"] = torch.where(row["labels"] == 2, 0.5, 1.0)
    model = knows_successors({0: 1}).eval()
    losses = model(row["input_ids"], row["labels"]).token_losses
    weights = torch.tensor([0.5, 1, 1, 1])
    figures = Validation([row], 0).run(Unweighted(model), CPU)
    assert figures["eval_accuracy"] == 0.5
    assert figures["eval_accuracy_tap"] == 1
    assert figures["eval_loss"] == pytest.approx(((losses * weights).sum() / weights.sum()).item())


class Unweighted(torch.nn.Module):
    """A model whose forward accepts weights."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, loss_weights, **batch):
        return self.model(**batch)


def test_rows_of_a_batch_are_validated_like_batches_of_their_own():
    rows = [pack([("tap", [1, 2])]), pack([("type", [1, 4])])]
    batch = {name: torch.cat([row[name] for row in rows]) for name in ("input_ids", "labels", "kinds")}
    model = knows_successors({0: 1, 1: 2})
    assert validated(model, batch | {"about": []}) == pytest.approx(validated(model, *rows))


def test_a_sample_without_an_action_that_the_model_can_write_is_an_error():
    row = pack([("tap", [1, 2])])
    row["labels"] = torch.full_like(row["labels"], IGNORED)
    with pytest.raises(TrainingError, match=r"training\.validation: none of its steps has an action"):
        validated(NextWord(), row)
