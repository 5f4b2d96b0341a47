"""Templates of `general`: looking things up on the web, in maps, news and notes."""

import random
from collections.abc import Iterator
from functools import partial

from vlm_agent.simulator.app import Route
from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.apps.news import News
from vlm_agent.simulator.apps.notes import Notes
from vlm_agent.simulator.apps.photos import Photos
from vlm_agent.simulator.expert import BACK, ENTER, Intent, after_opening, always, open_app, swipe, tap, type_text
from vlm_agent.simulator.goals.starts import anywhere, at_end
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import CITIES, LABELS, SECTIONS, SITES, TOPICS


def search_web(phone: SimulatedPhone, query: str) -> Iterator[Intent]:
    """Open the results for `query`, with the browser in the foreground."""
    yield tap("address")
    yield type_text(query)
    suggestion = f"suggest:{query}"
    yield tap(suggestion) if query in phone.the(Browser).suggestions(query) else ENTER


def to_site(phone: SimulatedPhone, site: str) -> Iterator[Intent]:
    """Open a site or web shop, with the browser in the foreground."""
    if site in phone.the(Browser).tiles:
        yield tap(f"site:{site}")
    else:
        yield from search_web(phone, site.lower())


@template("general", 3.5)
def look_up(slots: Slots) -> Goal:
    topic, city = slots.pick(TOPICS), slots.pick(CITIES)
    query = f"{topic} in {city.lower()}"

    return Goal(
        (f"Search for {topic} in {city}", f"Look up {topic} in {city} on the web", f"Show me {topic} in {city}"),
        lambda phone, rng: anywhere(phone, rng, "Browser"),
        after_opening("Browser", partial(search_web, query=query)),
        lambda phone: phone.shows("Browser", "results", query),
    )


@template("general", 2.8)
def look_up_and_open(slots: Slots) -> Goal:
    topic, city, site = slots.pick(TOPICS), slots.pick(CITIES), slots.pick(SITES)
    query = f"{topic} in {city.lower()}"

    def reached(phone: SimulatedPhone) -> bool:
        *_, before, _ = (Route(""), *phone.the(Browser).routes)
        from_results = before.name == "results" and str(before.about).lower() == query
        return phone.shows("Browser", "site", site) and from_results

    return Goal(
        (
            f"Search for {topic} in {city} and open {site}",
            f"Find {topic} in {city} on {site}",
            f"What does {site} say about {topic} in {city}?",
        ),
        lambda phone, rng: anywhere(phone, rng, "Browser", inside=0.3),
        after_opening("Browser", partial(search_web, query=query), tap(f"site:{site}")),
        reached,
    )


@template("general", 1.8)
def find_on_map(slots: Slots) -> Goal:
    topic, city = slots.pick(TOPICS), slots.pick(CITIES)
    directions = slots.pick((True, False))
    query = f"{topic} in {city.lower()}"
    phrasings = (
        (f"How do I get to the {topic} in {city}?", f"Get directions to {topic} in {city}")
        if directions
        else (f"Where are the {topic} in {city}?", f"Show {topic} in {city} on the map")
    )
    to_place = (tap("search"), type_text(query), tap(f"place:{query}"))
    return Goal(
        phrasings,
        lambda phone, rng: anywhere(phone, rng, "Maps"),
        after_opening("Maps", *to_place, *[tap("directions")] * directions),
        lambda phone: phone.shows("Maps", "way" if directions else "place", query),
    )


@template("general", 1.3)
def read_news(slots: Slots) -> Goal:
    section, city = slots.pick(SECTIONS), slots.pick(CITIES)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        news = phone.the(News)
        if city not in news.stories[section]:
            news.stories[section][rng.randrange(9)] = city
        anywhere(phone, rng, "News", inside=0.25)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from open_app(phone, "News")
        news = phone.the(News)
        while news.sections[news.at] != section:
            label = f"tab:{section}"
            to_left = news.sections.index(section) > news.at
            is_visible = phone.canvas().find(label) is not None
            yield tap(label) if is_visible else swipe("left" if to_left else "right", section)
        yield tap(f"story:{city}")

    return Goal(
        (
            f"What is the {section} news in {city}?",
            f"Read the {section} story about {city} in News",
            f"Open News and read {section} in {city}",
        ),
        start,
        script,
        lambda phone: phone.shows("News", "story", (section, city)),
    )


@template("general", 1.2)
def visit_site(slots: Slots) -> Goal:
    site = slots.pick(SITES)

    return Goal(
        (f"Go to {site}", f"Open {site} in the browser", f"Visit the site {site}"),
        lambda phone, rng: anywhere(phone, rng, "Browser", inside=0.15),
        after_opening("Browser", partial(to_site, site=site)),
        lambda phone: phone.shows("Browser", "site", site),
    )


@template("general", 0.9)
def see_photo(slots: Slots) -> Goal:
    city, number = slots.pick(CITIES), slots.pick((2, 3))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        photos = phone.the(Photos)
        if city not in photos.albums:
            at = rng.randrange(len(photos.albums))
            photos.pictures[city] = photos.pictures[photos.albums[at]]
            photos.albums[at] = city
        anywhere(phone, rng, "Photos", inside=0.25)
        if phone.front == "Photos":
            at_end(phone, rng, 0.4)

    return Goal(
        (f"Show photo {number} of {city}", f"Open photo {number} of the {city} album in Photos"),
        start,
        after_opening("Photos", tap(f"album:{city}"), *[swipe("left")] * (number - 1)),
        lambda phone: phone.shows("Photos", "photo", [city, number - 1]),
    )


@template("general", 1.9, memory=True)
def look_up_note(slots: Slots) -> Goal:
    topic, note, place = slots.pick(TOPICS), slots.pick(LABELS), slots.hide(CITIES)
    query = f"{topic} in {place.lower()}"

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        notes = phone.the(Notes)
        others = [title for title in notes.notes if title != note]
        titles = [*others[:7], note]
        rng.shuffle(titles)
        notes.notes = {title: notes.notes.get(title, rng.choice(CITIES)) for title in titles}
        notes.notes[note] = place
        anywhere(phone, rng, "Notes", "Browser", inside=0.4)

    return Goal(
        (
            f"Read the note {note} and search for {topic} in that place",
            f"Search the web for {topic} in the city of the note {note}",
        ),
        start,
        after_opening("Notes", tap(f"note:{note}"), after_opening("Browser", partial(search_web, query=query))),
        lambda phone: phone.shows("Browser", "results", query),
    )


@template("general", 0.5)
def leave(slots: Slots) -> Goal:
    topic, city = slots.pick(TOPICS), slots.pick(CITIES)
    query = f"{topic} in {city.lower()}"

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.open("Browser")
        browser = phone.the(Browser)
        browser.push("results", query)
        browser.visit(rng.choice(list(SITES)))

    return Goal(
        (f"Go back to the results for {topic} in {city}", f"Return to {topic} in {city}"),
        start,
        always(BACK),
        lambda phone: phone.shows("Browser", "results", query),
    )
