"""Targets of the network decode to the widgets that they were written from."""

import numpy as np
import pytest

from shipped_weights.screens.samples import sample
from shipped_weights.widgets.targets import targets
from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.screens.widgets.boxes import corners, overlap
from vlm_agent.screens.widgets.tiny import decode

STATES = ("switch", "check_box")


def written(widgets, size):
    """(logits, details) of a network that has learned `targets` perfectly."""
    grid = (-(-size[0] // 4), -(-size[1] // 4))
    wanted, kinds = targets(widgets, size, grid), len(WIDGET_KINDS)
    heat = np.clip(wanted.heat, 1e-6, 1 - 1e-6)
    found = np.zeros((*grid, kinds * 4 + 1), np.float32)
    for (kind, row, column), box in zip(wanted.cells, wanted.boxes, strict=True):
        found[row, column, [kinds * part + kind for part in range(4)]] = box
    for (row, column), is_on in zip(wanted.states, wanted.is_on, strict=True):
        found[row, column, -1] = 2 * is_on - 1
    return np.log(heat / (1 - heat)), lambda rows, columns: found[rows, columns]


def test_widgets_of_every_shape_come_back_with_kind_box_and_state():
    widgets = (
        Widget("status_bar", (0, 0, 0.03, 1)),
        Widget("button", (0.2, 0.1, 0.1, 0.3)),
        Widget("image", (0.22, 0.2, 0.06, 0.1)),  # in the middle of the button
        Widget("page_indicator", (0.5, 0.4, 0.005, 0.1)),
        Widget("switch", (0.7, 0.8, 0.02, 0.06), True),
        Widget("check_box", (0.8, 0.8, 0.02, 0.03), False),
    )
    found = decode(*written(widgets, (693, 317)), (693, 317), STATES)
    assert [(one.kind, one.on) for one in found] == [(one.kind, one.on) for one in widgets]
    np.testing.assert_allclose([one.box for one in found], [one.box for one in widgets], atol=1e-5)
    assert min(one.score for one in found) > 0.99


@pytest.mark.parametrize("number", range(6))
def test_drawn_screens_can_be_written_and_read_without_loss(number):
    pixels, widgets = sample(7, number)
    found = decode(*written(widgets, pixels.shape[:2]), pixels.shape[:2], STATES)
    kinds = np.array([one.kind for one in found])
    same = overlap(corners(widgets), corners(found)) * (np.array([one.kind for one in widgets])[:, None] == kinds)
    assert (same.max(1, initial=0) > 0.95).mean() > 0.97  # two of a kind with centres in one cell are one


def test_weak_overlapping_and_padded_centres_are_dropped():
    widgets = (Widget("button", (0.1, 0.1, 0.3, 0.3)), Widget("image", (0.7, 0.7, 0.1, 0.1)))
    logits, details = written(widgets, (96, 96))
    logits[WIDGET_KINDS.index("image")] -= 15
    [found] = decode(logits, details, (96, 96), STATES)
    assert found.kind == "button" and found.on is None
    assert decode(logits, details, (8, 8), STATES) == ()  # everything lies in the padding
    assert decode(np.full_like(logits, -9), details, (96, 96), STATES) == ()


def test_a_picture_without_widgets_has_targets_without_rows():
    wanted = targets((), (64, 32), (16, 8))
    assert wanted.heat.shape == (len(WIDGET_KINDS), 16, 8) and not wanted.heat.any()
    assert (wanted.cells.shape, wanted.boxes.shape, wanted.states.shape) == ((0, 3), (0, 4), (0, 2))
