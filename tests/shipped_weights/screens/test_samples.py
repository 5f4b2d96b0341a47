"""The stream of screens with their widgets: determined by seed and number, of every kind and several sizes."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from shipped_weights.screens.samples import SIZES, SampleSettings, sample
from vlm_agent.episodes import WIDGET_KINDS

SMALL = ((448, 208),)
COLLAGES = SampleSettings(collage=1.0, sizes=SMALL)


def equal(one, other) -> bool:
    return np.array_equal(one[0], other[0]) and one[1] == other[1]


@pytest.mark.parametrize("collage", [0.0, 1.0])
def test_a_sample_depends_on_the_seed_and_its_number_alone(collage):
    settings = SampleSettings(collage=collage, sizes=SMALL)
    first = [sample(3, number, settings) for number in range(4)]
    resumed = [sample(3, number, settings) for number in (2, 3)]
    assert all(equal(*pair) for pair in zip(first[2:], resumed, strict=True))
    assert not equal(first[0], first[1])
    assert not equal(first[0], sample(4, 0, settings))


@pytest.mark.parametrize(
    ("collage", "digest"), [(0.0, "fd30b8fadc43a30f"), (1.0, "51a769d9af3eec76")], ids=["phones", "collages"]
)
def test_samples_keep_their_pixels_and_widgets(collage, digest):
    """The published weights of the detector were trained on these. Boxes are rounded. Another Pillow may draw
    other pixels."""
    state = hashlib.sha256(repr(SIZES).encode())
    settings = SampleSettings(collage=collage, sizes=SMALL)
    for pixels, widgets in (sample(5, number, settings) for number in range(12)):
        boxes = [(one.kind, one.on, [round(value, 5) for value in one.box]) for one in widgets]
        state.update(pixels.tobytes() + repr((pixels.shape, boxes)).encode())
    assert state.hexdigest()[:16] == digest


def test_pixels_have_the_listed_sizes_and_boxes_lie_on_the_screen():
    sizes = set()
    for pixels, widgets in (sample(0, number) for number in range(12)):
        assert pixels.dtype == np.uint8
        sizes.add(pixels.shape[:2])
        for widget in widgets:
            y, x, height, width = widget.box
            assert widget.kind in WIDGET_KINDS
            assert min(y, x) >= 0 < min(height, width)
            assert max(y + height, x + width) <= 1 + 1e-9
    assert len(sizes) > 3
    assert sizes <= set(SIZES)
    assert max(width for _, width in sizes) > 208


def test_collages_show_every_kind_and_the_rare_ones_are_not_rare():
    counts = Counter(widget.kind for number in range(40) for widget in sample(0, number, COLLAGES)[1])
    assert set(counts) == set(WIDGET_KINDS)
    assert min(counts.values()) * 12 > max(counts.values())


def test_controls_with_two_states_come_in_both():
    states = {kind: Counter() for kind in ("check_box", "radio_group", "switch")}
    for _, widgets in (sample(1, number, COLLAGES) for number in range(30)):
        for widget in widgets:
            if widget.kind in states:
                states[widget.kind][widget.on] += 1
    for counts in states.values():
        assert set(counts) == {True, False}
        assert min(counts.values()) > 3
