"""Walks over a simulated phone whose goal names their steps: all of them, or the last one and a few others.

An instructed walk ("In turn: Search, type red lamp, enter, back") teaches an agent to find each named element on its
screen. A partial instruction ("Open red lamp") leaves most of the way to the agent. No goal asks for a decision that
its words do not determine; decisions are left to training on demonstrations.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.action_languages.names import is_name
from vlm_agent.devices.simulated_phone.drawing.canvas import Canvas, Target
from vlm_agent.devices.simulated_phone.expert import jittered_swipe, jittered_tap
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.episodes import Action, Episode, Step, UiElement, element_at
from vlm_agent.pretraining.screens import sample_size
from vlm_agent.pretraining.styles import sample_style
from vlm_agent.pretraining.words import any_word, word_in_no_text
from vlm_agent.recipe.drawn import DrawnRecipe, InstructedWalkRecipe

LIST_SEPARATOR = ", "
"""Separates the names in a goal; a name that contains it (a date) is not used in one."""

EMPTY_FIELD = ("Search", "Write")
"""Prefixes of the text that an empty text field shows."""

_DIRECTIONS = ("up", "up", "up", "down", "left", "right")
_SYSTEM, _APP = "system:", "app:"
_VERBS, _JOINERS = ("Open", "Find", "Show", "Go to", "Look up", "Search for"), (" and ", ", ", " then ")
_TEXTS = 20

NamedTarget = tuple[Target, UiElement]
"""A target and the element with a unique name under its middle."""


@dataclass(frozen=True, slots=True)
class WalkStep:
    """An action and the words that name it in a goal; empty words name nothing.

    `swiped_for`: swipes brought the target into view, so that a partial instruction has to name it.
    """

    words: str
    action: Action
    swiped_for: bool = False


def draw_instructed_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """A walk whose goal names every step, in order or (taps only) shuffled.

    The last name may be absent from the screen; the last action is then `impossible`, otherwise `complete`.
    """
    phone, texts = start_of_walk(rng, settings)
    walk = settings.instructed_walk
    names: list[str] = []
    steps: list[Step] = []
    for _ in range(rng.randint(walk.least_steps, walk.most_steps)):
        step = next_step(phone, rng, texts, walk)
        names.append(step.words)
        steps.append(observed(phone, step.action))
        phone.perform(step.action)
    if rng.random() < walk.absent:
        names.append(word_in_no_text(phone.elements(), rng))
        steps.append(observed(phone, Action.impossible()))
    else:
        steps.append(observed(phone, Action.complete()))
        if rng.random() < walk.any_order and all(step.action.is_tap for step in steps[:-1]):
            return _listed("In any order", rng.sample(names, len(names)), steps)
    return _listed("In turn", names, steps)


def draw_partially_instructed_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """A walk of taps and typing whose goal names the last step, all typed text, and few of the other steps."""
    phone, texts = start_of_walk(rng, settings)
    walk = settings.instructed_walk
    named: list[tuple[str, bool]] = []
    steps: list[Step] = []
    for _ in range(rng.randint(walk.least_steps, walk.most_steps)):
        step = next_forward_step(phone, rng, texts, walk)
        if step is None:
            break
        if step.action.name != "enter":
            named.append((step.action.text or step.words, step.action.name == "type"))
        steps.append(observed(phone, step.action))
        phone.perform(step.action)
    if not named:  # the first screen has no element with a unique name
        return draw_partially_instructed_walk(rng, settings)
    steps.append(observed(phone, Action.complete()))
    return partially_instructed(named, steps, rng, walk)


def start_of_walk(rng: random.Random, settings: DrawnRecipe) -> tuple[SimulatedPhone, list[str]]:
    """A phone, at home or with an app in front, and texts to type on it."""
    size = sample_size(rng, settings.screens)
    phone = SimulatedPhone(rng.getrandbits(48), size, sample_style(rng))
    if rng.random() < settings.instructed_walk.app_in_front:
        phone.open(rng.choice(phone.installed))
        phone.changed()
    return phone, [any_word(rng, settings.words) for _ in range(_TEXTS)]


def observed(phone: SimulatedPhone, action: Action) -> Step:
    """The current screen with the action that is performed on it next."""
    return Step(phone.screenshot(), action, phone.elements())


def partially_instructed(
    named: Sequence[tuple[str, bool]], steps: Sequence[Step], rng: random.Random, settings: InstructedWalkRecipe
) -> Episode:
    """An episode whose goal names the last of `named` (words, whether required), all required words, and few others."""
    kept = [words for words, required in named[:-1] if required or rng.random() < settings.partially_named]
    words = rng.choice(_JOINERS).join([*kept, named[-1][0]])
    return Episode("", "", f"{rng.choice(_VERBS)} {words}", tuple(steps))


def next_step(
    phone: SimulatedPhone, rng: random.Random, texts: Sequence[str], settings: InstructedWalkRecipe
) -> WalkStep:
    """A random step that is possible on the phone as it is, with the words that name it.

    Typed text comes from `texts`. A target is named by its text, its icon type or its app. Where no target has a unique
    name, the step is home.
    """
    step = _typing_step(phone, rng, texts, settings)
    if step is not None:
        return step
    chance = rng.random()
    if chance < settings.swipe:
        direction = rng.choice(_DIRECTIONS)
        return WalkStep(f"swipe {direction}", jittered_swipe(direction, phone.canvas(), None, rng))
    if chance < settings.swipe + settings.back:
        return WalkStep("back", Action.press("back"))
    if chance < settings.swipe + settings.back + settings.home:
        return WalkStep("home", Action.press("home"))
    return _tap_step(phone.canvas(), rng, settings) or WalkStep("home", Action.press("home"))


def next_forward_step(
    phone: SimulatedPhone, rng: random.Random, texts: Sequence[str], settings: InstructedWalkRecipe
) -> WalkStep | None:
    """As `next_step`, but never a swipe, back or home; None where only those are possible."""
    return _typing_step(phone, rng, texts, settings) or _tap_step(phone.canvas(), rng, settings)


def is_typing(phone: SimulatedPhone) -> bool:
    """Whether typed text goes into a field."""
    return phone.focus is not None and phone.popup is None and not phone.shade


def typed_text(phone: SimulatedPhone) -> str:
    """What the focused field holds."""
    return "" if phone.focus is None else phone.app(phone.front).fields.get(phone.focus, "")


def _typing_step(
    phone: SimulatedPhone, rng: random.Random, texts: Sequence[str], settings: InstructedWalkRecipe
) -> WalkStep | None:
    if is_typing(phone):
        typed = typed_text(phone)
        if typed and rng.random() < settings.enter:
            return WalkStep("enter", Action.press("enter"))
        if not typed and rng.random() < settings.type:
            text = " ".join(rng.sample(texts, rng.randint(1, 3)))
            return WalkStep(f"type {text}", Action.type_text(text))
    return None


def _tap_step(canvas: Canvas, rng: random.Random, settings: InstructedWalkRecipe) -> WalkStep | None:
    named = named_targets(canvas)
    if not named:
        return None
    fields = [(target, element) for target, element in named if element.text.startswith(EMPTY_FIELD)]
    chosen = rng.choice(fields if fields and rng.random() < settings.field else named)
    return tap_step(*chosen, canvas, rng, settings.app_by_name)


def named_targets(canvas: Canvas) -> list[NamedTarget]:
    """The targets of the app whose element has a name that no other element on the screen has."""
    elements = canvas.elements()
    counts = Counter(element.name for element in elements)
    aimed = [(target, _element_at(canvas, target, elements)) for target in canvas.targets if _is_content(target)]
    return [(target, element) for target, element in aimed if element is not None and _has_usable_name(element, counts)]


def tap_step(target: Target, element: UiElement, canvas: Canvas, rng: random.Random, app_by_name: float) -> WalkStep:
    """A tap on the target. With probability `app_by_name` an app is named by its name, not by its icon type."""
    words = element.name
    if target.key.startswith(_APP) and rng.random() < app_by_name:
        words = target.key.removeprefix(_APP)
    return WalkStep(words, jittered_tap(target.aim, canvas.size, rng))


def _listed(order: str, names: Sequence[str], steps: Sequence[Step]) -> Episode:
    return Episode("", "", f"{order}: {LIST_SEPARATOR.join(names)}", tuple(steps))


def _is_content(target: Target) -> bool:
    return target.on_tap is not None and not target.key.startswith(_SYSTEM)


def _element_at(canvas: Canvas, target: Target, elements: tuple[UiElement, ...]) -> UiElement | None:
    left, top, right, bottom = target.aim
    height, width = canvas.size
    return element_at(elements, ((top + bottom) / 2 / height, (left + right) / 2 / width))


def _has_usable_name(element: UiElement, counts: Counter[str]) -> bool:
    return counts[element.name] == 1 and is_name(element.name) and LIST_SEPARATOR not in element.name
