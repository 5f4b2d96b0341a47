"""The expert: turns a goal's script into human-like gestures and records the steps."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

from vlm_agent.episodes import Action, Step
from vlm_agent.simulator.drawing.canvas import Canvas, Target
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.thoughts import MAX_LINES, Cause, Reason, name_of, with_remaining, with_texts

MAX_STEPS = 60
"""A script with more steps is assumed not to terminate."""


class LostError(RuntimeError):
    """A script does not reach its goal on the phone."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The expert's next intention: tap a target or bring it into view, press, type, swipe, or declare the goal
    impossible. `what`: the target's key, the text or the direction. `wants`: the name of what a swipe, `home` or
    `impossible` is for, which only the expert's thoughts mention."""

    verb: str
    what: str = ""
    wants: str = ""


GoalScript = Callable[[SimulatedPhone], Iterator[Intent]]
"""A function that returns a generator of intents. The generator may inspect the phone between two intents; its local
state is the expert's memory."""


def always(*parts: Intent | GoalScript) -> GoalScript:
    """The script of these intents and scripts, one after the other."""

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        for part in parts:
            if isinstance(part, Intent):
                yield part
            else:
                yield from part(phone)

    return script


def tap(key: str) -> Intent:
    """Tap the target; swipe to it first if it is hidden."""
    return Intent("tap", key)


def see(key: str) -> Intent:
    """Swipe until the target is visible."""
    return Intent("see", key)


def type_text(text: str) -> Intent:
    return Intent("type", text)


def swipe(direction: str, wants: str = "") -> Intent:
    """`up`, `down`, `left`, `right`, or `shade`: down from the top edge. `wants`: see `Intent`."""
    return Intent("swipe", direction, wants)


def home_for(app: str) -> Intent:
    """Go to the home screen, in order to open an app next."""
    return Intent("home", wants=app)


def impossible(wants: str) -> Intent:
    """Declare the goal impossible, because the phone lacks what the expert `wants`."""
    return Intent("impossible", wants=wants)


HOME, BACK, ENTER = (Intent(verb) for verb in ("home", "back", "enter"))


def open_app(phone: SimulatedPhone, name: str) -> Iterator[Intent]:
    """The intents that open an app from the current screen; none if it is already in the foreground."""
    if phone.front == name:
        return
    if not phone.at_home:
        yield home_for(name)
    yield tap(f"app:{name}")


def after_opening(app: str, *parts: Intent | GoalScript) -> GoalScript:
    """The script that opens the app and then has these parts; see `always`."""
    return always(partial(open_app, name=app), *parts)


def jittered_tap(box: tuple[int, int, int, int], size: tuple[int, int], rng: random.Random) -> Action:
    """A tap near the centre of a box, never outside it.

    `box`: (left, top, right, bottom) in pixels. `size`: (height, width) of the screen in pixels.
    """
    left, top, right, bottom = box
    x = (left + right) / 2 + _bounded(rng, 0.16, 0.42) * (right - left)
    y = (top + bottom) / 2 + _bounded(rng, 0.16, 0.42) * (bottom - top)
    return Action.tap(_fraction(y / size[0]), _fraction(x / size[1]))


def jittered_swipe(direction: str, canvas: Canvas, at_y: float | None, rng: random.Random) -> Action:
    """A swipe on the scrolling part of the screen. `at_y` (pixels) is the y of a sideways swipe; if None, it is random.

    `direction`: `up`, `down`, `left`, `right` or `shade` (down from the top edge); it is the direction of the finger.
    """
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
    y, x = touch
    return Action.swipe((_fraction(y), _fraction(x)), (_fraction(y + dy), _fraction(x + dx)))


def _bounded(rng: random.Random, spread: float, bound: float) -> float:
    return min(max(-bound, rng.gauss(0, spread)), bound)


def _fraction(value: float) -> float:
    """A screen fraction limited to the screen and rounded to float32, because AITW stores points in float32."""
    return float(np.float32(min(max(0.002, value), 0.998)))


_CAUSES: dict[str, Cause] = {"home": "elsewhere", "back": "earlier", "enter": "typed"}
"""The verb of an intent that presses a button → why."""


class Expert:
    """Runs a script on a phone: closes dialogs, swipes targets into view, and adds human-like jitter to gestures.

    `steps` has one step per action, with the screen before it, and `reasons` why. `pixels`: whether steps have
    screenshots. `thoughts`: whether the steps that `follow` returns have notes; they change
    nothing else. `goal`: the instruction, whose names a plan may use.
    """

    def __init__(
        self, phone: SimulatedPhone, rng: random.Random, pixels: bool = True, thoughts: bool = False, goal: str = ""
    ) -> None:
        self.phone, self.rng, self.pixels, self.thoughts, self.goal = phone, rng, pixels, thoughts, goal
        self.steps: list[Step] = []
        self.reasons: list[Reason] = []
        self._intents: list[Intent] = []
        self._pursued: list[int] = []  # for each step, the number of its intent

    def follow(self, script: GoalScript) -> tuple[Step, ...]:
        """Runs the whole script, then performs `complete` or `impossible`; returns all steps.

        Raises LostError for a target that the phone does not have, and after `MAX_STEPS` steps.
        """
        last, reason = Action.complete(), Reason("complete")
        intents = script(self.phone)
        for intent in intents:
            self._intents.append(intent)
            if intent.verb == "impossible":
                last, reason = Action.impossible(), Reason("impossible", intent.wants)
                break
            self._pursue(intent)
        else:
            self._intents.append(Intent("complete"))
        self._close_popup()
        self._act(last, reason)
        if not self.thoughts:
            return tuple(self.steps)
        if reason.cause == "impossible":  # an earlier plan has what the phone turned out to lack
            self._intents += [*islice(intents, MAX_LINES), Intent("complete")]
        steps = with_texts(self.steps, self.reasons)
        return with_remaining(steps, self.reasons, self._pursued, self._intents, self.goal)

    def _act(self, action: Action, reason: Reason) -> None:
        phone = self.phone
        if len(self.steps) >= MAX_STEPS:
            raise LostError(
                f"the script does not end within {MAX_STEPS} steps on phone {phone.seed}, now in {phone.activity}"
            )
        screenshot = phone.screenshot() if self.pixels else None
        self.steps.append(Step(screenshot, action, phone.elements(), phone.activity))
        self.reasons.append(reason)
        self._pursued.append(len(self._intents) - 1)
        phone.perform(action)

    def _pursue(self, intent: Intent) -> None:
        if intent.verb != "home":
            self._clear(intent.what)
        if intent.verb == "tap":
            self._tap(intent.what, Reason("found", name_of(intent.what)))
        elif intent.verb == "see":
            self._show(intent.what)
        elif intent.verb == "type":
            self._act(Action.type_text(intent.what), Reason("field", intent.what))
        elif intent.verb == "swipe":
            self._swipe(intent.what, None, Reason("hidden", intent.wants))
        else:
            self._act(Action.press(intent.verb), Reason(_CAUSES[intent.verb], intent.wants))

    def _clear(self, key: str) -> None:
        """Close quick settings and dialogs if they cover `key`, what the next intent acts on."""
        if self.phone.shade and not key.startswith(("quick:", "notice:")) and key != "up":
            self._swipe("up", None, Reason("in the way"))
        self._close_popup()

    def _close_popup(self) -> None:
        if self.phone.popup is not None:
            self._tap(f"popup:{self.phone.popup.dismiss}", Reason("in the way"))

    def _tap(self, key: str, reason: Reason) -> None:
        self._act(jittered_tap(self._show(key).aim, self.phone.size, self.rng), reason)

    def _swipe(self, direction: str, at_y: float | None, reason: Reason) -> None:
        self._act(jittered_swipe(direction, self.phone.canvas(), at_y, self.rng), reason)

    def _show(self, key: str) -> Target:
        while (target := self.phone.canvas().find(key)) is None:
            hidden = self.phone.canvas().hidden.get(key)
            if hidden is None:
                raise LostError(f"{key!r} is not on phone {self.phone.seed}, now in {self.phone.activity}")
            self._swipe(hidden.direction, hidden.y, Reason("hidden", name_of(key)))
        return target
