"""The expert: turns a goal's plan into what a person's finger does, and records it."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vlm_agent.devices.simulated_phone.canvas import Canvas, Target
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.episodes import Action, Step

LONGEST = 60
"""Steps after which a plan is taken to be going in circles."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What the expert wants next: tap or press something by its key, type, swipe, or declare the end."""

    verb: str
    what: str = ""


Plan = Callable[[SimulatedPhone], Iterator[Intent]]
"""A generator of intents that may look at the phone between them; its place in the code is the expert's memory."""


def tap(key: str) -> Intent:
    """Tap the target; where it does not show, swipe until it does."""
    return Intent("tap", key)


def see(key: str) -> Intent:
    """Swipe until the target shows."""
    return Intent("see", key)


def type_text(text: str) -> Intent:
    return Intent("type", text)


def swipe(direction: str) -> Intent:
    """`up`, `down`, `left`, `right`, or `shade`: down from the top edge."""
    return Intent("swipe", direction)


HOME, BACK, ENTER, IMPOSSIBLE = (Intent(verb) for verb in ("home", "back", "enter", "impossible"))


def open_app(phone: SimulatedPhone, name: str) -> Iterator[Intent]:
    """From wherever the phone is to the app in front; nothing where it is in front already."""
    if phone.front == name:
        return
    if not phone.at_home:
        yield HOME
    yield tap(f"app:{name}")


def jittered_tap(box: tuple[int, int, int, int], size: tuple[int, int], rng: random.Random) -> Action:
    """A tap near the middle of a box (pixels), never outside it."""
    left, top, right, bottom = box
    x = (left + right) / 2 + _bounded(rng, 0.16, 0.42) * (right - left)
    y = (top + bottom) / 2 + _bounded(rng, 0.16, 0.42) * (bottom - top)
    return Action.tap(_fraction(y / size[0]), _fraction(x / size[1]))


def jittered_swipe(direction: str, canvas: Canvas, at_y: float | None, rng: random.Random) -> Action:
    """A swipe over the scrolling part of the screen; sideways at `at_y` (pixels) where that matters."""
    height, _ = canvas.size
    if direction == "shade":
        return _swipe((rng.uniform(0.004, 0.02), rng.gauss(0.5, 0.12)), "down", rng.uniform(0.35, 0.65), rng)
    top, bottom = canvas.body[0] / height, canvas.body[1] / height
    if direction in ("up", "down"):
        length = rng.uniform(0.38, 0.58) * (bottom - top)
        slack = (bottom - top - length) * rng.uniform(0.25, 0.75)
        start = bottom - slack if direction == "up" else top + slack
        return _swipe((start, rng.gauss(0.5, 0.12)), direction, length, rng)
    y = rng.gauss((top + bottom) / 2, 0.1 * (bottom - top)) if at_y is None else at_y / height + rng.gauss(0, 0.012)
    start = rng.uniform(0.72, 0.92) if direction == "left" else rng.uniform(0.08, 0.28)
    return _swipe((y, start), direction, rng.uniform(0.45, 0.62), rng)


def _swipe(touch: tuple[float, float], direction: str, length: float, rng: random.Random) -> Action:
    slant = length * math.tan(_bounded(rng, 0.06, 0.2))
    dy, dx = {"up": (-length, slant), "down": (length, slant), "left": (slant, -length), "right": (slant, length)}[
        direction
    ]
    lift = (touch[0] + dy, touch[1] + dx)
    return Action.swipe(tuple(map(_fraction, touch)), tuple(map(_fraction, lift)))


def _bounded(rng: random.Random, spread: float, bound: float) -> float:
    return min(max(-bound, rng.gauss(0, spread)), bound)


def _fraction(value: float) -> float:
    """Within the screen, and exactly a float32, as AITW stores points."""
    return float(np.float32(min(max(0.002, value), 0.998)))


class Expert:
    """Follows a plan on a phone: closes what pops up, brings targets into view, and moves like a person.

    `steps` grows by one a action, with the screen before it; with `pixels` false the screens are left out.
    """

    def __init__(self, phone: SimulatedPhone, rng: random.Random, pixels: bool = True):
        self.phone, self.rng, self.pixels = phone, rng, pixels
        self.steps: list[Step] = []

    def follow(self, plan: Plan) -> tuple[Step, ...]:
        """Do all of the plan and declare the end. Raises RuntimeError where the plan asks for what is not there."""
        last = Action.complete()
        for intent in plan(self.phone):
            if intent.verb == "impossible":
                last = Action.impossible()
                break
            self._pursue(intent)
        self._close_popup()
        self._act(last)
        return tuple(self.steps)

    def _act(self, action: Action) -> None:
        phone = self.phone
        if len(self.steps) >= LONGEST:
            raise RuntimeError(f"no end after {LONGEST} steps on phone {phone.seed}, now in {phone.activity}")
        screenshot = phone.screenshot() if self.pixels else None
        self.steps.append(Step(screenshot, action, phone.elements(), phone.activity))
        phone.perform(action)

    def _pursue(self, intent: Intent) -> None:
        self._clear(intent.what if intent.verb != "home" else "home")
        if intent.verb == "tap":
            self._tap(intent.what)
        elif intent.verb == "see":
            self._show(intent.what)
        elif intent.verb == "type":
            self._act(Action.type_text(intent.what))
        elif intent.verb == "swipe":
            self._act(jittered_swipe(intent.what, self.phone.canvas(), None, self.rng))
        else:
            self._act(Action.press(intent.verb))

    def _clear(self, wanted: str) -> None:
        """Close what stands in the way of the next intent."""
        phone = self.phone
        if wanted == "home":
            return
        if phone.shade and not wanted.startswith(("quick:", "notice:")) and wanted != "up":
            self._act(jittered_swipe("up", phone.canvas(), None, self.rng))
        self._close_popup()

    def _close_popup(self) -> None:
        if self.phone.popup is not None:
            self._tap(f"popup:{self.phone.popup.dismiss}")

    def _tap(self, key: str) -> None:
        self._act(jittered_tap(self._show(key).aim, self.phone.size, self.rng))

    def _show(self, key: str) -> Target:
        while (target := self.phone.canvas().find(key)) is None:
            hidden = self.phone.canvas().hidden.get(key)
            if hidden is None:
                raise RuntimeError(f"{key!r} is not on phone {self.phone.seed}, now in {self.phone.activity}")
            self._act(jittered_swipe(hidden.direction, self.phone.canvas(), hidden.y, self.rng))
        return target
