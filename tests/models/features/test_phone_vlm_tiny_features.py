"""Visual tokens of the embedded base behind its projector, from shards to a store and back."""

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.data.feature_shards import write_several

from vlm_agent.cli import main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.models.build import load
from vlm_agent.models.family import processor_of
from vlm_agent.models.features import feature_shape, load_extractor
from vlm_agent.models.features.store import FeatureStore
from vlm_agent.models.run_layout import base_folder
from vlm_agent.recipe.model import FeatureSettings

PATCHES = FeatureSettings(extractor="phone_vlm_tiny", form="patches")
POOLED = FeatureSettings(extractor="phone_vlm_tiny")
SCREEN = tiny.episode(7).steps[0].screenshot


@pytest.fixture(scope="module")
def tokens():
    """The base's visual tokens of `SCREEN` with positions added, float32 (196, 192)."""
    model, _ = load(base_folder("phone_vlm_tiny"))
    screen = torch.from_numpy(processor_of(model.config).screens.prepare(SCREEN))[None]
    with torch.inference_mode():
        before, after = model.see(screen)
    assert not torch.equal(before, after)
    return after[0]


def test_patches_are_the_visual_tokens_with_positions(tokens):
    (features,) = load_extractor(PATCHES).extract([SCREEN])
    assert features.dtype == np.float16
    assert features.shape == (196, 192) == feature_shape(PATCHES)
    assert np.array_equal(features, tokens.half().numpy())


def test_pooled_features_are_the_mean_of_the_visual_tokens(tokens):
    (features,) = load_extractor(POOLED).extract([SCREEN])
    assert features.shape == (1, 192) == feature_shape(POOLED)
    assert np.array_equal(features, tokens.mean(0, keepdim=True).half().numpy())


def test_each_form_has_its_own_digest():
    assert load_extractor(PATCHES).digest == load_extractor(PATCHES).digest != load_extractor(POOLED).digest


def test_the_command_writes_a_store_that_holds_every_step(tmp_path, capsys):
    shards = write_several(tmp_path / "shards", episodes=1)
    output = tmp_path / "features"
    words = ["--extractor", "phone_vlm_tiny", "--form", "pooled", "--output", str(output)]
    assert main(["features", str(shards), *words]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()[1:]
    size = sum(path.stat().st_size for path in output.glob("*/*.npy"))
    assert f"{size:,} bytes" in first
    assert "10 screens in 2 files" in last

    store, dataset, extractor = FeatureStore(output), ShardDataset(shards, split="test"), load_extractor(POOLED)
    store.check(dataset, POOLED, extractor.digest)
    for index, episode in enumerate(dataset):
        expected = extractor.extract([step.screenshot for step in episode.steps])
        assert np.array_equal(store.steps(dataset, index), expected)
        assert np.array_equal(store.find(episode.steps[2].screenshot), expected[2])
    assert store.find(np.full((64, 32, 3), 128, np.uint8)) is None
