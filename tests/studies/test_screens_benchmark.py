"""studies/screens counts pairs of boxes once, and what is drawn inside an area that reacts to touches."""

import json

import numpy as np
import pytest

from studies.screens import __main__ as benchmark
from studies.screens.counts import figures, of_texts, of_widgets, pairs
from studies.screens.screens import Shown, annotated, drawn, ink_box
from vlm_agent.episodes import Widget
from vlm_agent.screens.seen import Text

BUTTON, SWITCH = (0.1, 0.1, 0.2, 0.2), (0.5, 0.5, 0.1, 0.2)
BLACK = np.zeros((100, 100, 3), np.uint8)


def shown(*widgets: Widget, texts=(), touch_areas=False) -> Shown:
    return Shown("x", BLACK, widgets, texts, touch_areas)


def test_a_true_box_is_in_one_pair_with_the_surest_box_that_overlaps_it():
    ious = np.array([[0.9, 0.6, 0.4], [0.0, 0.55, 0.0]])
    found = [Widget("image", BUTTON, score=score) for score in (0.5, 0.9, 0.99)]
    assert pairs(ious, found) == [(0, 1)]
    assert pairs(np.zeros((0, 3)), found) == []
    assert pairs(np.zeros((2, 0)), []) == []


def test_kinds_states_and_centres_are_counted_apart():
    truth = shown(
        Widget("button", BUTTON), Widget("switch", SWITCH, True), Widget("switch", (0.8, 0.8, 0.1, 0.1), False)
    )
    found = [
        Widget("image", BUTTON),  # another kind
        Widget("switch", SWITCH, False, 0.9),  # the wrong state
        Widget("switch", SWITCH, True, 0.8),  # a second box
        Widget("switch", (0.84, 0.84, 0.02, 0.02), False),  # too small, its centre within
    ]
    result = figures(of_widgets(truth, found))
    assert result["button"] == {"truth": 1, "recall": 0, "precision": None, "centre": 100, "located": 100}
    assert result["switch"] == {
        "truth": 2,
        "recall": 50,
        "precision": 33.3,
        "centre": 100,
        "located": 50,
        "state_right": 0,
    }
    assert result["any"] == {"truth": 3, "recall": 66.7, "precision": 50, "centre": 100, "located": 66.7}


def test_texts_are_read_where_they_are():
    truth = shown(texts=((BUTTON, "Sign in"), (SWITCH, "Monday")))
    found = [Text((0.1, 0.1, 0.2, 0.19), "sign  IN"), Text((0.7, 0.7, 0.1, 0.1), "Monday")]
    row = figures(of_texts(truth, found))["text"]
    assert (row["recall"], row["precision"], row["centre"], row["read"], row["similar"]) == (50, 50, 50, 50, 50)


def test_ink_is_what_differs_from_the_border_of_an_area():
    pixels = BLACK.copy()
    pixels[20:30, 40:45] = 255
    assert ink_box(pixels, (0.1, 0.2, 0.5, 0.5)) == pytest.approx((0.2, 0.4, 0.1, 0.05))
    assert ink_box(pixels, (0.5, 0.5, 0.2, 0.2))[2:] == (0, 0)
    assert ink_box(pixels, (0.5, 0.5, 0.0, 0.2))[2:] == (0, 0)


def test_annotated_elements_are_texts_or_widgets_of_the_kind_of_their_class(tmp_path):
    from PIL import Image

    def element(class_: str, text: str | None, checkable: bool = False) -> dict:
        bounds = [0.1, 0.2, 0.3, 0.6]
        return {"class_": class_, "text": text, "checkable": checkable, "checked": True, "bounds_ltrb": bounds}

    elements = [
        element("android.widget.TextView", " Hi "),
        element("x.SwitchCompat", ""),
        element("x.Switch", None, True),
    ]
    (tmp_path / "a.json").write_text(json.dumps({"elements": elements}))
    Image.fromarray(BLACK).save(tmp_path / "a.jpg")
    [one] = [load() for load in annotated(tmp_path)]
    assert one.texts == ((pytest.approx((0.2, 0.1, 0.4, 0.2)), "Hi"),)
    assert [(widget.kind, widget.on) for widget in one.widgets] == [("other", None), ("switch", True)]


def test_the_same_command_measures_only_what_is_missing(tmp_path):
    calls = []

    def read(pixels: np.ndarray) -> list[Widget]:
        calls.append(pixels.shape)
        return []

    reader = benchmark.Reader("none", read, of_widgets)
    first = benchmark.measure(benchmark.Results(tmp_path / "r.jsonl"), "phones", drawn("phones", 2), [reader])
    assert len(calls) == 2
    with (tmp_path / "r.jsonl").open("a") as file:
        file.write('[["phones", "no')  # a killed run
    again = benchmark.measure(benchmark.Results(tmp_path / "r.jsonl"), "phones", drawn("phones", 3), [reader])
    assert len(calls) == 3
    assert first["none"]["screens"] == 2 and again["none"]["screens"] == 3
    fewer = benchmark.measure(benchmark.Results(tmp_path / "r.jsonl"), "phones", drawn("phones", 2), [reader])
    assert fewer["none"]["kinds"] == first["none"]["kinds"]
