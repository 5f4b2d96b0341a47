"""An extractor is one file and a line in the registry; a recipe chooses it by name."""

import numpy as np
import pytest
import yaml
from helpers.data.feature_shards import write_several

from vlm_agent.cli import FAILED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.models.features import EXTRACTORS
from vlm_agent.models.features.store import FeatureStore
from vlm_agent.recipe.model import FeatureSettings

T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 2}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(EXTRACTORS, "mean_colour", "helpers.data.mean_colour:MEAN_COLOUR")


@pytest.fixture
def shards(tmp_path):
    return write_several(tmp_path / "shards", episodes=1)


def _recipe(path, model):
    training = {"steps": 1, "batch_size": 1, "optimizer": {"name": "adamw", "learning_rate": 1e-3}}
    content = {"output": "run", "model": model, "data": {"shards": "shards"}, "training": training}
    path.write_text(yaml.safe_dump(content))
    return path


def test_features_of_a_new_extractor_are_extracted_and_found(shards, tmp_path):
    assert main(["features", str(shards), "--extractor", "mean_colour", "--output", str(tmp_path / "out")]) == 0
    store, dataset = FeatureStore(tmp_path / "out"), ShardDataset(shards)
    store.check(dataset, FeatureSettings(extractor="mean_colour"))
    colours = np.stack([step.screenshot.mean((0, 1)) for step in dataset[1].steps])
    np.testing.assert_allclose(np.stack(store.steps(dataset, 1))[:, 0], colours, rtol=1e-3)
    np.testing.assert_allclose(store.find(dataset[1].steps[3].screenshot)[0], colours[3], rtol=1e-3)


def test_a_recipe_chooses_the_extractor(shards, tmp_path):
    model = {"encoder_decoder": {"config": T5}, "word_tokenizer": {}, "features": {"extractor": "mean_colour"}}
    recipe = _recipe(tmp_path / "recipe.yaml", model)
    assert main(["features", str(shards), "--config", str(recipe), "--output", str(tmp_path / "out")]) == 0
    assert FeatureStore(tmp_path / "out").settings == FeatureSettings(extractor="mean_colour")


def test_a_recipe_without_features_is_refused(shards, tmp_path, capsys):
    recipe = _recipe(tmp_path / "recipe.yaml", {"base": "phone_vlm_tiny"})
    assert main(["features", str(shards), "--config", str(recipe), "--output", str(tmp_path / "out")]) == FAILED
    assert f"{recipe} has no model.features" in capsys.readouterr().err


def test_unknown_names_list_the_registry(shards, tmp_path, capsys):
    assert main(["features", str(shards), "--extractor", "mean", "--output", str(tmp_path / "out")]) == FAILED
    assert "extractor 'mean' is unknown; choose one of blip2, clip, dinov2, mean_colour" in capsys.readouterr().err
