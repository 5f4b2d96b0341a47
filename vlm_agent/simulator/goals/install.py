"""Templates of `install`: installing, removing, updating and opening apps."""

import random
from collections.abc import Iterator
from functools import partial

from vlm_agent.simulator.apps.store import Store
from vlm_agent.simulator.expert import ENTER, Intent, after_opening, always, impossible, open_app, tap, type_text
from vlm_agent.simulator.goals.starts import anywhere
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import STORE_APPS


def set_installed(phone: SimulatedPhone, name: str, is_installed: bool) -> None:
    """Install or remove an app. Call it before the launcher is first drawn, because the launcher then arranges the
    installed apps."""
    phone.installed = [app for app in phone.installed if app != name]
    if is_installed:
        phone.installed.insert(12, name)


def to_app_page(phone: SimulatedPhone, name: str) -> Iterator[Intent]:
    """Open the page of `name` through the store's search."""
    yield from open_app(phone, "Store")
    if phone.the(Store).route.name == "app" and phone.the(Store).route.about == name:
        return
    if phone.canvas().find(f"show:{name}"):
        yield tap(f"show:{name}")
        return
    yield tap("search")
    yield type_text(name.lower())
    yield tap(f"show:{name}")


@template("install", 3.0)
def install(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        set_installed(phone, name, False)
        anywhere(phone, rng, "Store")

    return Goal(
        (f"Install {name}", f"Install the app {name}", f"Get {name} from the Store"),
        start,
        always(partial(to_app_page, name=name), tap("install")),
        lambda phone: name in phone.installed,
    )


@template("install", 2.5)
def install_and_open(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        set_installed(phone, name, rng.random() < 0.3)
        anywhere(phone, rng, "Store", inside=0.1)
        if rng.random() < 0.3:
            phone.open("Store")
            phone.the(Store).show(name)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        if phone.front != "Store" and name in phone.installed:
            yield from open_app(phone, name)
            return
        yield from to_app_page(phone, name)
        if name not in phone.installed:
            yield tap("install")
        yield tap("open")

    return Goal(
        (f"Open {name} (install if not already installed)", f"Open app {name} (install if not already installed)"),
        start,
        script,
        lambda phone: phone.shown == name,
    )


@template("install", 2.0)
def uninstall(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)
    there = slots.hide((True, True, True, True, False))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        set_installed(phone, name, there)
        anywhere(phone, rng, "Store", inside=0.25)

    def reached(phone: SimulatedPhone) -> bool:
        if there:
            return name in phone.the(Store).removals and name not in phone.installed
        return phone.shows("Store", "app", name)

    ends = [] if there else [impossible("Uninstall")]
    script = always(partial(to_app_page, name=name), *ends, tap("uninstall"), tap("ok"))
    return Goal((f"Uninstall {name}", f"Remove the app {name}"), start, script, reached)


@template("install", 0.8)
def update(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        set_installed(phone, name, True)
        phone.the(Store).updates.add(name)
        anywhere(phone, rng, "Store", inside=0.25)

    return Goal(
        (f"Update {name}", f"Update {name} in the Store"),
        start,
        after_opening("Store", tap("tab:Updates"), tap(f"update:{name}")),
        lambda phone: name in phone.the(Store).updated,
    )


@template("install", 1.8)
def search_store(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    return Goal(
        (f"Search the Store for all apps like {name}", f"List apps like {name} in the Store"),
        lambda phone, rng: anywhere(phone, rng, "Store"),
        after_opening("Store", tap("search"), type_text(name.lower()), ENTER),
        lambda phone: phone.shows("Store", "results", name),
    )


@template("install", 1.3, memory=True)
def reinstall(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        set_installed(phone, name, True)
        anywhere(phone, rng, "Store", inside=0.3)

    def reached(phone: SimulatedPhone) -> bool:
        store = phone.the(Store)
        return name in store.removals and name in store.installs and name in phone.installed

    return Goal(
        (f"Uninstall {name} and install it again", f"Remove {name}, then install {name} again"),
        start,
        always(partial(to_app_page, name=name), tap("uninstall"), tap("ok"), tap("install")),
        reached,
    )
