"""The weights that come with the package are those of the card and of the recipe, and they read icons."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from shipped_weights.icons.fonts import HELD_OUT, SETS, icons_of
from shipped_weights.icons.tiny import TinyTraining
from vlm_agent.errors import CheckpointError, RecipeError
from vlm_agent.files.weight_files import digest_of
from vlm_agent.recipe.yaml_file import read_mapping
from vlm_agent.screens.icons import MEANINGS, read_icons
from vlm_agent.screens.icons import tiny as tiny_reader
from vlm_agent.screens.icons.tiny import SHA256, SHIPPED, TinyIcons, read
from vlm_agent.simulator.drawing.icons import glyph_mask

ROOT = Path(__file__).resolve().parents[3]
CARD = (SHIPPED.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reader():
    return read_icons("phone_icons_tiny")


def crop(mask, ink=0, background=255):
    """Grey levels of an icon on a background, with room around it."""
    share = np.pad(np.asarray(mask), 12).astype(np.float32) / 255
    return (background + share * (ink - background)).astype(np.uint8)


def test_the_weights_are_those_that_the_card_names():
    assert hashlib.sha256(SHIPPED.read_bytes()).hexdigest() == SHA256
    assert SHA256 in CARD and "Apache-2.0" in CARD and "OFL" in CARD
    assert SHIPPED.stat().st_size < 1_000_000


def test_they_come_from_the_recipe_of_the_repository():
    for name in ("phone_icons_tiny", "phone_icons_tiny_part_2"):
        recipe = ROOT / f"shipped_weights/icons/{name}.yaml"
        settings = TinyTraining(**read_mapping(recipe, RecipeError))
        assert f"--config shipped_weights/icons/{name}.yaml" in CARD
        assert f"{settings.steps:,} steps of {settings.batch_size}" in CARD and f"seed {settings.seed}" in CARD
    assert settings.start == "runs/phone_icons_tiny"


def test_they_hold_the_meanings_in_order_and_0_24_million_parameters():
    network, meanings = read(SHIPPED)
    assert meanings == list(MEANINGS)
    assert sum(parameter.numel() for parameter in network.parameters()) < 300_000
    with safe_open(SHIPPED, "pt") as file:
        assert set(file.metadata()) == {"format", "meanings"}


def test_the_card_names_every_set_that_was_trained_on():
    assert all(text.partition(" (")[0] in CARD for text in SETS.values())


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    other = tmp_path / SHIPPED.name
    shutil.copyfile(SHIPPED, other)
    other.write_bytes(other.read_bytes()[:-1] + b"\x00\x01")
    monkeypatch.setattr(tiny_reader, "SHIPPED", other)
    with pytest.raises(CheckpointError, match=r"is not the phone_icons_tiny of this version .*; reinstall vlm-agent"):
        TinyIcons.open("")
    monkeypatch.setattr(tiny_reader, "SHIPPED", tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"cannot be read .*; reinstall vlm-agent"):
        TinyIcons.open("")


def test_most_icons_of_a_font_never_trained_on_are_named_rightly(reader):
    icons = [icon for icon in icons_of([HELD_OUT]) if not icon.name.endswith("thin")][::12]
    guesses = reader.read([crop(icon.mask) for icon in icons])
    right = [guess[0].name == icon.meaning for guess, icon in zip(guesses, icons, strict=True)]
    assert len(right) > 100 and np.mean(right) > 0.6


@pytest.mark.parametrize(("glyph", "meaning"), [("gear", "settings"), ("search", "search"), ("cart", "cart")])
@pytest.mark.parametrize("size", [16, 24, 60])
@pytest.mark.parametrize("colours", [(0, 255), (255, 0), (90, 200)])
def test_glyphs_of_the_simulated_phone_are_read_at_any_size_on_any_theme(reader, glyph, meaning, size, colours):
    assert reader.read([crop(glyph_mask(glyph, size), *colours)])[0][0].name == meaning


def test_grey_colour_and_transparent_crops_give_the_same_guesses(reader):
    grey = crop(glyph_mask("gear", 40))
    colour = np.repeat(grey[..., None], 3, 2)
    transparent = np.dstack([np.zeros_like(colour), 255 - grey])
    first, *others = reader.read([grey, colour, transparent, grey[..., None]])
    assert all([guess.name for guess in other] == [guess.name for guess in first] for other in others)


@pytest.mark.parametrize("shape", [(0, 0, 3), (1, 1, 3), (1, 30, 3), (30, 30, 3), (5, 0)])
def test_crops_in_which_nothing_is_drawn_have_no_guess(reader, shape):
    assert reader.read([np.full(shape, 200, np.uint8)]) == [()]
    assert reader.read([]) == []


@pytest.mark.parametrize(
    ("changed", "notes", "message"),
    [
        ({"head.bias": torch.zeros(3)}, {}, "does not fit the network"),
        ({"other": torch.zeros(3)}, {}, "does not fit the network"),
        ({"head.bias": torch.full((len(MEANINGS),), float("nan"))}, {}, "not numbers"),
        ({}, {"meanings": "[1"}, "has no meanings"),
    ],
)
def test_weights_that_do_not_fit_are_one_sentence(tmp_path, changed, notes, message):
    network, _ = read(SHIPPED)
    metadata = {"format": "phone_icons_tiny 1", "meanings": json.dumps(list(MEANINGS)), **notes}
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()} | changed
    save_file(tensors, tmp_path / "weights.safetensors", metadata | {"sha256": digest_of(tensors, metadata)})
    with pytest.raises(CheckpointError, match=message):
        read_icons(f"phone_icons_tiny:{tmp_path / 'weights.safetensors'}")
