import importlib.util

import numpy as np
import pytest

from shipped_weights.icons import fonts
from shipped_weights.icons.drawn import SIZES, draw
from shipped_weights.icons.fonts import SETS, SIMULATED, Names, icons_of
from vlm_agent.errors import DatasetError
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.icons.crops import normalised
from vlm_agent.simulator.drawing.glyphs import GLYPHS

NAMES = Names.read()


def test_each_name_of_an_icon_has_one_meaning_and_each_meaning_has_names():
    table = fonts.yaml.safe_load((fonts.Path(fonts.__file__).parent / "icon_names.yaml").read_text("utf-8"))
    for part in table.values():
        names = [name for line in part.values() for name in line.split()]
        assert len(names) == len(set(names))
    assert set(table["fonts"]) == set(MEANINGS)
    assert set(NAMES.of_simulated) <= set(GLYPHS) and set(NAMES.of_simulated.values()) <= set(MEANINGS)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("bell", "notification"),
        ("bell-outline", "notification"),
        ("bell-circle-outline", "notification"),
        ("bell-off-outline", "notification_off"),
        ("circle-play", "play"),
        ("bell-cog", None),
        ("outline", None),
    ],
)
def test_words_for_style_and_shape_do_not_change_a_meaning_and_all_others_do(name, meaning):
    assert NAMES.meaning(name) == meaning


def test_codicons_brands_and_the_held_out_set_are_not_trained_on():
    assert not any(set_.startswith(("codicon", "phosphor")) or "brands" in set_ for set_ in SETS)


def test_icons_are_cropped_to_their_ink():
    icons = icons_of(["elusiveicons", SIMULATED])
    assert len(icons) > 400
    for icon in icons[:50]:
        assert max(icon.mask.shape) == fonts.MASK_SIDE
        assert icon.meaning in MEANINGS


def test_every_meaning_has_icons_to_train_on():
    assert {icon.meaning for icon in icons_of([*SETS])} == set(MEANINGS)


def test_without_qtawesome_the_error_names_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DatasetError, match="pip install qtawesome"):
        icons_of(["elusiveicons"])


def test_drawn_crops_depend_on_the_seed_alone_and_almost_all_show_something():
    mask = icons_of([SIMULATED])[0].mask
    first, again = ([draw(mask, np.random.default_rng(seed)) for seed in range(60)] for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert all(one.dtype == np.uint8 and one.shape[2] == 3 for one in first)
    assert min(max(one.shape) for one in first) < 2 * SIZES[0] and max(max(one.shape) for one in first) > SIZES[1] / 2
    assert sum(normalised(one, 32) is not None for one in first) >= 58
