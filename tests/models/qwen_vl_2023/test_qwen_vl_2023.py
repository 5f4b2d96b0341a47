"""Qwen-VL (2023) computes the logits of its published weights, and a checkpoint is converted completely."""

import json
import math

import pytest
import torch
from helpers.published import published_qwen_vl as published
from transformers import AutoConfig, AutoModel

from vlm_agent.errors import UserError
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.qwen_vl_2023.convert import QWEN_VL_2023, our_configuration, published_weights, read_configuration
from vlm_agent.models.qwen_vl_2023.tower import QwenVLTower, QwenVLTowerConfig, Resampler, fit_grid, grid_sinusoids
from vlm_agent.sentences import SCREEN_TOKEN

WEIGHTS = published.random_weights()
TOWER = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8}
BEFORE, AFTER = [5, 300, 17], [301, 9, 44, 260, 3]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen_vl_2023")
    QWEN_VL_2023.convert(published.write(folder / "published", WEIGHTS), folder / "ours", lambda file: None)
    return folder / "ours"


@pytest.fixture(scope="module")
def model(converted):
    loaded, info = LlamaViT.from_pretrained(converted, output_loading_info=True)
    assert not any(info.values())
    return loaded.eval()


def random_screen(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (3, 448, 448), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def visual_grid(rows: int, columns: int):
    return type("Config", (), {"visual_grid": (rows, columns)})


@torch.inference_mode()
def test_logits_are_those_that_the_published_weights_give(model):
    screen = random_screen()
    ids = [*BEFORE, *[SCREEN_TOKEN] * 256, *AFTER]
    ours = model(input_ids=torch.tensor([ids]), screens=screen[None]).logits[0]
    expected = published.logits(WEIGHTS, published.TINY, [*BEFORE, *[0] * 256, *AFTER], len(BEFORE), screen)
    assert expected.std() > 0.5
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_a_screen_changes_the_logits_after_it_and_none_before(model):
    ids = torch.tensor([[*BEFORE, *[SCREEN_TOKEN] * 256, *AFTER]])
    one, other = (model(input_ids=ids, screens=random_screen(seed)[None]).logits[0] for seed in (0, 1))
    assert torch.equal(one[: len(BEFORE)], other[: len(BEFORE)])
    assert (one[-len(AFTER) :] - other[-len(AFTER) :]).abs().max() > 0.01


def test_the_published_configuration_has_the_published_number_of_parameters(tmp_path):
    content = tmp_path / "config.json"
    content.write_text(json.dumps(published.FULL))
    real = read_configuration(content)
    assert {name: weight.shape for name, weight in published_weights(real).items()} == published.shapes(published.FULL)
    config = our_configuration(real, end=151643, dtype="bfloat16")
    with torch.device("meta"):
        whole = LlamaViT(config)
    shapes = {name: tensor.shape for name, tensor in whole.state_dict().items()}
    assert sum(shape.numel() for shape in shapes.values()) * 2 == published.FULL_BYTES
    made = {
        target: tensor.shape
        for weight in published_weights(real).values()
        for target, tensor in zip(weight.targets, weight.convert(torch.empty(weight.shape, device="meta")), strict=True)
    }
    assert made == shapes
    assert count(whole.vision) == 1_842_770_688
    assert count(whole.language_model) == 7_721_324_544
    assert (config.tokens_per_screen, config.screen_size) == (256, (448, 448))


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_it_saves_and_loads_bit_for_bit(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = LlamaViT.from_pretrained(tmp_path).state_dict()
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


def test_transformers_knows_the_tower():
    tower = AutoModel.from_config(AutoConfig.for_model("qwen_vl_vit", **TOWER))
    assert isinstance(tower, QwenVLTower)
    assert tower(torch.zeros(2, 3, 32, 48)).last_hidden_state.shape == (2, 24, 16)


def test_the_tower_gives_equal_gradients_with_and_without_checkpointing():
    torch.manual_seed(0)
    tower, pixels = QwenVLTower(QwenVLTowerConfig(**TOWER)).train(), torch.randn(1, 3, 32, 32)
    gradients = []
    for checkpointed in (False, True):
        if checkpointed:
            tower.activation_checkpointing_enable()
            assert all(block.gradient_checkpointing for block in tower.blocks)
        tower.zero_grad()
        tower(pixels).last_hidden_state.square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in tower.parameters()])
    assert all(grad.abs().max() > 0 for grad in gradients[0])
    torch.testing.assert_close(*gradients)


def test_a_new_resampler_gives_other_tokens_for_other_screens_and_trains_all_but_its_positions():
    torch.manual_seed(0)
    resampler = Resampler(16, 32, visual_grid(4, 4))
    before, after = resampler(torch.randn(2, 64, 16))
    assert before is after
    assert after.shape == (2, 16, 32)
    assert (after[0] - after[1]).abs().max() > 1e-3
    after.square().sum().backward()
    assert all(parameter.grad is not None for parameter in resampler.parameters())
    assert "positions" in resampler.state_dict()
    assert "positions" not in dict(resampler.named_parameters())


def test_a_screen_that_is_not_square_is_refused_by_the_resampler():
    with pytest.raises(UserError, match="48 patches are no square"):
        Resampler(16, 32, visual_grid(4, 4))(torch.zeros(1, 48, 16))


def test_positions_are_sinusoids_of_the_column_and_then_of_the_row():
    rows, columns, width = 3, 5, 16
    table = grid_sinusoids(rows, columns, width).view(rows, columns, width)
    for row in range(rows):
        for column in range(columns):
            frequencies = [10000 ** (-2 * number / (width // 2)) for number in range(width // 4)]
            expected = [
                wave(place * frequency)
                for place in (column, row)
                for wave in (math.sin, math.cos)
                for frequency in frequencies
            ]
            torch.testing.assert_close(table[row, column], torch.tensor(expected))


@pytest.mark.parametrize("side", [32, 24, 6])
def test_a_position_table_is_fitted_by_cubic_convolution(side):
    table = torch.randn(256, 3, generator=torch.Generator().manual_seed(side))
    fitted = fit_grid(table, (16, 16), (side, side))
    torch.testing.assert_close(fitted, published.stretch(table, side), rtol=0, atol=1e-5)


def test_a_position_table_keeps_its_dtype_and_on_its_own_grid_its_values():
    table = torch.randn(12, 4).bfloat16()
    assert fit_grid(table, (3, 4), (3, 4)) is table
    assert fit_grid(table, (3, 4), (6, 8)).dtype == torch.bfloat16
