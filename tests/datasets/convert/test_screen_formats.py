"""How screens are stored: lossless means every pixel."""

import numpy as np
import pytest
from helpers.data.conversions import converted
from helpers.data.made_episodes import ACTIONS
from PIL import Image

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.episodes import Episode, Step


@pytest.fixture
def smooth(tmp_path):
    """An episode of a soft picture, as photographs are, in odd sizes."""
    steps = []
    for number, (height, width) in enumerate([(71, 35), (64, 32), (1, 1)]):
        y, x = np.mgrid[:height, :width]
        screen = np.stack([127 + 120 * np.sin(y / 9), 127 + 120 * np.cos(x / 7), (y + x) % 256], 2)
        steps.append(Step(screen.astype(np.uint8), ACTIONS[number]))
    episode = Episode("s", "general", "look", tuple(steps))
    write_episodes(tmp_path / "in/general-00000-of-00001", [episode])
    return episode


@pytest.mark.parametrize("name", ["png", "webp"])
def test_lossless_is_pixel_identical(smooth, tmp_path, name):
    _, manifest, *_ = converted(tmp_path / "in", output=tmp_path / "out", screens=ScreenFormat(name))
    (stored,) = ShardDataset(tmp_path / "out")
    assert manifest["options"]["screens"]["name"] == name
    for step, original in zip(stored.steps, smooth.steps, strict=True):
        assert np.array_equal(step.screenshot, original.screenshot)


def test_lossless_is_pixel_identical_on_the_real_screens(shared, tmp_path):
    screens = [np.asarray(Image.open(path).convert("RGB")) for path in sorted((shared / "data/screens").glob("*.png"))]
    steps = [Step(screen, ACTIONS[number % 8]) for number, screen in enumerate(screens[:4])]
    write_episodes(tmp_path / "in/general-00000-of-00001", [Episode("r", "general", "look", tuple(steps))])
    for name in ("png", "webp"):
        converted(tmp_path / "in", output=tmp_path / name, screens=ScreenFormat(name))
        (stored,) = ShardDataset(tmp_path / name)
        assert all(
            np.array_equal(got.screenshot, step.screenshot) for got, step in zip(stored.steps, steps, strict=True)
        )


def test_jpeg_is_close_and_its_quality_is_recorded(smooth, tmp_path):
    errors = {}
    for quality in (50, 95):
        screens = ScreenFormat("jpeg", quality)
        _, manifest, *_ = converted(tmp_path / "in", output=tmp_path / str(quality), screens=screens)
        (stored,) = ShardDataset(tmp_path / str(quality))
        first, original = stored.steps[0].screenshot.astype(int), smooth.steps[0].screenshot
        errors[quality] = np.abs(first - original).mean()
        assert manifest["options"]["screens"]["quality"] == quality
    assert errors[95] < errors[50] < 10


def test_a_pixel_budget_makes_large_screens_smaller_and_leaves_the_others(smooth, tmp_path):
    screens = ScreenFormat(max_pixels=1024, multiple=8)
    converted(tmp_path / "in", output=tmp_path / "out", screens=screens)
    dataset = ShardDataset(tmp_path / "out")
    sizes = dataset.screen_sizes[0]
    assert sizes == tuple(step.screenshot.shape[:2] for step in dataset[0].steps)
    assert sizes[2] == (1, 1)
    assert all(height * width <= 1024 for height, width in sizes)
    assert all(side % 8 == 0 for size in sizes[:2] for side in size)
    assert [step.action.kind for step in dataset[0].steps] == [step.action.kind for step in smooth.steps]
