"""Real weights: a correct merge in bfloat16 is accepted whatever its adapter's size, a wrong one is not."""

from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from helpers.published import real_weights

from vlm_agent.episodes import Episode
from vlm_agent.models.build import Vocabulary, build_model, build_tokenizer, save
from vlm_agent.models.family import processor_of, saved_family
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import BASE_FOLDER, RECIPE_FILE
from vlm_agent.models.weights import merge
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.merge import MergeError, merge_run
from vlm_agent.recipe.model import ModelRecipe

pytestmark = pytest.mark.slow  # a minute and a half, most of it reading the weights

TEXT = Path(__file__).resolve().parents[3] / "README.md"
POSITIONS = 160


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """(folder, recipe, tokenizer) of a Llama+ViT in bfloat16: SmolLM2 under a vision tower of random weights."""
    recipe = ModelRecipe(
        language_model={"checkpoint": str(real_weights.smollm2()), "gguf_file": real_weights.GGUF},
        vision={"config": tiny.CONVNEXT},
        screen_size=tiny.SCREEN,
        visual_grid=tiny.GRID,
        dtype="bfloat16",
        lora={"rank": 16, "alpha": 32, "dropout": 0.0},
    )
    torch.manual_seed(0)
    tokenizer = build_tokenizer(recipe, Vocabulary(tiny.LANGUAGE.vocabulary(), ()))
    folder = tmp_path_factory.mktemp("smollm2") / BASE_FOLDER
    build_model(recipe, tokenizer).save_pretrained(folder)
    return folder, recipe, tokenizer


def write_run(base, run: Path, size: float) -> Path:
    """A run whose adapter changes each matrix by `size`, relative to its norm."""
    folder, recipe, tokenizer = base
    model = choose_trained_weights(saved_family(folder).load(folder), recipe.train, recipe.lora)
    torch.manual_seed(1)
    with torch.no_grad():
        for layer in model.modules():
            if hasattr(layer, "lora_B"):
                weight = layer.lora_B["default"].weight.normal_()
                weight *= size * layer.base_layer.weight.float().norm() / layer.get_delta_weight("default").norm()
    save(model, tokenizer, run)
    content = tiny.recipe(run.parent, run) | {"model": recipe.model_dump(mode="json")}
    content["training"]["bf16"] = True
    (run / RECIPE_FILE).write_text(yaml.safe_dump(content), encoding="utf-8")
    (run / BASE_FOLDER).symlink_to(folder)
    return run


def text_after_a_screen(model, tokenizer) -> list[dict]:
    """One sentence: a screen, then ordinary English to predict."""
    processor = processor_of(model.config)
    sentences = processor.sentences(tokenizer, tiny.LANGUAGE)
    sentence = sentences.prompt(Episode("", "", "read on", tiny.episode().steps[:1]))
    sentence.learn(sentences.ids(TEXT.read_text(encoding="utf-8"))[:POSITIONS])
    row = processor.collate([sentence])
    return [{name: value for name, value in row.items() if name not in NOT_FOR_MODELS}]


@pytest.mark.parametrize("size", [0.004, 0.03])
def test_a_correct_merge_is_accepted(base, size, tmp_path):
    result = merge_run(write_run(base, tmp_path / "run", size), tmp_path / "merged", text_after_a_screen)
    assert result.agreement.positions == POSITIONS
    assert result.divergences.merged < 0.15 * result.divergences.rounding
    assert result.agreement.same_choice >= 0.97 * POSITIONS


def test_a_merge_without_a_small_adapter_is_refused(base, tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "merge_adapter", lambda model: model.unload())
    run = write_run(base, tmp_path / "run", 0.004)
    with pytest.raises(MergeError, match=r"merged (computes something else|loses the adapter)"):
        merge_run(run, tmp_path / "merged", text_after_a_screen)
