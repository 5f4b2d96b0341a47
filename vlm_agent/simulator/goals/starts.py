"""Start states of episodes: home screen, drawer, an open app, quick settings."""

import random

from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.phone import SimulatedPhone, random_popup
from vlm_agent.simulator.words import APPS

POPUP_CHANCE = 0.22


def anywhere(phone: SimulatedPhone, rng: random.Random, *apps: str, inside: float = 0.2) -> None:
    """A random start for a goal that needs `apps`; with probability `inside` the first of them is open."""
    for name in apps:
        if rng.random() < POPUP_CHANCE:
            phone.pending[name] = random_popup(name, rng, shuffle_buttons=True)
    where = rng.random()
    if apps and where < inside:
        phone.open(apps[0])
    elif where < inside + 0.27:
        others = [name for name in APPS if name not in apps and name in phone.installed]
        phone.open(rng.choice(others))
    elif where < inside + 0.33 and phone.theme.drawer != "none":
        phone.the(Launcher).push("drawer", 0)
    if rng.random() < 0.05:
        phone.shade = True


def begin(phone: SimulatedPhone, rng: random.Random, app: str, inside: float = 0.2) -> None:
    """Like `anywhere`; if `app` is in the foreground, its page may be scrolled to the end."""
    anywhere(phone, rng, app, inside=inside)
    if phone.front == app:
        at_end(phone, rng, 0.5)


def in_app(phone: SimulatedPhone, rng: random.Random, name: str, popup: float = 0.1) -> None:
    """Open the app, sometimes with a dialog, sometimes scrolled to the end."""
    phone.open(name)
    if rng.random() < popup:
        phone.popup = random_popup(name, rng, shuffle_buttons=True)
    at_end(phone, rng, 0.4)


def at_end(phone: SimulatedPhone, rng: random.Random, chance: float) -> None:
    """Scroll the foreground page to its end with probability `chance`."""
    if rng.random() < chance:
        phone.changed()
        phone.canvas()
        route = phone.app(phone.front).route
        route.scroll = route.limit
        phone.changed()
