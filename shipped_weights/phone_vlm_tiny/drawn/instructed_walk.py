"""Walks over a simulated phone whose goal names their steps: all of them, or the last one and a few others.

An instructed walk ("In turn: Search, type red lamp, enter, back") teaches an agent to find each named element on its
screen. A partial instruction ("Open: red lamp") names few of the steps, and the agent finds the others. No goal
requires a choice that its words do not determine; such choices are learned from demonstrations.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from shipped_weights.phone_vlm_tiny.drawn.screens import sample_size
from shipped_weights.phone_vlm_tiny.drawn.words import any_word, word_in_no_text
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, InstructedWalkRecipe
from shipped_weights.screens.styles import sample_style
from vlm_agent.action_languages.names import is_name
from vlm_agent.episodes import Action, Episode, Step, UiElement, element_at
from vlm_agent.simulator.drawing.canvas import Canvas, Target
from vlm_agent.simulator.expert import jittered_swipe, jittered_tap
from vlm_agent.simulator.phone import SimulatedPhone

LIST_SEPARATOR = ", "
"""Separates the names in a goal; names that contain it, such as dates, are not used."""

EMPTY_FIELD = ("Search", "Write")
"""Prefixes of the hints that empty text fields show."""

_DIRECTIONS = ("up", "up", "up", "down", "left", "right")
_SYSTEM, _APP = "system:", "app:"
# A colon follows the verb: without it "Open Notes" would be a goal of a task, perhaps of the test split.
_VERBS, _JOINERS = ("Open", "Find", "Show", "Go to", "Look up", "Search for"), (" and ", ", ", " then ")
_TEXTS = 20

NamedTarget = tuple[Target, UiElement]
"""A target and the uniquely named element at its centre."""


@dataclass(frozen=True, slots=True)
class WalkStep:
    """An action and the words for it in a goal; `words` is empty for actions that goals do not name.

    `needed_swipe`: swipes brought the target into view, so a partial instruction must name it.
    """

    words: str
    action: Action
    needed_swipe: bool = False


def draw_instructed_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """A walk whose goal names every step, in order or, for walks of taps only, shuffled.

    The last action is `complete`, or `impossible` if the last name is absent from the screen.
    """
    phone, texts = start_of_walk(rng, settings)
    walk = settings.instructed_walk
    names: list[str] = []
    steps: list[Step] = []
    for _ in range(rng.randint(walk.least_steps, walk.most_steps)):
        step = next_step(phone, rng, texts, walk)
        names.append(step.words)
        steps.append(current_step(phone, step.action))
        phone.perform(step.action)
    if rng.random() < walk.absent:
        names.append(word_in_no_text(phone.elements(), rng))
        steps.append(current_step(phone, Action.impossible()))
    else:
        steps.append(current_step(phone, Action.complete()))
        if rng.random() < walk.any_order and all(step.action.is_tap for step in steps[:-1]):
            return _full_instruction("In any order", rng.sample(names, len(names)), steps)
    return _full_instruction("In turn", names, steps)


def draw_partially_instructed_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """A walk of taps and typing whose goal names the last step, all typed text, and a few of the other steps."""
    phone, texts = start_of_walk(rng, settings)
    walk = settings.instructed_walk
    names: list[tuple[str, bool]] = []
    steps: list[Step] = []
    for _ in range(rng.randint(walk.least_steps, walk.most_steps)):
        step = next_forward_step(phone, rng, texts, walk)
        if step is None:
            break
        if step.action.name != "enter":
            names.append((step.action.text or step.words, step.action.name == "type"))
        steps.append(current_step(phone, step.action))
        phone.perform(step.action)
    if not names:  # the first screen has no element with a unique name
        return draw_partially_instructed_walk(rng, settings)
    steps.append(current_step(phone, Action.complete()))
    return partial_instruction(names, steps, rng, walk)


def draw_checked_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """A walk after which the agent has to see whether its goal is reached: only the last action is to be learned.

    It is `complete` after all steps, the last step where that is missing, or back after a tap on another element than
    the goal names.
    """
    phone, texts = start_of_walk(rng, settings)
    walk, check = settings.instructed_walk, settings.checked_walk
    names: list[str] = []
    steps: list[Step] = []
    for _ in range(rng.randint(walk.least_steps, walk.most_steps)):
        step = next_step(phone, rng, texts, walk)
        others = [element.name for _, element in named_targets(phone.canvas()) if element.name != step.words]
        front, pages = phone.front, len(phone.app(phone.front).routes)
        names.append(step.words)
        steps.append(current_step(phone, step.action))
        phone.perform(step.action)
    chance, is_of_taps = rng.random(), all(step.action.is_tap for step in steps)
    is_deeper = front == "Launcher" != phone.front or (front == phone.front and pages < len(phone.app(front).routes))
    if chance < check.other and steps[-1].action.is_tap and is_deeper and others:
        names[-1] = rng.choice(others)
        steps.append(current_step(phone, Action.press("back")))
    elif chance > check.other + check.missing:
        steps.append(current_step(phone, Action.complete()))
    if is_of_taps and rng.random() < check.partial:
        return partial_instruction([(words, False) for words in names], steps, rng, walk)
    return _full_instruction("In turn", names, steps)


def start_of_walk(rng: random.Random, settings: DrawnRecipe) -> tuple[SimulatedPhone, list[str]]:
    """A phone, at its home screen or with an app in the foreground, and texts to type on it."""
    size = sample_size(rng, settings.screens)
    phone = SimulatedPhone(rng.getrandbits(48), size, sample_style(rng))
    if rng.random() < settings.instructed_walk.app_in_front:
        phone.open(rng.choice(phone.installed))
        phone.changed()
    return phone, [any_word(rng, settings.words) for _ in range(_TEXTS)]


def current_step(phone: SimulatedPhone, action: Action) -> Step:
    """The phone's current screen and elements, with `action` as the action to perform next."""
    return Step(phone.screenshot(), action, phone.elements())


def partial_instruction(
    names: Sequence[tuple[str, bool]], steps: Sequence[Step], rng: random.Random, settings: InstructedWalkRecipe
) -> Episode:
    """An episode whose goal names the last of `names` (words, is_required), all required ones, and a few others."""
    *earlier, (last, _) = names
    parts = [words for words, is_required in earlier if is_required or rng.random() < settings.partially_named]
    words = rng.choice(_JOINERS).join([*parts, last])
    return Episode("", "", f"{rng.choice(_VERBS)}: {words}", tuple(steps))


def next_step(
    phone: SimulatedPhone, rng: random.Random, texts: Sequence[str], settings: InstructedWalkRecipe
) -> WalkStep:
    """A random step that is possible in the phone's current state, and its words.

    Typed text is drawn from `texts`. The words for a target are its text, its icon type or its app. If no target has a
    unique name, the step is home.
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
    """Like `next_step`, but never a swipe, back or home; None if only these are possible."""
    return _typing_step(phone, rng, texts, settings) or _tap_step(phone.canvas(), rng, settings)


def is_typing(phone: SimulatedPhone) -> bool:
    """Whether a text field has the focus."""
    return phone.focus is not None and phone.popup is None and not phone.shade


def typed_text(phone: SimulatedPhone) -> str:
    """The content of the focused field."""
    return "" if phone.focus is None else phone.app(phone.front).fields.get(phone.focus, "")


def _typing_step(
    phone: SimulatedPhone, rng: random.Random, texts: Sequence[str], settings: InstructedWalkRecipe
) -> WalkStep | None:
    if is_typing(phone):
        content = typed_text(phone)
        if content and rng.random() < settings.enter:
            return WalkStep("enter", Action.press("enter"))
        if not content and rng.random() < settings.type:
            text = " ".join(rng.sample(texts, rng.randint(1, 3)))
            return WalkStep(f"type {text}", Action.type_text(text))
    return None


def _tap_step(canvas: Canvas, rng: random.Random, settings: InstructedWalkRecipe) -> WalkStep | None:
    targets = named_targets(canvas)
    if not targets:
        return None
    fields = [(target, element) for target, element in targets if element.text.startswith(EMPTY_FIELD)]
    target, element = rng.choice(fields if fields and rng.random() < settings.field else targets)
    return tap_step(target, element, canvas, rng, settings.app_by_name)


def named_targets(canvas: Canvas) -> list[NamedTarget]:
    """The targets of the app whose element's name is unique on the screen."""
    elements = canvas.elements()
    counts = Counter(element.name for element in elements)
    content = [one for one in canvas.targets if one.on_tap is not None and not one.key.startswith(_SYSTEM)]
    pairs = [(target, _element_at(canvas, target, elements)) for target in content]
    return [(target, element) for target, element in pairs if element is not None and _has_usable_name(element, counts)]


def tap_step(target: Target, element: UiElement, canvas: Canvas, rng: random.Random, app_by_name: float) -> WalkStep:
    """A tap on the target. With probability `app_by_name` the words for an app are its name, not its icon type."""
    words = element.name
    if target.key.startswith(_APP) and rng.random() < app_by_name:
        words = target.key.removeprefix(_APP)
    return WalkStep(words, jittered_tap(target.aim, canvas.size, rng))


def _full_instruction(order: str, names: Sequence[str], steps: Sequence[Step]) -> Episode:
    return Episode("", "", f"{order}: {LIST_SEPARATOR.join(names)}", tuple(steps))


def _element_at(canvas: Canvas, target: Target, elements: tuple[UiElement, ...]) -> UiElement | None:
    left, top, right, bottom = target.aim
    height, width = canvas.size
    return element_at(elements, ((top + bottom) / 2 / height, (left + right) / 2 / width))


def _has_usable_name(element: UiElement, counts: Counter[str]) -> bool:
    return counts[element.name] == 1 and is_name(element.name) and LIST_SEPARATOR not in element.name
