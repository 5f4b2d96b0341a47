"""Walks that search and swipe before they tap: they leave the open app, close dialogs, and scroll to hidden elements.

A seek walk does nothing else than swipe to one element and tap it. The goals of the others are partial instructions,
which name the last step, typed text, and elements that a swipe brought into view.
"""

import random
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace

from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import (
    EMPTY_FIELD,
    NamedTarget,
    WalkStep,
    current_step,
    is_typing,
    named_targets,
    partial_instruction,
    start_of_walk,
    tap_step,
    typed_text,
)
from shipped_weights.phone_vlm_tiny.drawn.screens import random_walk
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, ExplorationWalkRecipe
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.simulator.apps.shop import product_names
from vlm_agent.simulator.expert import jittered_swipe, jittered_tap
from vlm_agent.simulator.phone import SimulatedPhone, random_popup
from vlm_agent.simulator.words import CITIES, LABELS, NAMES, SHOPS, SITES, STORE_APPS, TOPICS

_BACK_ICON = "ICON_ARROW_BACKWARD"
_SIDEWAYS = ("left", "right")


def draw_exploration_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """An exploration walk with a partial instruction as its goal. Swipes that do not change the screen are omitted."""
    phone, _ = start_of_walk(rng, settings)
    walk = settings.instructed_walk
    names: list[tuple[str, bool]] = []
    steps: list[Step] = []
    for step in explore(phone, rng, rng.randint(walk.least_steps, walk.most_steps), settings.exploration_walk):
        before = current_step(phone, step.action)
        phone.perform(step.action)
        if step.action.name == "swipe" and phone.elements() == before.elements:
            continue
        steps.append(before)
        if step.words:
            names.append((step.words, step.needed_swipe or step.action.name == "type"))
    if not names:
        return draw_exploration_walk(rng, settings)
    end = current_step(phone, Action.complete())
    while steps[-1].action.name == "swipe":  # the goal does not name the purpose of these swipes
        end = replace(steps.pop(), action=Action.complete())
    return partial_instruction(names, [*steps, end], rng, walk)


def draw_seek_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """Swipes to one hidden element or tile of quick settings, and a tap on it. The goal names it alone."""
    phone, texts = start_of_walk(rng, settings)
    random_walk(phone, rng, texts, settings.random_walk)
    phone.popup, phone.shade, phone.focus = None, False, None
    phone.changed()
    if rng.random() < settings.seek_walk.scrolled:
        phone.perform(jittered_swipe(rng.choice(("up", "left")), phone.canvas(), None, rng))
    steps: list[Step] = []
    if rng.random() < settings.seek_walk.tile:
        key = f"quick:{rng.choice(phone.quick)}"
        steps.append(current_step(phone, jittered_swipe("shade", phone.canvas(), None, rng)))
        phone.perform(steps[-1].action)
    elif key := _hidden_key(phone, rng):
        for _ in range(settings.exploration_walk.most_seek_swipes):
            if (target := phone.canvas().hidden.get(key)) is None:
                break
            steps.append(current_step(phone, jittered_swipe(target.direction, phone.canvas(), target.y, rng)))
            phone.perform(steps[-1].action)
    found = [pair for pair in named_targets(phone.canvas()) if pair[0].key == key]
    if not found or any(found[0][1].name == element.name for element in steps[0].elements):
        return draw_seek_walk(rng, settings)
    step = tap_step(*found[0], phone.canvas(), rng, settings.exploration_walk.app_by_name)
    steps.append(current_step(phone, step.action))
    phone.perform(step.action)
    return partial_instruction(
        [(step.words, True)], [*steps, current_step(phone, Action.complete())], rng, settings.instructed_walk
    )


def explore(
    phone: SimulatedPhone, rng: random.Random, count: int, settings: ExplorationWalkRecipe
) -> Iterator[WalkStep]:
    """At most `count` steps with words and the steps without words between them.

    The caller performs each step before it requests the next. Home, swipes, enter and the tap that closes a dialog have
    no words. The walk ends early if no target has a unique name.
    """
    if not phone.at_home and rng.random() < settings.popup:
        yield _dismiss_popup(phone, rng)
    if not phone.at_home and rng.random() < settings.leave:
        yield WalkStep("", Action.press("home"))
    for _ in range(count):
        step = _typing_step(phone, rng, settings)
        new_targets: list[NamedTarget] = []
        if step is None and rng.random() < settings.seek:
            new_targets = yield from _seek(phone, rng, settings)
        if step is None:
            candidates = new_targets or _likely_targets(phone, rng, settings)
            if not candidates:
                return
            step = tap_step(*rng.choice(candidates), phone.canvas(), rng, settings.app_by_name)
            step = replace(step, needed_swipe=bool(new_targets))
        yield step


def _seek(
    phone: SimulatedPhone, rng: random.Random, settings: ExplorationWalkRecipe
) -> Generator[WalkStep, None, list[NamedTarget]]:
    """Swipes towards a hidden target, with all directions equally likely. Returns this target if it is now visible,
    otherwise all new targets.

    Swipes sideways instead with probability 1 - `seek_hidden`, or if no target is hidden.
    """
    if not phone.canvas().hidden or rng.random() > settings.seek_hidden:
        return (yield from _swipe_sideways(phone, rng, settings))
    key = _hidden_key(phone, rng)
    before = _names(phone)
    for _ in range(settings.most_seek_swipes):
        target = phone.canvas().hidden.get(key)
        if target is None:
            break
        yield WalkStep("", jittered_swipe(target.direction, phone.canvas(), target.y, rng))
    visible = named_targets(phone.canvas())
    return [pair for pair in visible if pair[0].key == key] or [pair for pair in visible if pair[1].name not in before]


def _hidden_key(phone: SimulatedPhone, rng: random.Random) -> str:
    """The key of a hidden target, with all directions equally likely; empty if no target is hidden."""
    candidates = sorted({(target.direction, key) for key, target in phone.canvas().hidden.items()})
    if not candidates:
        return ""
    direction = rng.choice(sorted({direction for direction, _ in candidates}))
    return rng.choice([key for towards, key in candidates if towards == direction])


def _swipe_sideways(
    phone: SimulatedPhone, rng: random.Random, settings: ExplorationWalkRecipe
) -> Generator[WalkStep, None, list[NamedTarget]]:
    """Swipes left or right. Returns the targets that the last swipe with new targets brought into view."""
    known_names = _names(phone)
    new_targets: list[NamedTarget] = []
    direction = rng.choice(_SIDEWAYS)
    for _ in range(settings.most_sideways_swipes):
        yield WalkStep("", jittered_swipe(direction, phone.canvas(), None, rng))
        visible = [pair for pair in named_targets(phone.canvas()) if pair[1].name != _BACK_ICON]
        new = [pair for pair in visible if pair[1].name not in known_names]
        if not new:
            still_new = {element.name for _, element in new_targets}
            return [pair for pair in visible if pair[1].name in still_new]
        new_targets, known_names = new, known_names | _names(phone)
        if rng.random() > settings.sideways_again:
            break
    return new_targets


def _names(phone: SimulatedPhone) -> set[str]:
    return {element.name for element in phone.elements()}


def _dismiss_popup(phone: SimulatedPhone, rng: random.Random) -> WalkStep:
    """Shows a dialog on `phone` and returns the tap that closes it."""
    popup = random_popup(phone.front, rng)
    phone.popup = popup
    phone.changed()
    button = phone.canvas().find(f"popup:{popup.dismiss}")
    if button is None:
        raise RuntimeError(f"the dialog {popup.title!r} shows no button {popup.dismiss!r}")
    return WalkStep("", jittered_tap(button.aim, phone.size, rng))


def _typing_step(phone: SimulatedPhone, rng: random.Random, settings: ExplorationWalkRecipe) -> WalkStep | None:
    if not is_typing(phone):
        return None
    if typed_text(phone):
        return WalkStep("", Action.press("enter")) if rng.random() < settings.enter else None
    if rng.random() > settings.type:
        return None
    query = _known_query(phone, rng)
    return WalkStep(query, Action.type_text(query.lower() if rng.random() < settings.lower_case else query))


def _likely_targets(phone: SimulatedPhone, rng: random.Random, settings: ExplorationWalkRecipe) -> list[NamedTarget]:
    """Candidates for the next tap: targets whose name contains the typed text, empty fields, or all targets except the
    back arrow."""
    targets = [pair for pair in named_targets(phone.canvas()) if pair[1].name != _BACK_ICON]
    query = typed_text(phone).casefold() if is_typing(phone) else ""
    matching = [pair for pair in targets if query and query in pair[1].name.casefold()]
    fields = [pair for pair in targets if pair[1].text.startswith(EMPTY_FIELD)]
    if matching and rng.random() < settings.tap_typed:
        return matching
    return fields if fields and rng.random() < settings.field else targets


def _known_query(phone: SimulatedPhone, rng: random.Random) -> str:
    """A query for which the foreground app may have results."""
    if str(phone.app(phone.front).route.name).startswith("shop_"):
        return rng.choice(product_names())
    kinds = _QUERIES.get(phone.front, (_person, _label))
    return rng.choice(kinds)(rng)


def _one_of(names: Iterable[str]) -> Callable[[random.Random], str]:
    choices = tuple(names)
    return lambda rng: rng.choice(choices)


def _topic(rng: random.Random) -> str:
    return f"{rng.choice(TOPICS)} in {rng.choice(CITIES)}"


_person, _label, _city = _one_of(NAMES), _one_of(LABELS), _one_of(CITIES)
_QUERIES = {
    "Store": (_one_of(STORE_APPS),),
    "Maps": (_topic, _topic, _city),
    "Browser": (_topic, _topic, _one_of(SITES), _one_of(SHOPS)),
    "Clock": (_city,),
}
