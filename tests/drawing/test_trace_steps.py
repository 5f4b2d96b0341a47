"""Steps of a trace as pictures: nobody takes an action that was withheld, or is in doubt, for a performed one."""

import numpy as np
import pytest
from PIL import Image

from vlm_agent.cli import OK, main
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import (
    DONE,
    FAILED,
    IN_DOUBT,
    OUTCOME_WORDS,
    OUTCOMES,
    UNPARSED,
    WITHHELD,
    Heading,
    TraceStep,
    read_trace,
)
from vlm_agent.drawing import shapes
from vlm_agent.drawing.actions import PREDICTED, describe_with_place
from vlm_agent.drawing.contact_sheet import DOUBTFUL, NOT_PERFORMED, caption, draw_step, outcomes_in_words, trace_sheet
from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import DatasetError

COLOURS = {DONE: PREDICTED, IN_DOUBT: DOUBTFUL, FAILED: NOT_PERFORMED, WITHHELD: NOT_PERFORMED, UNPARSED: NOT_PERFORMED}
ACTIONS = (Action.tap(0.3, 0.5), Action.swipe((0.8, 0.5), (0.2, 0.5)), Action.type_text("hi"), Action.press("home"))


def write(folder, steps):
    """A trace of (action, outcome)."""
    with TraceWriter(folder, Heading("1", "buy a phone", "agent", "phone")) as writer:
        for number, (action, outcome) in enumerate(steps):
            screen = writer.screen(number, np.full((448, 208, 3), 255, np.uint8)).name
            writer.step(TraceStep(number, screen, "", (), f"answer {number}", action))
            writer.outcome(number, outcome)
    return read_trace(folder)


def colours_in(image):
    pixels = np.asarray(image).reshape(-1, 3)
    return {colour for colour in COLOURS.values() if (pixels == colour).all(axis=1).sum() > 20}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_each_outcome_has_its_colour_and_all_but_performed_ones_their_name(action, outcome, tmp_path, monkeypatch):
    labels, draw_pill = [], shapes.pill
    monkeypatch.setattr(shapes, "pill", lambda image, text, *rest: (labels.append(text), draw_pill(image, text, *rest)))
    trace = write(tmp_path / "t", [(None if outcome == UNPARSED else action, outcome)])
    drawn = draw_step(trace, trace.steps[0], 448)
    assert colours_in(drawn) == {COLOURS[outcome]}
    assert any(OUTCOME_WORDS[outcome] in label for label in labels) == (outcome != DONE)


def test_a_sheet_has_every_step_of_the_trace_and_counts_the_outcomes(tmp_path):
    steps = [(Action.tap(0.5, 0.5), outcome) for outcome in (DONE, WITHHELD, IN_DOUBT)]
    trace = write(tmp_path / "t", [*steps, (None, UNPARSED)])
    assert outcomes_in_words(trace) == "4 steps: 1 performed, 1 in doubt, 1 withheld, 1 no action"
    assert colours_in(trace_sheet(trace)) == {PREDICTED, DOUBTFUL, NOT_PERFORMED}
    one = write(tmp_path / "one", steps[:1])
    assert trace_sheet(trace).width > 3 * trace_sheet(one).width / 2


def test_a_trace_in_which_nothing_was_performed_is_drawn(tmp_path, capsys):
    write(tmp_path / "t", [(Action.tap(0.5, 0.5), WITHHELD)])
    sheet, moving = tmp_path / "sheet.png", tmp_path / "a.gif"
    assert main(["inspect", str(tmp_path / "t"), "--output", str(sheet), "--animate", str(moving)]) == OK
    assert "1 steps: 1 withheld" in capsys.readouterr().out
    for path in (sheet, moving):
        with Image.open(path) as image:
            assert image.width > 200


def test_a_trace_without_steps_has_no_sheet(tmp_path):
    with pytest.raises(DatasetError, match="no steps to draw"):
        trace_sheet(write(tmp_path / "t", []))


def test_an_answer_that_does_not_fit_is_replaced_by_its_action_with_the_place():
    letters = shapes.font(15)
    step = TraceStep(0, "", "", None, "word " * 90 + "tap at 7 90", Action.tap(0.1, 0.9))
    assert caption(step, letters, 300, 2) == ["tap at x 0.90, y 0.10"]
    assert caption(TraceStep(0, "", "", None, "tap at 7 90", Action.tap(0.1, 0.9)), letters, 300, 2) == ["tap at 7 90"]


def test_an_action_is_described_with_its_place_and_the_element_there():
    elements = (UiElement((0, 0, 1, 1), "page"), UiElement((0.2, 0.4, 0.2, 0.2), "", "ICON_CART"))
    assert describe_with_place(Action.tap(0.3, 0.5), elements) == 'tap "ICON_CART" at x 0.50, y 0.30'
    assert describe_with_place(Action.tap(0.3, 0.5)) == "tap at x 0.50, y 0.30"
    swipe = Action.swipe((0.8, 0.5), (0.2, 0.5))
    whole = (UiElement((0.0, 0.0, 1.0, 1.0), "", "ICON_CHAT"),)
    for beneath in ((), whole):  # the agent's answer names what a swipe brings into view
        assert describe_with_place(swipe, beneath) == "swipe up at x 0.50, y 0.80 to x 0.50, y 0.20"
    assert describe_with_place(Action.press("home"), elements) == "press home"
