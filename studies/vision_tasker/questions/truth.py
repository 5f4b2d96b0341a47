"""Screens on which the expert taps, with all that the phone knows of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

import numpy as np

from vlm_agent.episodes import UiElement, Widget
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.demonstrations import phone_seed, subset_of
from vlm_agent.simulator.drawing.canvas import Canvas, Target
from vlm_agent.simulator.opening import SimulatedTask

Point = tuple[float, float]


@dataclass(frozen=True)
class Truth:
    """One screen. `targets`: (key, (left, top, right, bottom) in pixels), the topmost last; `key`: the one that the
    expert taps. `wanted_texts`: what names it; `wanted_icon`: its annotation's type, if no text does. `rows`: texts of
    each row of the list, its name first. `tabs`: (label, whether it is active)."""

    name: str
    goal: str
    pixels: np.ndarray
    elements: tuple[UiElement, ...]
    widgets: tuple[Widget, ...]
    targets: tuple[tuple[str, tuple[int, int, int, int]], ...]
    key: str
    wanted_texts: tuple[str, ...]
    wanted_icon: str
    states: dict[str, bool]
    tabs: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str, ...], ...]

    def key_at(self, point: Point) -> str | None:
        """The key of the topmost target at (y, x) in screen fractions, as the phone finds it."""
        row, column = point[0] * self.pixels.shape[0], point[1] * self.pixels.shape[1]
        for key, (left, top, right, bottom) in reversed(self.targets):
            if left <= column <= right and top <= row <= bottom:
                return key
        return None


def expert_taps(size: tuple[int, int]) -> Iterator[Truth]:
    """The screens of all taps of the expert in test episodes, episode by episode, without end. `size`: (height, width)
    in pixels."""
    seed = 0
    while True:
        number = phone_seed(seed, "test")
        simulated = SimulatedTask(subset_of(number), "test", number, size)
        phone, task = simulated.fresh_phone()
        steps = task.solve(phone, pixels=False)
        phone, task = simulated.fresh_phone()
        for index, step in enumerate(steps):
            if step.action.is_tap:
                target = phone.target_at(*step.action.touch_yx)
                if target is not None and target.key:
                    yield truth_of(f"{seed}-{index}", task.goal, phone, target)
            phone.perform(step.action)
        seed += 1


def truth_of(name: str, goal: str, phone: SimulatedPhone, target: Target) -> Truth:
    canvas = phone.canvas()
    aim = [note for note in canvas.notes if _holds(target.aim, note[0]) or _holds(note[0], target.aim)]
    texts = [text for _, text, kind in aim if kind == "TEXT"]
    if not texts:
        texts = [text for box, text, kind in canvas.notes if kind == "TEXT" and _holds(target.hit, box)]
    icons = [kind for _, _, kind in aim if kind != "TEXT"]
    return Truth(
        name,
        goal,
        phone.screenshot(),
        phone.elements(),
        phone.widgets(),
        tuple((one.key, one.hit) for one in canvas.targets),
        target.key,
        tuple(texts),
        icons[0] if icons and not texts else "",
        dict(canvas.states),
        tuple((tab.label, tab.active) for tab in phone.tabs()),
        rows_of(canvas),
    )


def rows_of(canvas: Canvas) -> tuple[tuple[str, ...], ...]:
    """The texts of each touchable row that is as wide as the screen, from top to bottom, its name first."""
    rows = []
    for target in canvas.targets:
        left, _, right, _ = target.hit
        if not target.key or left > 0 or right < canvas.size[1]:
            continue
        inside = [(box, text) for box, text, kind in canvas.notes if kind == "TEXT" and _holds(target.hit, box)]
        name = [text for box, text in inside if box == target.aim]
        if name:
            rest = sorted((box[1], box[0], text) for box, text in inside if box != target.aim)
            rows.append((target.hit[1], (name[0], *(text for _, _, text in rest))))
    return tuple(row for _, row in sorted(rows))


def _holds(box: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    """Whether the centre of `other` lies in `box`; (left, top, right, bottom)."""
    x, y = (other[0] + other[2]) / 2, (other[1] + other[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def view_tree(elements: tuple[UiElement, ...], size: tuple[int, int]) -> str:
    """The elements with the attributes that Android's `uiautomator dump` gives every node."""
    return "<hierarchy>" + "".join(_node(index, one, size) for index, one in enumerate(elements)) + "</hierarchy>"


def _node(index: int, element: UiElement, size: tuple[int, int]) -> str:
    y, x, tall, wide = element.box
    top, left, bottom, right = (
        round(side) for side in (y * size[0], x * size[1], (y + tall) * size[0], (x + wide) * size[1])
    )
    is_text = element.type == "TEXT"
    described = "" if is_text else element.type.removeprefix("ICON_").lower().replace("_", " ")
    kind = "android.widget.TextView" if is_text else "android.widget.ImageView"
    return (
        f'<node index="{index}" text={quoteattr(element.text)} resource-id="" class="{kind}" package="" '
        f'content-desc={quoteattr(described)} checkable="false" checked="false" clickable="true" enabled="true" '
        f'focusable="true" focused="false" scrollable="false" long-clickable="false" password="false" '
        f'selected="false" bounds="[{left},{top}][{right},{bottom}]" />'
    )
