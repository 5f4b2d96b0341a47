"""Where episodes begin: on the home screen, in the drawer, in an app left open, under a pulled-down shade."""

import random

from vlm_agent.devices.simulated_phone.phone import POPUPS, Popup, SimulatedPhone
from vlm_agent.devices.simulated_phone.words import APPS

POPUP_CHANCE = 0.22


def popup_for(app: str, rng: random.Random) -> Popup:
    title, text, buttons, dismiss = rng.choice(POPUPS)
    order = buttons if rng.random() < 0.5 else buttons[::-1]
    return Popup(title.format(app=app), text.format(app=app), order, dismiss, rng.random() < 0.5)


def anywhere(phone: SimulatedPhone, rng: random.Random, *used: str, inside: float = 0.2) -> None:
    """A beginning for a goal that needs the apps `used`; with chance `inside` the first of them is open already."""
    for name in used:
        if rng.random() < POPUP_CHANCE:
            phone.pending[name] = popup_for(name, rng)
    where = rng.random()
    if used and where < inside:
        phone.open(used[0])
    elif where < inside + 0.27:
        others = [name for name in APPS if name not in used and name in phone.installed]
        phone.open(rng.choice(others))
    elif where < inside + 0.33 and phone.theme.drawer != "none":
        phone.app("Launcher").push("drawer", 0)
    if rng.random() < 0.05:
        phone.shade = True


def begin(phone: SimulatedPhone, rng: random.Random, app: str, inside: float = 0.2) -> None:
    """Anywhere; where that is in `app`, its page may be scrolled to the end."""
    anywhere(phone, rng, app, inside=inside)
    if phone.front == app:
        at_end(phone, rng, 0.5)


def in_app(phone: SimulatedPhone, rng: random.Random, name: str, popup: float = 0.1) -> None:
    """The app is in front, as a rule at the top of its page, now and then scrolled to its end."""
    phone.open(name)
    if rng.random() < popup:
        phone.popup = popup_for(name, rng)
    at_end(phone, rng, 0.4)


def at_end(phone: SimulatedPhone, rng: random.Random, chance: float) -> None:
    """Scroll the page in front to its end, with that chance."""
    if rng.random() < chance:
        phone.changed()
        phone.canvas()
        route = phone.app(phone.front).route
        route.scroll = route.limit
        phone.changed()
