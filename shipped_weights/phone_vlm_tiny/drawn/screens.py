"""An endless supply of annotated screens, each determined by its random generator alone.

Collages and pages full of words have random content; the others are screens of simulated phones after a random walk, in
a random style.
The seeds of these phones are 48 random bits, so none of them is a phone of a demonstration
(`simulator/demonstrations.py`).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from shipped_weights.phone_vlm_tiny.drawn.collage import collage, page
from shipped_weights.phone_vlm_tiny.drawn.words import COMMON_WORDS, FORM_WORDS, any_word, phone_words, train_goals
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, DrawnScreenRecipe, RandomWalkRecipe
from shipped_weights.screens.styles import SIZES, sample_style
from vlm_agent.episodes import Action, Step, UiElement
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.glyphs import GLYPHS
from vlm_agent.simulator.drawing.icons import element_type
from vlm_agent.simulator.expert import jittered_swipe
from vlm_agent.simulator.phone import random_popup

YES, NO = "yes", "no"
HOME = "home"

_SWIPES = ("up", "up", "left", "right")
_MARKS_OF_HOME = (0.36, 0.5, 0.64)  # across the screen, in three visual tokens
_COLLAGE_WORDS, _WALK_WORDS = 60, 20
_VOCABULARY_SCREENS = 100
_LISTED_TIMES = 50
"""The number of repetitions of each listed word in the vocabulary texts, so that rare words enter the vocabulary."""


@dataclass(frozen=True)
class DrawnScreen:
    """`step` holds the pixels (uint8 (height, width, 3), of any size in `SIZES`) and elements; its action is not a
    target. `switches`: the state (on: True) of every labelled switch, tile or check box on the screen; `tabs`: whether
    each tab is selected. `beyond`: the directions of swipes that bring more of a phone's page into view; None for a
    screen without a page. `app`: the app in the foreground, empty where that is not visible. `marks`: a box named
    `YES` or `NO` on each widget with a state."""

    step: Step
    switches: dict[str, bool]
    tabs: dict[str, bool] = field(default_factory=dict)
    beyond: frozenset[str] | None = None
    app: str = ""
    marks: tuple[UiElement, ...] = ()

    @property
    def elements(self) -> tuple[UiElement, ...]:
        return self.step.elements

    @property
    def marked_step(self) -> Step:
        """The step with its marks among the elements, for labels of visual tokens."""
        return replace(self.step, elements=(*self.elements, *self.marks))


def draw_screen(rng: random.Random, settings: DrawnRecipe) -> DrawnScreen:
    """A random screen, determined by the state of `rng`."""
    size = sample_size(rng, settings.screens)
    chance = rng.random()
    if chance < settings.screens.page:
        return _described(page(rng, size, partial(any_word, rng, settings.words)))
    if chance < settings.screens.page + settings.screens.collage:
        words = [any_word(rng, settings.words) for _ in range(_COLLAGE_WORDS)]
        return _described(collage(rng, size, words, settings.collage))
    phone = SimulatedPhone(rng.getrandbits(48), size, sample_style(rng))
    words = [any_word(rng, settings.words) for _ in range(_WALK_WORDS)]
    random_walk(phone, rng, words, settings.random_walk)
    return screen_of(phone)


def screen_of(phone: SimulatedPhone) -> DrawnScreen:
    """The current screen of a phone."""
    screen = _described(phone.canvas())
    names = [element.name for element in screen.elements]
    if phone.shade:
        tiles = {name: phone.switches[name] for name in phone.quick if names.count(name) == 1}
        return replace(screen, switches=tiles)
    if phone.popup is not None:
        return screen
    beyond = frozenset(target.direction for target in phone.canvas().hidden.values())
    app = "" if phone.focus else HOME if phone.at_home else phone.front
    return replace(screen, beyond=beyond, app=app, marks=(*screen.marks, *_marks_of_home(phone)))


def _marks_of_home(phone: SimulatedPhone) -> Iterator[UiElement]:
    """At the dots of a home screen: whether there is a page before it, a drawer, a page behind it. Dots and arrow are
    small, so that questions alone do not teach to see them."""
    home = phone.the(Launcher)
    if not phone.at_home or home.route.name != "home":
        return
    for widget in phone.canvas().widgets():
        if widget.kind == "page_indicator":
            y, _, height, _ = widget.box
            facts = (home.at > 0, phone.theme.drawer != "none", home.at < len(home.pages) - 1)
            for is_so, x in zip(facts, _MARKS_OF_HOME, strict=True):
                yield UiElement((y, x - 0.05, height, 0.1), YES if is_so else NO)


def _described(canvas: Canvas) -> DrawnScreen:
    step = Step(np.array(canvas.image), Action.complete(), canvas.elements(), "")
    names = [element.name for element in step.elements]
    tabs = {tab.label: tab.active for tab in canvas.tabs if names.count(tab.label) == 1}
    switches = {label: on for label, on in canvas.states.items() if names.count(label) == 1}
    widgets = [widget for widget in canvas.widgets() if widget.on is not None]
    marks = tuple(UiElement(widget.box, YES if widget.on else NO) for widget in widgets)
    return DrawnScreen(step, switches, tabs, marks=marks)


def sample_size(rng: random.Random, settings: DrawnScreenRecipe) -> tuple[int, int]:
    """A random screen size (height, width) in pixels from `SIZES`."""
    return SIZES[0] if rng.random() < settings.model_size else rng.choice(SIZES)


def random_walk(phone: SimulatedPhone, rng: random.Random, words: list[str], settings: RandomWalkRecipe) -> None:
    """Open an app or stay on the home screen, then tap random targets, swipe, and type some of `words` into focused
    fields. The walk may end under quick settings or a dialog."""
    if rng.random() > settings.stay_at_home:
        phone.open(rng.choice(phone.installed))
        phone.popup = None
    for _ in range(rng.randint(0, settings.most_touches)):
        _touch(phone, rng, words, settings)
    chance = rng.random()
    if chance < settings.shade:
        phone.shade = True
    elif chance < settings.shade + settings.popup and phone.focus is None:
        phone.popup = random_popup(phone.front, rng)
    phone.changed()


def _touch(phone: SimulatedPhone, rng: random.Random, words: list[str], settings: RandomWalkRecipe) -> None:
    if phone.focus is not None and rng.random() < settings.type:
        phone.type_text(" ".join(rng.sample(words, rng.randint(1, 3))))
    elif rng.random() < settings.swipe:
        phone.perform(jittered_swipe(rng.choice(_SWIPES), phone.canvas(), None, rng))
    else:
        taps = [target.on_tap for target in phone.canvas().targets if target.on_tap is not None]
        if taps:
            rng.choice(taps)()
    phone.changed()


def vocabulary_texts(settings: DrawnRecipe) -> Iterator[str]:
    """The texts from which the vocabulary of a tokenizer for these screens is built: word lists, words of lessons, icon
    types, goals of the train split and texts of drawn screens."""
    for word in (*phone_words(), *COMMON_WORDS, *FORM_WORDS):
        yield from [word, word.capitalize(), word.lower()] * _LISTED_TIMES
    yield from [YES, NO, HOME] * _LISTED_TIMES
    yield from [element_type(glyph) for glyph in GLYPHS] * _LISTED_TIMES
    yield from train_goals()
    for number in range(_VOCABULARY_SCREENS):
        screen = draw_screen(random.Random(f"words {number}"), settings)
        for element in screen.elements:
            yield element.name
