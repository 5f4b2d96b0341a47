"""Play: a walk over a phone that comes upon something, out of whatever was open, by swipes, and by searches."""

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from vlm_agent.devices.simulated_phone.apps.shop import product_names
from vlm_agent.devices.simulated_phone.canvas import Target
from vlm_agent.devices.simulated_phone.errand import FIELDS, Deed, is_writing, tapping, tellable
from vlm_agent.devices.simulated_phone.expert import jittered_swipe, jittered_tap
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone, some_popup
from vlm_agent.devices.simulated_phone.words import CITIES, LABELS, NAMES, SHOPS, SITES, STORE_APPS, TOPICS
from vlm_agent.episodes import Action, UiElement

_AWAY, _SEEK, _POPUP = 0.4, 0.45, 0.15
_TYPE, _LOWER, _ENTER, _TO_WHAT_WAS_TYPED, _FIELD = 0.85, 0.7, 0.3, 0.7, 0.3
_BY_APP, _BACKWARD = 0.9, "ICON_ARROW_BACKWARD"
_REACH, _FARTHEST = 0.75, 6
_SIDEWAYS, _FURTHER, _FURTHEST = ("left", "right"), 0.45, 3

Pair = tuple[Target, UiElement]


def play(phone: SimulatedPhone, rng: random.Random, deeds: int) -> Iterator[Deed]:
    """At most `deeds` deeds and what they need between them, each to be performed before the next is asked for.

    Those that a goal would not tell (home, a swipe, enter, a dialog sent away) have no words; what was swiped for is
    marked as `sought`. It ends early where nothing has a name.
    """
    if not phone.at_home and rng.random() < _POPUP:
        yield _send_away(phone, rng)
    if not phone.at_home and rng.random() < _AWAY:
        yield Deed("", Action.press("home"))
    for _ in range(deeds):
        deed, came = _writing(phone, rng), []
        if deed is None and rng.random() < _SEEK:
            came = yield from _reached(phone, rng)
        if deed is None:
            chosen = came or _likely(phone, rng)
            if not chosen:
                return
            deed = replace(tapping(*rng.choice(chosen), phone.canvas(), rng, _BY_APP), sought=bool(came))
        yield deed


def _reached(phone: SimulatedPhone, rng: random.Random) -> Generator[Deed, None, list[Pair]]:
    """Swipes towards something that does not show, as often to either side as up or down; and it, once it does. Now and
    then, and where nothing is hidden, swipes to one side for whatever comes."""
    hidden = phone.canvas().hidden
    ways = sorted({(where.direction, key) for key, where in hidden.items()})
    if not ways or rng.random() > _REACH:
        return (yield from _swiped(phone, rng))
    way = rng.choice(sorted({direction for direction, _ in ways}))
    key = rng.choice([key for direction, key in ways if direction == way])
    before = _names(phone)
    for _ in range(_FARTHEST):
        where = phone.canvas().hidden.get(key)
        if where is None:
            break
        yield Deed("", jittered_swipe(where.direction, phone.canvas(), where.y, rng))
    here = tellable(phone.canvas())
    return [pair for pair in here if pair[0].key == key] or [pair for pair in here if pair[1].name not in before]


def _swiped(phone: SimulatedPhone, rng: random.Random) -> Generator[Deed, None, list[Pair]]:
    """Swipes to one side, and what can be tapped since the last that brought something."""
    seen, came = _names(phone), []
    direction = rng.choice(_SIDEWAYS)
    for _ in range(_FURTHEST):
        yield Deed("", jittered_swipe(direction, phone.canvas(), None, rng))
        here = [pair for pair in tellable(phone.canvas()) if pair[1].name != _BACKWARD]
        new = [pair for pair in here if pair[1].name not in seen]
        if not new:
            still = {element.name for _, element in came}
            return [pair for pair in here if pair[1].name in still]
        came, seen = new, seen | _names(phone)
        if rng.random() > _FURTHER:
            break
    return came


def _names(phone: SimulatedPhone) -> set[str]:
    return {element.name for element in phone.elements()}


def _send_away(phone: SimulatedPhone, rng: random.Random) -> Deed:
    """The tap that dismisses a dialog which comes up now."""
    phone.popup = some_popup(phone.front, rng)
    phone.changed()
    return Deed("", jittered_tap(phone.canvas().find(f"popup:{phone.popup.dismiss}").aim, phone.size, rng))


def _writing(phone: SimulatedPhone, rng: random.Random) -> Deed | None:
    if not is_writing(phone):
        return None
    typed = _typed(phone)
    if typed:
        return Deed("", Action.press("enter")) if rng.random() < _ENTER else None
    if rng.random() > _TYPE:
        return None
    words = _something_known(phone, rng)
    return Deed(words, Action.type_text(words.lower() if rng.random() < _LOWER else words))


def _typed(phone: SimulatedPhone) -> str:
    return phone.app(phone.front).fields.get(phone.focus, "")


def _likely(phone: SimulatedPhone, rng: random.Random) -> list[Pair]:
    """What can be tapped and leads on; mostly what was typed where it is found, often a field where there is one."""
    named = [pair for pair in tellable(phone.canvas()) if pair[1].name != _BACKWARD]
    typed = _typed(phone).casefold() if is_writing(phone) else ""
    found = [pair for pair in named if typed and typed in pair[1].name.casefold()]
    fields = [pair for pair in named if pair[1].text.startswith(FIELDS)]
    if found and rng.random() < _TO_WHAT_WAS_TYPED:
        return found
    return fields if fields and rng.random() < _FIELD else named


def _something_known(phone: SimulatedPhone, rng: random.Random) -> str:
    """What the app in front may find when it is typed."""
    if str(phone.app(phone.front).route.name).startswith("shop_"):
        return rng.choice(product_names())
    kinds = _KNOWN.get(phone.front, (_named, _label))
    return rng.choice(kinds)(rng)


def _one_of(names) -> Callable[[random.Random], str]:
    names = tuple(names)
    return lambda rng: rng.choice(names)


def _topic(rng: random.Random) -> str:
    return f"{rng.choice(TOPICS)} in {rng.choice(CITIES)}"


_named, _label, _city = _one_of(NAMES), _one_of(LABELS), _one_of(CITIES)
_KNOWN = {
    "Store": (_one_of(STORE_APPS),),
    "Maps": (_topic, _topic, _city),
    "Browser": (_topic, _topic, _one_of(SITES), _one_of(SHOPS)),
    "Clock": (_city,),
}
