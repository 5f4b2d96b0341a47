"""Small episodes for tests."""

import zlib

import numpy as np

from vlm_agent.datasets.sources.traces import Trace
from vlm_agent.episodes import Action, Episode, Step, UiElement

ACTIONS = (
    Action.tap(0.25, 0.75),
    Action.swipe((0.8, 0.5), (0.2, 0.5)),
    Action.type_text('grüße "世界" 👋\n'),
    Action.press("back"),
    Action.press("home"),
    Action.press("enter"),
    Action.complete(),
    Action.impossible(),
)

ELEMENTS = (UiElement((0.1, 0.2, 0.05, 0.4), "Suche 🔍", "TEXT"), UiElement((0.9, 0.4, 0.05, 0.1), "", "ICON_HOME"))


def made_screen(height: int = 40, width: int = 24, seed: int = 0) -> np.ndarray:
    """Noise, so that every byte of it matters."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def made_episode(
    id: str = "7", subset: str = "general", actions: tuple[Action, ...] = ACTIONS, size: tuple[int, int] = (40, 24)
) -> Episode:
    steps = tuple(
        Step(
            made_screen(*size, seed=zlib.crc32(f"{id} {number}".encode())),
            action,
            ELEMENTS[: number % 3],
            f"app/.Activity{number}",
        )
        for number, action in enumerate(actions)
    )
    return Episode(id, subset, f"do “{id}” 🙂", steps, "pixel_4", 30)


def assert_same_episode(got: Episode, expected: Episode, pixels: bool = True) -> None:
    """Equal in every field; points and boxes as float32, which is what files hold."""
    for name in ("id", "subset", "goal", "device_type", "android_api_level"):
        assert getattr(got, name) == getattr(expected, name), name
    assert len(got) == len(expected)
    for step, other in zip(got.steps, expected.steps, strict=True):
        assert step.action == as_float32(other.action)
        assert [(e.text, e.type) for e in step.elements] == [(e.text, e.type) for e in other.elements]
        boxes = [tuple(np.asarray(element.box, np.float32).tolist()) for element in other.elements]
        assert [element.box for element in step.elements] == boxes
        assert step.activity == other.activity
        if pixels:
            assert step.screenshot.dtype == np.uint8
            assert np.array_equal(step.screenshot, other.screenshot)
        else:
            assert step.screenshot is None


def as_float32(action: Action) -> Action:
    touch, lift = (tuple(np.asarray(point, np.float32).tolist()) for point in (action.touch_yx, action.lift_yx))
    return Action(action.kind, touch, lift, action.text)


def traced_episode(trace: Trace) -> Episode:
    """The performed steps of a trace as a demonstration, with pixels."""
    steps = tuple(
        Step(trace.screen(step), action, step.elements or (), step.activity, step.notes)
        for step, action in trace.performed()
    )
    heading = trace.heading
    return Episode(heading.id, heading.subset, heading.goal, steps, heading.device)
