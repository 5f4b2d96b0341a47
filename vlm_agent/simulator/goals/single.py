"""Templates of `single`: one or two steps on the open page."""

import random
from collections.abc import Iterator

from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.apps.calendar import Calendar
from vlm_agent.simulator.apps.clock import MINUTES, Clock
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.apps.messages import Messages
from vlm_agent.simulator.apps.news import News
from vlm_agent.simulator.apps.photos import Photos
from vlm_agent.simulator.apps.settings import CHOICES, Settings
from vlm_agent.simulator.apps.shop import ShopApp, product_names
from vlm_agent.simulator.expert import Intent, always, swipe, tap, type_text
from vlm_agent.simulator.goals.google_apps import HOURS, choose_another, on_dial
from vlm_agent.simulator.goals.people import is_handled, is_sent, with_letter, with_talk
from vlm_agent.simulator.goals.starts import in_app
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import APPS, CITIES, DAYS, LABELS, NAMES, SECTIONS, SITES, SWITCHES, TOPICS


@template("single", 1.2)
def flip_switch(slots: Slots) -> Goal:
    name, state = slots.pick(SWITCHES), slots.pick(("on", "off"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.switches[name] = state == "off"
        in_app(phone, rng, "Settings")

    return Goal(
        (f"Switch {name} {state}", f"Switch {state} {name.lower()} on this page"),
        start,
        always(tap(name)),
        lambda phone: phone.switches[name] is (state == "on"),
    )


@template("single", 0.8)
def choose_here(slots: Slots) -> Goal:
    page = slots.pick(CHOICES)
    choice = slots.pick(CHOICES[page])

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.open("Settings")
        choose_another(phone, rng, page, choice)
        if rng.random() < 0.5:
            phone.the(Settings).push("page", page)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        if phone.the(Settings).route.name == "home":
            yield tap(page)
        yield tap(choice)

    return Goal(
        (f"Choose {choice} for {page}", f"Change {page} to {choice} here"),
        start,
        script,
        lambda phone: phone.the(Settings).choices[page] == choice,
    )


@template("single", 1.2)
def open_app_here(slots: Slots) -> Goal:
    name = slots.pick(APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        if phone.theme.drawer != "none" and rng.random() < 0.5:
            phone.the(Launcher).push("drawer", 0)

    return Goal(
        (f"Open {name}", f"Open the app {name}", f"Launch {name}"),
        start,
        always(tap(f"app:{name}")),
        lambda phone: phone.shown == name,
    )


@template("single", 1.2)
def mail_here(slots: Slots) -> Goal:
    name, verb = slots.pick(NAMES), slots.pick(("Star", "Open"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_letter(phone, rng, name)
        in_app(phone, rng, "Mail")

    return Goal(
        (f"{verb} the letter of {name} here", f"{verb} the mail of {name} on this page"),
        start,
        always(tap(f"{'star' if verb == 'Star' else 'letter'}:{name}")),
        lambda phone: is_handled(phone, name, verb.lower()),
    )


@template("single", 1.2)
def open_site_here(slots: Slots) -> Goal:
    site, topic, city = slots.pick(SITES), slots.pick(TOPICS), slots.pick(CITIES)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.the(Browser).push("results", f"{topic} in {city.lower()}")
        in_app(phone, rng, "Browser")

    return Goal(
        (f"Open {site} from the results for {topic} in {city}", f"Tap {site} to read on {topic} in {city}"),
        start,
        always(tap(f"site:{site}")),
        lambda phone: phone.shows("Browser", "site", site),
    )


@template("single", 1.5)
def product_here(slots: Slots) -> Goal:
    product, add = slots.pick(product_names()), slots.pick((True, False))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.the(ShopApp).push("shop_results", product if rng.random() < 0.5 else product.split()[1])
        if product not in phone.the(ShopApp).shop.results(str(phone.the(ShopApp).route.about)):
            phone.the(ShopApp).route.about = product
        in_app(phone, rng, "Shop")

    def reached(phone: SimulatedPhone) -> bool:
        return product in phone.the(ShopApp).shop.cart if add else phone.shows("Shop", "shop_product", product)

    text = f"Add the {product} on this page to the cart" if add else f"Look at the {product}"
    return Goal(
        (text, f"Put the {product} into the cart" if add else f"Show the {product} on this page"),
        start,
        always(tap(f"product:{product}"), *[tap("add")] * add),
        reached,
    )


@template("single", 0.9)
def section_here(slots: Slots) -> Goal:
    section, city = slots.pick(SECTIONS), slots.pick(CITIES)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        news = phone.the(News)
        target = news.sections.index(section)
        news.at = min(max(0, target + rng.choice((-2, -1, 1, 2))), len(news.sections) - 1)
        if news.at == target:
            news.at = target + (1 if target == 0 else -1)
        news.stories[section] = [city, *(other for other in news.stories[section] if other != city)][:9]
        rng.shuffle(news.stories[section])
        in_app(phone, rng, "News", 0.05)
        news.route.scroll = 0.0

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        news = phone.the(News)
        while news.sections[news.at] != section:
            yield swipe("left" if news.sections.index(section) > news.at else "right", section)

    return Goal(
        (f"Swipe to the {section} section to see {city}", f"Swipe to {section} for the story of {city}"),
        start,
        script,
        lambda phone: phone.shown == "News" and phone.the(News).sections[phone.the(News).at] == section,
    )


@template("single", 0.9)
def turn_photo(slots: Slots) -> Goal:
    city, number = slots.pick(CITIES), slots.pick(range(1, 7))
    step = slots.hide((-1, 1))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        photos = phone.the(Photos)
        photos.pictures[city] = photos.pictures.get(city, photos.pictures[photos.albums[0]])
        phone.open("Photos")
        before = number - step
        photos.view(city, before - 1 if 1 <= before <= 6 else number - 1 + step)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        at = phone.the(Photos).route.about[1] + 1
        yield swipe("left" if number > at else "right")

    return Goal(
        (f"Swipe to photo {number} of {city}", f"Turn to photo {number} of {city}"),
        start,
        script,
        lambda phone: phone.shows("Photos", "photo", [city, number - 1]),
    )


@template("single", 0.8)
def dial_here(slots: Slots) -> Goal:
    hour, minute, half = slots.pick(HOURS), slots.pick(MINUTES[1:]), slots.pick(("AM", "PM"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.open("Clock")
        phone.the(Clock).tab = "Alarm"
        phone.the(Clock).new_alarm()

    time = f"{hour}:{minute:02d} {half}"
    return Goal(
        (f"Set the dial to {time}", f"Choose {time} on the dial"),
        start,
        always(*on_dial(hour, minute, half)),
        lambda phone: time in (*phone.the(Clock).saved, phone.the(Clock).dialled),
    )


@template("single", 2.0)
def write_here(slots: Slots) -> Goal:
    name, text = slots.pick(NAMES), slots.pick(LABELS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_talk(phone, rng, name)
        phone.open("Messages")
        phone.the(Messages).talk(name)

    return Goal(
        (f"Write {text} to {name} here", f"Tell {name} {text}"),
        start,
        always(tap("message"), type_text(text), tap("send")),
        lambda phone: is_sent(phone.the(Messages), name, text),
    )


@template("single", 0.8)
def event_here(slots: Slots) -> Goal:
    day, event = slots.pick(DAYS), slots.pick(LABELS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        calendar = phone.the(Calendar)
        events = [*(name for name in calendar.week[day] if name != event), event]
        rng.shuffle(events)
        calendar.week[day] = {name: rng.choice(CITIES) for name in events}
        calendar.at = DAYS.index(day)
        phone.open("Calendar")

    return Goal(
        (f"Open the {event} of this {day}", f"Show the {event} here on {day}"),
        start,
        always(tap(f"event:{event}")),
        lambda phone: phone.shows("Calendar", "event", event) and phone.the(Calendar).day == day,
    )
