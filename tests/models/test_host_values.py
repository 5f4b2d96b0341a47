"""What a batch brings from the host changes no number: the same losses and gradients, bit for bit, without it."""

from operator import itemgetter

import numpy as np
import pytest
import torch
from accelerate.utils import send_to_device
from helpers import tiny
from helpers.models import families, tiny_qwen
from torch.utils.data import DataLoader

from vlm_agent.training.loop.validation import Validation

SIZES = [(64, 32), (50, 40), (40, 64)]
FROM_HOST = ("screen_places", "target_places", "element_places", "tower")


def row_of(family: families.Family) -> dict:
    episodes = [tiny.episode(number, tiny.ACTIONS[: number + 1], size=size) for number, size in enumerate(SIZES)]
    return family.row(*(family.sentences.build(episode) for episode in episodes))


@pytest.mark.parametrize("name", [*families.NAMES, families.QWEN_VL_2023])
def test_losses_and_gradients_are_the_same_bits_without_it(name):
    family = families.adapted(name)
    row = row_of(family)
    found = []
    for batch in (row, {name: value for name, value in row.items() if name not in FROM_HOST}):
        output = family.model(**batch)
        found.append((output.token_losses, families.gradients(family.model, output.loss)))
    (losses, gradients), (expected_losses, expected) = found
    assert torch.equal(losses, expected_losses)
    assert gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[weight], expected[weight]) for weight in expected)


@pytest.mark.parametrize("name", tiny_qwen.FAMILIES)
def test_a_tower_sees_the_same_bits_as_from_the_sizes_of_screens_alone(name):
    family = families.shared(name)
    row = row_of(family)
    with torch.inference_mode():
        seen, expected = (family.model.see(row["patches"], row["grids"], tower) for tower in (row["tower"], None))
    assert torch.equal(seen.pooler_output, expected.pooler_output)
    for one, other in zip(seen.get("deepstack_features", ()), expected.get("deepstack_features", ()), strict=True):
        assert torch.equal(one, other)


def test_deepstack_by_index_equals_transformers_by_mask():
    """In bfloat16, with the gradients of both states and features."""
    model = families.shared("qwen3_vl").model.language_model
    torch.manual_seed(0)
    mask = torch.rand(2, 7) < 0.5
    results = []
    for where in (mask, mask.flatten().nonzero().squeeze(1)):
        generator = torch.Generator().manual_seed(1)
        hidden, seen = (
            torch.randn(*shape, generator=generator).bfloat16().requires_grad_()
            for shape in ((2, 7, 4), (mask.sum(), 4))
        )
        output = model._deepstack_process(hidden, where, seen)
        output.square().sum().backward()
        results.append((output, hidden.grad, seen.grad))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("name", families.NAMES)
def test_a_batch_survives_loader_workers_and_bounds_stay_on_the_host(name):
    family = families.shared(name)
    row = row_of(family)
    (loaded,) = DataLoader([row], batch_size=1, collate_fn=itemgetter(0), num_workers=1)
    moved = send_to_device(loaded, torch.device("cpu"), non_blocking=True)
    assert isinstance(moved["cu_seqlens"], np.ndarray)
    assert moved["cu_seqlens"].tolist() == row["cu_seqlens"].tolist()
    with torch.inference_mode():
        assert torch.equal(family.model(**moved).loss, family.model(**row).loss)


def test_a_validation_leaves_bounds_on_the_host():
    seen = []

    def model(**batch):
        seen.append(batch["cu_seqlens"])
        return families.shared("llama_vit").model(**batch)

    model.training, model.eval, model.train = False, lambda: None, lambda mode: None
    family = families.shared("llama_vit")
    sentences = [family.sentences.build(tiny.episode(0))]
    Validation([family.processor.collate(sentences)], workers=0).run(model, torch.device("cpu"))
    assert [type(bounds) for bounds in seen] == [np.ndarray]
