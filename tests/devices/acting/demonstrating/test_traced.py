"""A demonstration from a trace: its performed steps, and a count by reason of the steps that it lacks."""

import numpy as np
import pytest

from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import DONE, FAILED, IN_DOUBT, UNPARSED, WITHHELD, Heading, TraceStep
from vlm_agent.devices.acting.demonstrating.observed import ObservedScreen, of_trace
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError

SCREEN = np.zeros((8, 4, 3), np.uint8)


def write_trace(folder, outcomes):
    with TraceWriter(folder, Heading("1", "buy", "agent", "phone")) as trace:
        for number, outcome in enumerate(outcomes):
            screen = trace.screen(number, SCREEN).name
            action = None if outcome == UNPARSED else Action.tap(0.5, number / 10)
            trace.step(TraceStep(number, screen, "", (), "", action))
            trace.outcome(number, outcome)


def test_the_steps_that_a_demonstration_lacks_are_counted_by_reason(tmp_path):
    write_trace(tmp_path / "trace", [DONE, WITHHELD, UNPARSED, WITHHELD, FAILED, DONE, IN_DOUBT, DONE])
    _, observed = of_trace(tmp_path / "trace")
    assert [one.action.touch_yx for one in observed.actions] == [(0.5, 0.0), (0.5, 0.5)]
    assert observed.left_out == {
        "withheld": 2,
        "no action": 1,
        "failed": 1,
        "in doubt": 1,
        "after an action in doubt": 1,
    }


def test_a_demonstration_keeps_pixels_only_on_request(tmp_path):
    write_trace(tmp_path / "trace", [DONE])
    assert of_trace(tmp_path / "trace")[1].actions[0].screen.pixels is None
    np.testing.assert_array_equal(of_trace(tmp_path / "trace", keeps_pixels=True)[1].actions[0].screen.pixels, SCREEN)


def test_a_trace_without_a_performed_action_is_no_demonstration(tmp_path):
    write_trace(tmp_path / "trace", [WITHHELD, IN_DOUBT])
    with pytest.raises(DatasetError, match=r"no action of the trace .* was performed"):
        of_trace(tmp_path / "trace")


def test_a_screen_is_the_same_whatever_its_pixels():
    """Comparing arrays would be an error, and printing them takes the log over."""
    screens = [ObservedScreen("app/.Main", (), pixels=pixels) for pixels in (SCREEN, SCREEN + 1, None)]
    assert screens[0] == screens[1] == screens[2] != ObservedScreen("app/.Other", ())
    assert "pixels" not in repr(screens[0])
