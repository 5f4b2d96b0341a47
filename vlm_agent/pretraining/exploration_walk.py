"""Walks that search and swipe for what they tap: out of the open app, past dialogs, towards hidden elements.

Their goals are partial instructions: they name the last step, typed text, and what is reached by a swipe.
"""

import random
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace

from vlm_agent.devices.simulated_phone.apps.shop import product_names
from vlm_agent.devices.simulated_phone.expert import jittered_swipe, jittered_tap
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone, random_popup
from vlm_agent.devices.simulated_phone.words import CITIES, LABELS, NAMES, SHOPS, SITES, STORE_APPS, TOPICS
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.pretraining.instructed_walk import (
    EMPTY_FIELD,
    NamedTarget,
    WalkStep,
    is_typing,
    named_targets,
    observed,
    partially_instructed,
    start_of_walk,
    tap_step,
    typed_text,
)
from vlm_agent.recipe.drawn import DrawnRecipe, ExplorationWalkRecipe

_BACK_ICON = "ICON_ARROW_BACKWARD"
_SIDEWAYS = ("left", "right")


def draw_exploration_walk(rng: random.Random, settings: DrawnRecipe) -> Episode:
    """An exploration walk with a partial instruction. Swipes that leave the screen unchanged are left out."""
    phone, _ = start_of_walk(rng, settings)
    walk = settings.instructed_walk
    named: list[tuple[str, bool]] = []
    steps: list[Step] = []
    for step in explore(phone, rng, rng.randint(walk.least_steps, walk.most_steps), settings.exploration_walk):
        before = observed(phone, step.action)
        phone.perform(step.action)
        if step.action.name == "swipe" and phone.elements() == before.elements:
            continue
        steps.append(before)
        if step.words:
            named.append((step.words, step.swiped_for or step.action.name == "type"))
    if not named:
        return draw_exploration_walk(rng, settings)
    end = observed(phone, Action.complete())
    while steps[-1].action.name == "swipe":  # the goal does not name what these swipes were for
        end = replace(steps.pop(), action=Action.complete())
    return partially_instructed(named, [*steps, end], rng, walk)


def explore(
    phone: SimulatedPhone, rng: random.Random, count: int, settings: ExplorationWalkRecipe
) -> Iterator[WalkStep]:
    """At most `count` named steps and the unnamed ones between them; perform each before asking for the next.

    Home, swipes, enter and the tap that closes a dialog have no words. The walk ends early where no target has a unique
    name.
    """
    if not phone.at_home and rng.random() < settings.popup:
        yield _dismiss_popup(phone, rng)
    if not phone.at_home and rng.random() < settings.leave:
        yield WalkStep("", Action.press("home"))
    for _ in range(count):
        step = _typing_step(phone, rng, settings)
        revealed: list[NamedTarget] = []
        if step is None and rng.random() < settings.seek:
            revealed = yield from _seek(phone, rng, settings)
        if step is None:
            candidates = revealed or _likely_targets(phone, rng, settings)
            if not candidates:
                return
            step = tap_step(*rng.choice(candidates), phone.canvas(), rng, settings.app_by_name)
            step = replace(step, swiped_for=bool(revealed))
        yield step


def _seek(
    phone: SimulatedPhone, rng: random.Random, settings: ExplorationWalkRecipe
) -> Generator[WalkStep, None, list[NamedTarget]]:
    """Swipes towards a hidden target, every direction equally likely; returns that target, or whatever is new.

    Sometimes, and where no target is hidden, swipes sideways instead.
    """
    hidden = phone.canvas().hidden
    ways = sorted({(where.direction, key) for key, where in hidden.items()})
    if not ways or rng.random() > settings.seek_hidden:
        return (yield from _swipe_sideways(phone, rng, settings))
    way = rng.choice(sorted({direction for direction, _ in ways}))
    key = rng.choice([key for direction, key in ways if direction == way])
    before = _names(phone)
    for _ in range(settings.most_seek_swipes):
        where = phone.canvas().hidden.get(key)
        if where is None:
            break
        yield WalkStep("", jittered_swipe(where.direction, phone.canvas(), where.y, rng))
    visible = named_targets(phone.canvas())
    return [pair for pair in visible if pair[0].key == key] or [pair for pair in visible if pair[1].name not in before]


def _swipe_sideways(
    phone: SimulatedPhone, rng: random.Random, settings: ExplorationWalkRecipe
) -> Generator[WalkStep, None, list[NamedTarget]]:
    """Swipes left or right; returns the targets that the last swipe with an effect revealed."""
    seen = _names(phone)
    revealed: list[NamedTarget] = []
    direction = rng.choice(_SIDEWAYS)
    for _ in range(settings.most_sideways_swipes):
        yield WalkStep("", jittered_swipe(direction, phone.canvas(), None, rng))
        visible = [pair for pair in named_targets(phone.canvas()) if pair[1].name != _BACK_ICON]
        new = [pair for pair in visible if pair[1].name not in seen]
        if not new:
            still_new = {element.name for _, element in revealed}
            return [pair for pair in visible if pair[1].name in still_new]
        revealed, seen = new, seen | _names(phone)
        if rng.random() > settings.sideways_again:
            break
    return revealed


def _names(phone: SimulatedPhone) -> set[str]:
    return {element.name for element in phone.elements()}


def _dismiss_popup(phone: SimulatedPhone, rng: random.Random) -> WalkStep:
    """Show a dialog; the step is the tap that closes it."""
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
    """Targets that lead further: those that contain the typed text, empty fields, or any but the back arrow."""
    named = [pair for pair in named_targets(phone.canvas()) if pair[1].name != _BACK_ICON]
    typed = typed_text(phone).casefold() if is_typing(phone) else ""
    matching = [pair for pair in named if typed and typed in pair[1].name.casefold()]
    fields = [pair for pair in named if pair[1].text.startswith(EMPTY_FIELD)]
    if matching and rng.random() < settings.tap_typed:
        return matching
    return fields if fields and rng.random() < settings.field else named


def _known_query(phone: SimulatedPhone, rng: random.Random) -> str:
    """A query for which the app in front may have results."""
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
