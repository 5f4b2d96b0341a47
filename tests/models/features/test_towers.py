"""Features of BLIP-2, CLIP, ViT and DINOv2 equal those of transformers' own processors and models."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from helpers.models import vision_towers
from PIL import Image
from transformers import BitImageProcessorPil, Dinov2Model

from vlm_agent.errors import CheckpointError, RecipeError
from vlm_agent.models.features import extractor_kind, feature_shape, load_extractor
from vlm_agent.recipe.model import FeatureSettings

TOWERS = tuple(vision_towers.PROCESSORS)
HALF = 2**-10
"""Relative rounding of float16, twice."""


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


DRAWN = [noise(228, 108), noise(128, 200), noise(vision_towers.SIDE, vision_towers.SIDE)]


def settings(extractor: str, folder: Path | str | None, form: str = "pooled") -> FeatureSettings:
    return FeatureSettings(extractor=extractor, checkpoint=None if folder is None else str(folder), form=form)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A tiny checkpoint by extractor."""
    folder = tmp_path_factory.mktemp("towers")
    return {name: vision_towers.write(name, folder / name) for name in TOWERS}


@pytest.fixture(scope="module")
def screens(request):
    """Drawn screens, and three real ones of 2280 x 1080 pixels where they are present."""
    folder = Path(__file__).resolve().parents[4] / "shared" / "data" / "screens"
    real = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.glob("*.png"))[:3]]
    return [*DRAWN, *real]


def assert_rounded(features: np.ndarray, expected: torch.Tensor) -> None:
    assert features.dtype == np.float16
    assert features.shape == tuple(expected.shape)
    np.testing.assert_allclose(features, expected.numpy(), rtol=HALF, atol=HALF * expected.abs().mean().item())


@pytest.mark.parametrize("name", TOWERS)
def test_features_equal_those_of_transformers(name, checkpoints, screens):
    processor, model = vision_towers.PROCESSORS[name](), vision_towers.build(name)
    pixels = processor(images=[Image.fromarray(screen) for screen in screens], return_tensors="pt")["pixel_values"]
    pooled, patches = vision_towers.reference(name, model, pixels)
    assert_rounded(load_extractor(settings(name, checkpoints[name])).extract(screens), pooled[:, None])
    assert_rounded(load_extractor(settings(name, checkpoints[name], "patches")).extract(screens), patches)


@pytest.mark.parametrize("name", TOWERS)
def test_the_shape_is_known_before_weights_are_read(name, checkpoints, tmp_path):
    for file in ("config.json", "preprocessor_config.json"):
        (tmp_path / file).write_bytes((checkpoints[name] / file).read_bytes())
    assert feature_shape(settings(name, tmp_path)) == (1, 32)
    assert feature_shape(settings(name, tmp_path, "patches")) == (16, 32)


@pytest.mark.parametrize(
    ("name", "pooled", "patches"),
    [
        ("blip2", (1, 1408), (256, 1408)),
        ("clip", (1, 768), (49, 768)),
        ("vit", (1, 768), (196, 768)),
        ("dinov2", (1, 384), (256, 384)),
    ],
)
def test_the_shapes_of_default_checkpoints_need_no_files(name, pooled, patches, monkeypatch):
    monkeypatch.setattr("vlm_agent.models.features.towers.CheckpointFiles", None)
    assert feature_shape(settings(name, None)) == pooled
    assert feature_shape(settings(name, None, "patches")) == patches


def digest_of(extractor: FeatureSettings) -> str:
    return extractor_kind(extractor).digest(extractor)


def test_only_the_vision_tower_of_blip2_is_read(tmp_path):
    folder = vision_towers.write("blip2", tmp_path, max_shard_size="40KB")
    places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for name, file in places.items() if name.startswith("vision_model.")}
    others = set(places.values()) - needed
    assert others
    digest = digest_of(settings("blip2", folder))
    for file in others:
        (folder / file).unlink()
    assert load_extractor(settings("blip2", folder)).digest == digest


def test_a_tower_saved_alone_is_the_same_extractor(checkpoints, tmp_path):
    vision_towers.build("blip2").vision_model.save_pretrained(tmp_path)
    vision_towers.PROCESSORS["blip2"]().save_pretrained(tmp_path)
    whole, alone = (load_extractor(settings("blip2", folder)) for folder in (checkpoints["blip2"], tmp_path))
    assert np.array_equal(whole.extract(DRAWN), alone.extract(DRAWN))


def test_the_digest_changes_with_a_weight_the_form_and_the_preprocessing(tmp_path):
    folder = vision_towers.write("dinov2", tmp_path)
    first, patches = (digest_of(settings("dinov2", folder)), digest_of(settings("dinov2", folder, "patches")))
    assert digest_of(settings("dinov2", folder)) == first
    config = folder / "preprocessor_config.json"
    before = config.read_text()
    config.write_text(json.dumps(json.loads(before) | {"image_mean": [0.5, 0.5, 0.5]}))
    other_mean = digest_of(settings("dinov2", folder))
    config.write_text(before)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["layernorm.bias"][0] += 1
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    other_weight = digest_of(settings("dinov2", folder))
    assert len({first, patches, other_mean, other_weight}) == 4


def test_without_a_preprocessor_configuration_dinov2_is_processed_as_published(tmp_path):
    """The shortest edge has 256 pixels, and the central 224 are kept."""
    folder = vision_towers.write("dinov2", tmp_path, processor=False)
    published = BitImageProcessorPil(
        size={"shortest_edge": 256}, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]
    )
    pixels = published(images=[Image.fromarray(screen) for screen in DRAWN], return_tensors="pt")["pixel_values"]
    pooled, _ = vision_towers.reference("dinov2", vision_towers.build("dinov2"), pixels)
    extractor = load_extractor(settings("dinov2", folder))
    assert_rounded(extractor.extract(DRAWN), pooled[:, None])
    assert extractor.preprocess.share(512, 256) == 224 * 224 / (512 * 256)


def test_a_preprocessor_configuration_may_show_whole_screens(tmp_path):
    folder = vision_towers.write("dinov2", tmp_path, processor=False)
    content = {"size": {"height": 112, "width": 56}, "do_center_crop": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    extractor = load_extractor(settings("dinov2", folder, "patches"))
    assert extractor.preprocess.share(512, 256) == 1
    assert (
        extractor.extract(DRAWN[:1]).shape
        == (1, 8 * 4, 32)
        == (1, *feature_shape(settings("dinov2", folder, "patches")))
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"do_pad": True}, "do_pad True is not supported"),
        ({"do_resize": False}, "do_resize False is not supported"),
        ({"size": {"longest_edge": 224}}, "size {'longest_edge': 224} is not supported"),
        ({"do_center_crop": False}, "screens differ in shape"),
        ({"size": {"shortest_edge": 200}}, "crop_size (224, 224) is larger than size 200"),
        ({"image_mean": 0.5}, "a value cannot be read"),
        ({"image_mean": [0.5]}, "a value cannot be read"),
        ({"resample": "bicubic"}, "a value cannot be read"),
        ({"resample": 9}, "a value cannot be read"),
        ({"rescale_factor": "x"}, "a value cannot be read"),
        ({"size": [224, 224]}, "a value cannot be read"),
        ({"do_center_crop": True, "crop_size": {"h": 1}}, "a value cannot be read"),
        ({"crop_size": [224]}, "a value cannot be read"),
        ({"crop_size": [224, 224, 1]}, "a value cannot be read"),
        ({"size": {"height": -5, "width": 4}, "do_center_crop": False}, "a side of (-5, 4) is below 1"),
        ([], "it is not a JSON object"),
    ],
)
def test_preprocessing_that_cannot_be_followed_is_an_error(content, complaint, tmp_path):
    folder = vision_towers.write("dinov2", tmp_path, processor=False)
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as raised:
        feature_shape(settings("dinov2", folder))
    assert complaint in str(raised.value)
    assert "preprocessor_config.json" in str(raised.value)


def test_a_checkpoint_of_another_model_is_refused(checkpoints):
    with pytest.raises(CheckpointError, match=r"is a dinov2; extractor clip reads clip, clip_vision_model"):
        feature_shape(settings("clip", checkpoints["dinov2"]))


@pytest.mark.parametrize("content", ["{}", '{"model_type": "unknown"}'])
def test_a_configuration_of_no_known_model_is_an_error(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config.json cannot be read"):
        feature_shape(settings("clip", tmp_path))


def test_a_missing_checkpoint_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match=r"model.features.checkpoint .* cannot be loaded"):
        feature_shape(settings("clip", tmp_path / "none"))


def test_a_checkpoint_without_some_weights_is_refused(tmp_path):
    folder = vision_towers.write("clip", tmp_path)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    del weights["vision_model.post_layernorm.weight"]
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        CheckpointError, match=r"lacks 1 of the weights of CLIPVisionModel, post_layernorm.weight first"
    ):
        load_extractor(settings("clip", folder))


def test_a_damaged_weights_file_is_an_error_that_names_it(tmp_path):
    folder = vision_towers.write("vit", tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is cut: it has 5,000 of"):
        load_extractor(settings("vit", folder))


def test_an_unknown_extractor_is_an_error_that_lists_all():
    with pytest.raises(RecipeError, match=r"'blip' is unknown; choose one of blip2, clip, dinov2, phone_vlm_tiny, vit"):
        feature_shape(settings("blip", None))


def test_features_beyond_float16_are_an_error_that_names_the_screen(tmp_path):
    from vlm_agent.models.features import NonFiniteFeaturesError

    folder = vision_towers.write("dinov2", tmp_path)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["layernorm.weight"] *= 1e6
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(NonFiniteFeaturesError, match=r"not finite in float16") as raised:
        load_extractor(settings("dinov2", folder)).extract(DRAWN)
    assert raised.value.screen == 0


def test_real_dinov2_features_of_real_screens_equal_transformers(shared):
    folder = shared / "weights" / "dinov2-small"
    paths = sorted((shared / "data" / "screens").glob("*.png"))[:2]
    screens = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    published = BitImageProcessorPil(
        size={"shortest_edge": 256}, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]
    )
    pixels = published(images=[Image.fromarray(screen) for screen in screens], return_tensors="pt")["pixel_values"]
    model = Dinov2Model.from_pretrained(folder, dtype=torch.float32).eval()
    pooled, patches = vision_towers.reference("dinov2", model, pixels)
    assert_rounded(load_extractor(settings("dinov2", folder)).extract(screens), pooled[:, None])
    assert_rounded(load_extractor(settings("dinov2", folder, "patches")).extract(screens), patches)


def test_bfloat16_differs_by_its_rounding_alone(checkpoints):
    exact, rounded = (
        load_extractor(settings("clip", checkpoints["clip"]), precision=precision).extract(DRAWN).astype(np.float32)
        for precision in ("float32", "bfloat16")
    )
    assert 0 < np.abs(exact - rounded).max() < 0.1 * np.abs(exact).max()


def test_the_features_of_a_screen_do_not_depend_on_its_batch(checkpoints):
    extractor = load_extractor(settings("blip2", checkpoints["blip2"], "patches"))
    together = extractor.extract(DRAWN)
    assert all(np.array_equal(extractor.extract([screen])[0], one) for screen, one in zip(DRAWN, together, strict=True))
    assert extractor.extract([]).shape == (0, 16, 32)
