"""Looking things up: the web, maps, news, notes."""

from vlm_agent.devices.simulated_phone.expert import BACK, ENTER, open_app, swipe, tap, type_text
from vlm_agent.devices.simulated_phone.goals.starts import anywhere, at_end
from vlm_agent.devices.simulated_phone.tasks import Goal, Slots, template
from vlm_agent.devices.simulated_phone.words import CITIES, LABELS, SECTIONS, SITES, TOPICS


def search_web(phone, query: str):
    """From the browser in front to the results for `query`."""
    yield tap("address")
    yield type_text(query)
    shown = f"suggest:{query}"
    yield tap(shown) if query in phone.app("Browser").suggestions(query) else ENTER


def shows_results(phone, query: str) -> bool:
    route = phone.app("Browser").route
    return phone.front == "Browser" and route.name == "results" and str(route.about).lower() == query


@template("general", 3.5)
def look_up(slots: Slots) -> Goal:
    topic, city = slots.pick(TOPICS), slots.pick(CITIES)
    query = f"{topic} in {city.lower()}"

    def plan(phone):
        yield from open_app(phone, "Browser")
        yield from search_web(phone, query)

    return Goal(
        (f"Search for {topic} in {city}", f"Look up {topic} in {city} on the web", f"Show me {topic} in {city}"),
        lambda phone, rng: anywhere(phone, rng, "Browser"),
        plan,
        lambda phone: shows_results(phone, query),
    )


@template("general", 2.8)
def look_up_and_open(slots: Slots) -> Goal:
    topic, city, site = slots.pick(TOPICS), slots.pick(CITIES), slots.pick(SITES)
    query = f"{topic} in {city.lower()}"

    def plan(phone):
        yield from open_app(phone, "Browser")
        yield from search_web(phone, query)
        yield tap(f"site:{site}")

    def reached(phone) -> bool:
        route = phone.app("Browser").route
        return phone.front == "Browser" and route.name == "site" and route.about == site

    return Goal(
        (
            f"Search for {topic} in {city} and open {site}",
            f"Find {topic} in {city} on {site}",
            f"What does {site} say about {topic} in {city}?",
        ),
        lambda phone, rng: anywhere(phone, rng, "Browser", inside=0.3),
        plan,
        reached,
    )


@template("general", 1.8)
def find_on_map(slots: Slots) -> Goal:
    topic, city = slots.pick(TOPICS), slots.pick(CITIES)
    directions = slots.pick((True, False))
    query = f"{topic} in {city.lower()}"

    def plan(phone):
        yield from open_app(phone, "Maps")
        yield tap("search")
        yield type_text(query)
        yield tap(f"place:{query}")
        if directions:
            yield tap("directions")

    def reached(phone) -> bool:
        route = phone.app("Maps").route
        return (
            phone.front == "Maps"
            and route.name == ("way" if directions else "place")
            and str(route.about).lower() == query
        )

    phrasings = (
        (f"How do I get to the {topic} in {city}?", f"Get directions to {topic} in {city}")
        if directions
        else (f"Where are the {topic} in {city}?", f"Show {topic} in {city} on the map")
    )
    return Goal(phrasings, lambda phone, rng: anywhere(phone, rng, "Maps"), plan, reached)


@template("general", 1.3)
def read_news(slots: Slots) -> Goal:
    section, city = slots.pick(SECTIONS), slots.pick(CITIES)

    def start(phone, rng):
        news = phone.app("News")
        if city not in news.stories[section]:
            news.stories[section][rng.randrange(9)] = city
        anywhere(phone, rng, "News", inside=0.25)

    def plan(phone):
        yield from open_app(phone, "News")
        news = phone.app("News")
        while news.sections[news.at] != section:
            label = f"tab:{section}"
            to_left = news.sections.index(section) > news.at
            yield tap(label) if phone.canvas().find(label) else swipe("left" if to_left else "right")
        yield tap(f"story:{city}")

    def reached(phone) -> bool:
        route = phone.app("News").route
        return phone.front == "News" and route.name == "story" and route.about == (section, city)

    return Goal(
        (
            f"What is the {section} news in {city}?",
            f"Read the {section} story about {city} in News",
            f"Open News and read {section} in {city}",
        ),
        start,
        plan,
        reached,
    )


@template("general", 1.2)
def visit_site(slots: Slots) -> Goal:
    site = slots.pick(SITES)

    def plan(phone):
        yield from open_app(phone, "Browser")
        if site in phone.app("Browser").tiles:
            yield tap(f"site:{site}")
        else:
            yield from search_web(phone, site.lower())

    def reached(phone) -> bool:
        route = phone.app("Browser").route
        return phone.front == "Browser" and route.name == "site" and route.about == site

    def start(phone, rng):
        anywhere(phone, rng, "Browser", inside=0.15)

    return Goal((f"Go to {site}", f"Open {site} in the browser", f"Visit the site {site}"), start, plan, reached)


@template("general", 0.9)
def see_photo(slots: Slots) -> Goal:
    city, number = slots.pick(CITIES), slots.pick((2, 3))

    def start(phone, rng):
        photos = phone.app("Photos")
        if city not in photos.albums:
            at = rng.randrange(len(photos.albums))
            photos.pictures[city] = photos.pictures[photos.albums[at]]
            photos.albums[at] = city
        anywhere(phone, rng, "Photos", inside=0.25)
        if phone.front == "Photos":
            at_end(phone, rng, 0.4)

    def plan(phone):
        yield from open_app(phone, "Photos")
        yield tap(f"album:{city}")
        for _ in range(number - 1):
            yield swipe("left")

    def reached(phone) -> bool:
        route = phone.app("Photos").route
        return phone.front == "Photos" and route.name == "photo" and route.about == [city, number - 1]

    return Goal(
        (f"Show photo {number} of {city}", f"Open photo {number} of the {city} album in Photos"), start, plan, reached
    )


@template("general", 1.9, memory=True)
def look_up_note(slots: Slots) -> Goal:
    topic, note, place = slots.pick(TOPICS), slots.pick(LABELS), slots.hide(CITIES)
    query = f"{topic} in {place.lower()}"

    def start(phone, rng):
        notes = phone.app("Notes")
        others = [title for title in notes.notes if title != note]
        titles = [*others[:7], note]
        rng.shuffle(titles)
        notes.notes = {title: notes.notes.get(title, rng.choice(CITIES)) for title in titles}
        notes.notes[note] = place
        anywhere(phone, rng, "Notes", "Browser", inside=0.4)

    def plan(phone):
        yield from open_app(phone, "Notes")
        yield tap(f"note:{note}")
        yield from open_app(phone, "Browser")
        yield from search_web(phone, query)

    return Goal(
        (
            f"Read the note {note} and search for {topic} in that place",
            f"Search the web for {topic} in the city of the note {note}",
        ),
        start,
        plan,
        lambda phone: shows_results(phone, query),
    )


@template("general", 0.5)
def leave(slots: Slots) -> Goal:
    topic, city = slots.pick(TOPICS), slots.pick(CITIES)
    query = f"{topic} in {city.lower()}"

    def start(phone, rng):
        phone.open("Browser")
        browser = phone.app("Browser")
        browser.push("results", query)
        browser.visit(rng.choice(list(SITES)))

    def plan(phone):
        yield BACK

    return Goal(
        (f"Go back to the results for {topic} in {city}", f"Return to {topic} in {city}"),
        start,
        plan,
        lambda phone: shows_results(phone, query),
    )
