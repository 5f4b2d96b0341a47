"""More templates of `single`: quick settings, scrolling, back and home."""

import random
from collections.abc import Iterator

from vlm_agent.simulator.apps.messages import Contacts
from vlm_agent.simulator.expert import BACK, HOME, Intent, always, swipe, tap
from vlm_agent.simulator.goals.google_apps import with_tile
from vlm_agent.simulator.goals.starts import at_end
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import APPS, NAMES, SWITCHES


@template("single", 0.7)
def tile_here(slots: Slots) -> Goal:
    name, state = slots.pick(SWITCHES), slots.pick(("on", "off"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_tile(phone, rng, name, state == "off")
        phone.shade = True

    return Goal(
        (f"Tap the {name} tile to turn it {state}", f"Turn {state} the {name} tile"),
        start,
        always(tap(f"quick:{name}")),
        lambda phone: phone.switches[name] is (state == "on"),
    )


@template("single", 0.8)
def close_shade(slots: Slots) -> Goal:
    name = slots.pick(APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.open(name)
        phone.shade = True

    return Goal(
        (f"Close the quick settings over {name}", f"Swipe the quick settings away to see {name}"),
        start,
        always(swipe("up")),
        lambda phone: phone.shown == name,
    )


@template("single", 0.7)
def pull_shade(slots: Slots) -> Goal:
    name = slots.pick(APPS)

    return Goal(
        (f"Pull down the quick settings over {name}", f"Show the quick settings in {name}"),
        lambda phone, rng: phone.open(name),
        always(swipe("shade")),
        lambda phone: phone.front == name and phone.shade,
    )


@template("single", 0.5)
def scroll_back(slots: Slots) -> Goal:
    names = ("Settings", "Contacts", "Mail", "Shop", "Messages", "News", "Photos")
    name = slots.pick((*names, "Files", "Music", "Video", "Games", "Books"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.open(name)
        at_end(phone, rng, 1.0)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        while phone.app(name).route.scroll > 0:
            yield swipe("down")

    def reached(phone: SimulatedPhone) -> bool:
        routes = phone.app(name).routes
        return phone.shown == name and len(routes) == 1 and routes[0].scroll == 0

    return Goal((f"Scroll {name} to the top", f"Go to the top of {name}"), start, script, reached)


@template("single", 0.4)
def go_home(slots: Slots) -> Goal:
    name = slots.pick(APPS)

    return Goal(
        (f"Leave {name} for the home screen", f"Go home from {name}"),
        lambda phone, rng: phone.open(name),
        always(HOME),
        lambda phone: phone.shows("Launcher", "home"),
    )


@template("single", 0.4)
def go_back(slots: Slots) -> Goal:
    name = slots.pick(NAMES)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.open("Contacts")
        phone.the(Contacts).push("person", name)

    return Goal(
        (f"Go back from {name} to all contacts", f"Leave the page of {name}"),
        start,
        always(BACK),
        lambda phone: phone.shows("Contacts", "home"),
    )
