"""Play: a walk over a phone that comes upon something, out of whatever was open, by swipes, and by searches."""

import random
from collections.abc import Callable, Iterator

from vlm_agent.devices.simulated_phone.apps.shop import product_names
from vlm_agent.devices.simulated_phone.canvas import Target
from vlm_agent.devices.simulated_phone.errand import FIELDS, Deed, tapping, tellable
from vlm_agent.devices.simulated_phone.expert import jittered_swipe
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.devices.simulated_phone.words import CITIES, LABELS, NAMES, SHOPS, SITES, STORE_APPS, TOPICS
from vlm_agent.episodes import Action, UiElement

_AWAY, _SWIPE, _TO_WHAT_CAME = 0.4, 0.12, 0.8
_TYPE, _LOWER, _ENTER, _TO_WHAT_WAS_TYPED, _FIELD = 0.85, 0.7, 0.3, 0.7, 0.3
_BY_APP, _BACKWARD = 0.9, "ICON_ARROW_BACKWARD"
_SWIPED = ("up", "up", "up", "down", "left", "left", "right")


def play(phone: SimulatedPhone, rng: random.Random, deeds: int) -> Iterator[Deed]:
    """At most `deeds` deeds and what they need between them, each to be performed before the next is asked for.

    Those that a goal would not tell (home, a swipe, enter) have no words. It ends early where nothing has a name.
    """
    if phone.front != "Launcher" and rng.random() < _AWAY:
        yield Deed("", Action.press("home"))
    for _ in range(deeds):
        deed = _writing(phone, rng)
        came = []
        if deed is None and rng.random() < _SWIPE:
            before = {element.name for element in phone.elements()}
            yield Deed("", jittered_swipe(rng.choice(_SWIPED), phone.canvas(), None, rng))
            came = [pair for pair in tellable(phone.canvas()) if pair[1].name not in before]
        if deed is None:
            chosen = came if came and rng.random() < _TO_WHAT_CAME else _likely(phone, rng)
            if not chosen:
                return
            deed = tapping(*rng.choice(chosen), phone.canvas(), rng, _BY_APP)
        yield deed


def _writing(phone: SimulatedPhone, rng: random.Random) -> Deed | None:
    if not _is_writing(phone):
        return None
    typed = _typed(phone)
    if typed:
        return Deed("", Action.press("enter")) if rng.random() < _ENTER else None
    if rng.random() > _TYPE:
        return None
    words = _something_known(phone, rng)
    return Deed(words, Action.type_text(words.lower() if rng.random() < _LOWER else words))


def _is_writing(phone: SimulatedPhone) -> bool:
    return phone.focus is not None and phone.popup is None and not phone.shade


def _typed(phone: SimulatedPhone) -> str:
    return phone.app(phone.front).fields.get(phone.focus, "")


def _likely(phone: SimulatedPhone, rng: random.Random) -> list[tuple[Target, UiElement]]:
    """What can be tapped and leads on; mostly what was typed where it is found, often a field where there is one."""
    named = [pair for pair in tellable(phone.canvas()) if pair[1].name != _BACKWARD]
    typed = _typed(phone).casefold() if _is_writing(phone) else ""
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
