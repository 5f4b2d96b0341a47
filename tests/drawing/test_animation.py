"""Traces as animated GIFs."""

import numpy as np
import pytest
from PIL import Image

from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import DONE, Heading, TraceStep, read_trace
from vlm_agent.drawing import animation, contact_sheet
from vlm_agent.drawing.animation import MAX_BYTES, animate
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.online.runs import BASELINES, EXPERT, play
from vlm_agent.simulator.demonstrations import simulated_tasks


@pytest.fixture
def trace(tmp_path):
    play(EXPERT, BASELINES[EXPERT], simulated_tasks(1, 0)[0], tmp_path / "trace")
    return read_trace(tmp_path / "trace")


def frames(path):
    with Image.open(path) as image:
        for number in range(image.n_frames):
            image.seek(number)
            yield np.array(image.convert("RGB")), image.info["duration"]


def test_every_step_is_a_frame_with_its_action_on_it(trace, tmp_path, monkeypatch):
    animate(trace, tmp_path / "new" / "a.gif")
    drawn = list(frames(tmp_path / "new" / "a.gif"))
    assert len(drawn) == len(trace.steps)
    assert drawn[-1][1] > drawn[0][1]
    monkeypatch.setattr(contact_sheet, "draw_action", lambda screen, *_, **__: screen)
    animate(trace, tmp_path / "bare.gif")
    bare = list(frames(tmp_path / "bare.gif"))
    for (with_action, _), (without, _) in zip(drawn, bare, strict=True):
        changed = np.abs(with_action.astype(int) - without).max(axis=2) > 100
        assert 50 < changed.sum() < 0.2 * changed.size
    assert (tmp_path / "new" / "a.gif").stat().st_size < MAX_BYTES


def test_a_gif_above_the_limit_is_drawn_smaller(trace, tmp_path, monkeypatch):
    animate(trace, tmp_path / "large.gif")
    size = (tmp_path / "large.gif").stat().st_size
    monkeypatch.setattr(animation, "MAX_BYTES", size - 1)
    animate(trace, tmp_path / "small.gif")
    assert (tmp_path / "small.gif").stat().st_size < size
    assert next(frames(tmp_path / "small.gif"))[0].shape[0] < next(frames(tmp_path / "large.gif"))[0].shape[0]


@pytest.mark.parametrize("height", [560, 252])
def test_no_caption_is_cut_at_the_coordinates(tmp_path, monkeypatch, height):
    short, long = "tap at 123 456", "I see many words, and therefore " * 9 + "tap at 123 456"
    with TraceWriter(tmp_path / "t", Heading("1", "goal", "agent", "phone")) as writer:
        for number, answer in enumerate((short, long)):
            name = writer.screen(number, np.zeros((448, 208, 3), np.uint8)).name
            writer.step(TraceStep(number, name, "", None, answer, Action.tap(0.25, 0.5)))
            writer.outcome(number, DONE)
    written = []
    monkeypatch.setattr(animation, "_HEIGHTS", (height,))
    monkeypatch.setattr(animation, "_write", lambda _draw, _at, lines, *_: written.append(" ".join(lines)))
    animate(read_trace(tmp_path / "t"), tmp_path / "a.gif")
    assert written == ["goal", "tap at 123 456", "goal", "tap at x 0.50, y 0.25"]


def test_a_trace_without_steps_is_refused(tmp_path):
    with TraceWriter(tmp_path / "t", Heading("1", "goal", "agent", "phone")) as writer:
        writer.end("stopped")
    with pytest.raises(DatasetError, match="no step"):
        animate(read_trace(tmp_path / "t"), tmp_path / "a.gif")
