"""The app store: installing, removing, updating and opening apps."""

from vlm_agent.devices.simulated_phone.expert import ENTER, HOME, IMPOSSIBLE, open_app, tap, type_text
from vlm_agent.devices.simulated_phone.goals.starts import anywhere
from vlm_agent.devices.simulated_phone.tasks import Goal, Slots, template
from vlm_agent.devices.simulated_phone.words import STORE_APPS


def make_installed(phone, name: str, wanted: bool) -> None:
    """Must come before anything is drawn: the launcher places what is installed then."""
    phone.installed = [app for app in phone.installed if app != name]
    if wanted:
        phone.installed.insert(12, name)


def to_app_page(phone, name: str):
    """Through the store's search to the page of `name`."""
    yield from open_app(phone, "Store")
    if phone.app("Store").route.name == "app" and phone.app("Store").route.about == name:
        return
    if phone.canvas().find(f"show:{name}"):
        yield tap(f"show:{name}")
        return
    yield tap("search")
    yield type_text(name.lower())
    yield tap(f"show:{name}")


def start_store(phone, rng, inside: float = 0.2) -> None:
    anywhere(phone, rng, "Store", inside=inside)


@template("install", 3.0)
def install(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone, rng):
        make_installed(phone, name, False)
        start_store(phone, rng)

    def plan(phone):
        yield from to_app_page(phone, name)
        yield tap("install")

    return Goal(
        (f"Install {name}", f"Install the app {name}", f"Get {name} from the Store"),
        start,
        plan,
        lambda phone: name in phone.installed,
    )


@template("install", 2.5)
def install_and_open(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone, rng):
        make_installed(phone, name, rng.random() < 0.3)
        anywhere(phone, rng, "Store", inside=0.1)
        if rng.random() < 0.3:
            phone.open("Store")
            phone.app("Store").show(name)

    def plan(phone):
        launcher = phone.app("Launcher")
        if phone.front != "Store" and name in phone.installed:
            if not phone.at_home:
                yield HOME
            yield tap(f"app:{name}")
            return
        yield from to_app_page(phone, name)
        if name not in launcher.phone.installed:
            yield tap("install")
        yield tap("open")

    return Goal(
        (f"Open {name} (install if not already installed)", f"Open app {name} (install if not already installed)"),
        start,
        plan,
        lambda phone: phone.front == name,
    )


@template("install", 2.0)
def uninstall(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)
    there = slots.hide((True, True, True, True, False))

    def start(phone, rng):
        make_installed(phone, name, there)
        start_store(phone, rng, 0.25)

    def plan(phone):
        yield from to_app_page(phone, name)
        if not there:
            yield IMPOSSIBLE
        yield tap("uninstall")
        yield tap("ok")

    def reached(phone) -> bool:
        store = phone.app("Store")
        if there:
            return name in store.removals
        return phone.front == "Store" and store.route.name == "app" and store.route.about == name

    return Goal((f"Uninstall {name}", f"Remove the app {name}"), start, plan, reached)


@template("install", 0.8)
def update(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone, rng):
        make_installed(phone, name, True)
        phone.app("Store").updates.add(name)
        start_store(phone, rng, 0.25)

    def plan(phone):
        yield from open_app(phone, "Store")
        yield tap("tab:Updates")
        yield tap(f"update:{name}")

    return Goal(
        (f"Update {name}", f"Update {name} in the Store"), start, plan, lambda phone: name in phone.app("Store").updated
    )


@template("install", 1.8)
def search_store(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def plan(phone):
        yield from open_app(phone, "Store")
        yield tap("search")
        yield type_text(name.lower())
        yield ENTER

    def reached(phone) -> bool:
        route = phone.app("Store").route
        return phone.front == "Store" and route.name == "results" and str(route.about).lower() == name.lower()

    return Goal(
        (f"Search the Store for all apps like {name}", f"List apps like {name} in the Store"),
        lambda phone, rng: start_store(phone, rng),
        plan,
        reached,
    )


@template("install", 1.3, memory=True)
def reinstall(slots: Slots) -> Goal:
    name = slots.pick(STORE_APPS)

    def start(phone, rng):
        make_installed(phone, name, True)
        start_store(phone, rng, 0.3)

    def plan(phone):
        yield from to_app_page(phone, name)
        yield tap("uninstall")
        yield tap("ok")
        yield tap("install")

    def reached(phone) -> bool:
        store = phone.app("Store")
        return name in store.removals and name in store.installs and name in phone.installed

    return Goal(
        (f"Uninstall {name} and install it again", f"Remove {name}, then install {name} again"), start, plan, reached
    )
