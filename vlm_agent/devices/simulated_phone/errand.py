"""Errands: random walks over a phone, step by step, each step with the words that tell it."""

import random
from collections import Counter
from dataclasses import dataclass

from vlm_agent.action_languages.named import is_name
from vlm_agent.devices.simulated_phone.canvas import Canvas, Target
from vlm_agent.devices.simulated_phone.expert import jittered_swipe, jittered_tap
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.episodes import Action, UiElement, element_at

_TYPE, _ENTER, _SWIPE, _BACK, _HOME = 0.7, 0.5, 0.1, 0.07, 0.05
_FIELD = 0.4
_SWIPED = ("up", "up", "up", "down", "left", "right")
_BY_APP = 0.5
_SYSTEM, _APP = "system:", "app:"

FIELDS = ("Search", "Write")
"""What the text of an empty field begins with."""

LISTS_WITH = ", "
"""Between things that are told; one that holds it (a date) would look like two."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that is told (`words`) and the action that does it. `sought`: it had to be swiped for, so that a goal
    which leaves things out has to tell it."""

    words: str
    action: Action
    sought: bool = False


def next_deed(phone: SimulatedPhone, rng: random.Random, texts: list[str]) -> Deed:
    """Something that can be done on the phone as it is, told in words.

    Typing takes from `texts`. What is to be tapped is called by its text, its icon's type or, an app, by its name.
    Where nothing has a name of its own, the way out is home.
    """
    deed = _writing(phone, rng, texts)
    if deed is not None:
        return deed
    chance = rng.random()
    if chance < _SWIPE:
        direction = rng.choice(_SWIPED)
        return Deed(f"swipe {direction}", jittered_swipe(direction, phone.canvas(), None, rng))
    if chance < _SWIPE + _BACK:
        return Deed("back", Action.press("back"))
    if chance < _SWIPE + _BACK + _HOME:
        return Deed("home", Action.press("home"))
    return _tap(phone.canvas(), rng) or Deed("home", Action.press("home"))


def step_onward(phone: SimulatedPhone, rng: random.Random, texts: list[str]) -> Deed | None:
    """As `next_deed`, but never a swipe or a way back; None where only those are left."""
    return _writing(phone, rng, texts) or _tap(phone.canvas(), rng)


def is_writing(phone: SimulatedPhone) -> bool:
    """Whether what is typed now goes into a field."""
    return phone.focus is not None and phone.popup is None and not phone.shade


def _writing(phone: SimulatedPhone, rng: random.Random, texts: list[str]) -> Deed | None:
    if is_writing(phone):
        typed = phone.app(phone.front).fields.get(phone.focus)
        if typed and rng.random() < _ENTER:
            return Deed("enter", Action.press("enter"))
        if not typed and rng.random() < _TYPE:
            text = " ".join(rng.sample(texts, rng.randint(1, 3)))
            return Deed(f"type {text}", Action.type_text(text))
    return None


def _tap(canvas: Canvas, rng: random.Random) -> Deed | None:
    named = tellable(canvas)
    if not named:
        return None
    fields = [(target, element) for target, element in named if element.text.startswith(FIELDS)]
    return tapping(*rng.choice(fields if fields and rng.random() < _FIELD else named), canvas, rng)


def tellable(canvas: Canvas) -> list[tuple[Target, UiElement]]:
    """What can be tapped and told: nothing else on the screen has the name of that element."""
    elements = canvas.elements()
    counts = Counter(element.name for element in elements)
    touched = [(target, _aimed_at(canvas, target, elements)) for target in canvas.targets if _is_content(target)]
    return [(target, element) for target, element in touched if element is not None and _suits(element, counts)]


def tapping(target: Target, element: UiElement, canvas: Canvas, rng: random.Random, by_app: float = _BY_APP) -> Deed:
    """The tap on it; an app is called by its name, not its icon's type, in a share `by_app` of cases."""
    words = element.name
    if target.key.startswith(_APP) and rng.random() < by_app:
        words = target.key.removeprefix(_APP)
    return Deed(words, jittered_tap(target.aim, canvas.size, rng))


def _is_content(target: Target) -> bool:
    return target.on_tap is not None and not target.key.startswith(_SYSTEM)


def _aimed_at(canvas: Canvas, target: Target, elements: tuple[UiElement, ...]) -> UiElement | None:
    left, top, right, bottom = target.aim
    height, width = canvas.size
    return element_at(elements, ((top + bottom) / 2 / height, (left + right) / 2 / width))


def _suits(element: UiElement, counts: Counter) -> bool:
    return counts[element.name] == 1 and is_name(element.name) and LISTS_WITH not in element.name
