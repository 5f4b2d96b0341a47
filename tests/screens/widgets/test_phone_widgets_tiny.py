"""The shipped detector is the one its card describes, and finds most widgets of screens that it has never seen."""

import hashlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from shipped_weights.screens.samples import sample
from shipped_weights.widgets.settings import read_settings
from vlm_agent.episodes import WIDGET_KINDS
from vlm_agent.errors import CheckpointError
from vlm_agent.screens.widgets import read_widgets, tiny
from vlm_agent.screens.widgets.boxes import corners, overlap
from vlm_agent.screens.widgets.tiny import SHA256, SHIPPED, PhoneWidgetsTiny

ROOT = Path(__file__).resolve().parents[3]
RECIPES = [ROOT / f"shipped_weights/widgets/phone_widgets_tiny{part}.yaml" for part in ("", "_part_2")]


def card() -> str:
    return (SHIPPED.parent / "README.md").read_text(encoding="utf-8")


def test_the_card_names_weights_licence_recipe_and_their_size():
    assert hashlib.sha256(SHIPPED.read_bytes()).hexdigest() == SHA256
    assert SHA256 in card() and "Apache-2.0" in card()
    assert SHIPPED.stat().st_size < 2_000_000
    parameters = sum(
        tensor.numel()
        for name, tensor in load_file(SHIPPED).items()
        if "running" not in name and "num_batches" not in name
    )
    assert f"{parameters:,}" in card()
    assert PhoneWidgetsTiny.load().side == read_settings(RECIPES[0]).side
    runs = [read_settings(path) for path in RECIPES]
    assert runs[1].start == f"{runs[0].output}/model.safetensors"
    assert runs[1].first_sample == runs[0].steps * runs[0].batch_size  # no screen is seen twice
    for path, run in zip(RECIPES, runs, strict=True):
        screens = f"{run.steps * run.batch_size:,} screens"
        assert path.name in card() and screens in card() and screens in path.read_text(encoding="utf-8")


def test_most_widgets_of_unseen_screens_are_found_with_their_kind():
    found_of, predicted, right_states, states = [], 0, 0, 0
    reader = read_widgets("phone_widgets_tiny")
    for number in range(12):
        pixels, truth = sample(10**9, number)
        found = reader.detect(pixels)
        kinds = [WIDGET_KINDS.index(widget.kind) for widget in truth], [WIDGET_KINDS.index(w.kind) for w in found]
        ious = overlap(corners(truth), corners(found)) * (np.array(kinds[0])[:, None] == np.array(kinds[1], int))
        found_of += (ious.max(1, initial=0) >= 0.5).tolist()
        predicted += len(found)
        for row, widget in enumerate(truth):
            if widget.kind in reader.with_state and ious[row].max(initial=0) >= 0.5:
                states += 1
                right_states += found[int(ious[row].argmax())].on == widget.on
    assert np.mean(found_of) >= 0.7
    assert sum(found_of) / predicted >= 0.65
    assert right_states / states >= 0.8


def test_a_screen_without_widgets_has_none():
    reader = read_widgets("phone_widgets_tiny")
    assert reader.detect(np.full((448, 208, 3), 255, np.uint8)) == ()
    assert len(reader.detect(np.zeros((1, 1, 3), np.uint8))) <= 1


def test_a_damaged_or_missing_file_is_refused(tmp_path, monkeypatch):
    copy = tmp_path / "model.safetensors"
    shutil.copy(SHIPPED, copy)
    content = bytearray(copy.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    monkeypatch.setattr(tiny, "SHIPPED", copy)
    with pytest.raises(CheckpointError, match=r"not the phone_widgets_tiny of this version .*reinstall vlm-agent"):
        read_widgets("phone_widgets_tiny")
    copy.unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read .*reinstall vlm-agent"):
        read_widgets("phone_widgets_tiny")


def test_the_card_has_figures_for_every_kind():
    rows = re.findall(r"^\| (\w+) \|", card(), re.MULTILINE)
    assert set(WIDGET_KINDS) <= set(rows)
