"""Templates of `web_shopping`: searching, viewing products, filling and emptying the cart, checking out."""

import random
from collections.abc import Iterator

from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.apps.shop import Shop, ShopApp, product_names
from vlm_agent.simulator.expert import ENTER, Intent, open_app, tap, type_text
from vlm_agent.simulator.goals.starts import anywhere
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import SHOPS

PLACES = (*SHOPS, "Shop")


def host_of(place: str) -> str:
    return "Shop" if place == "Shop" else "Browser"


def shop_of(phone: SimulatedPhone, place: str) -> Shop:
    return phone.the(ShopApp).shop if place == "Shop" else phone.the(Browser).shop_named(place)


def in_shop(phone: SimulatedPhone, place: str) -> bool:
    app = phone.the(ShopApp) if place == "Shop" else phone.the(Browser)
    return phone.front == app.name and app.route.name.startswith("shop_") and app.shop is shop_of(phone, place)


def begin(phone: SimulatedPhone, rng: random.Random, place: str, inside: float = 0.3) -> None:
    """Like `starts.anywhere`, but with probability `inside` on the shop's first page."""
    host = host_of(place)
    if rng.random() < inside:
        anywhere(phone, rng, host, inside=1.0)
        if place != "Shop":
            phone.the(Browser).visit(place)
    else:
        anywhere(phone, rng, host, inside=0.12)


def go_to_shop(phone: SimulatedPhone, place: str) -> Iterator[Intent]:
    yield from open_app(phone, host_of(place))
    if place == "Shop" or in_shop(phone, place):
        return
    browser = phone.the(Browser)
    if place in browser.tiles:
        yield tap(f"site:{place}")
        return
    yield tap("address")
    yield type_text(place.lower())
    has_suggestion = place.lower() in browser.suggestions(place.lower())
    yield tap(f"suggest:{place.lower()}") if has_suggestion else ENTER


def search_shop(phone: SimulatedPhone, product: str) -> Iterator[Intent]:
    yield tap("shop_search")
    yield type_text(product)
    yield tap(f"suggest:{product}")


def shows(phone: SimulatedPhone, place: str, page: str, about: object = None) -> bool:
    route = phone.app(host_of(place)).route
    is_about = about is None or str(route.about).casefold() == str(about).casefold()
    return not phone.shade and in_shop(phone, place) and route.name == page and is_about


def on(place: str) -> str:
    return "in the Shop app" if place == "Shop" else f"on {place}"


@template("web_shopping", 2.0)
def search_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield from search_shop(phone, product)

    return Goal(
        (f"Search for {product} {on(place)}", f"Go to {place} and search for a {product}"),
        lambda phone, rng: begin(phone, rng, place),
        script,
        lambda phone: shows(phone, place, "shop_results", product),
    )


@template("web_shopping", 2.0)
def look_at_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield from search_shop(phone, product)
        yield tap(f"product:{product}")

    return Goal(
        (f"Find a {product} {on(place)} and open it", f"Show me the page of a {product} {on(place)}"),
        lambda phone, rng: begin(phone, rng, place, 0.4),
        script,
        lambda phone: shows(phone, place, "shop_product", product),
    )


@template("web_shopping", 2.5)
def add_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield from search_shop(phone, product)
        quick = shop_of(phone, place).quick_add and not shop_of(phone, place).grid
        if quick:
            yield tap(f"add:{product}")
            return
        yield tap(f"product:{product}")
        yield tap("add")

    return Goal(
        (f"Add a {product} to the cart {on(place)}", f"Go to {place}, search for {product} and add it to the cart"),
        lambda phone, rng: begin(phone, rng, place, 0.45),
        script,
        lambda phone: product in shop_of(phone, place).cart,
    )


@template("web_shopping", 1.2)
def buy_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield from search_shop(phone, product)
        yield tap(f"product:{product}")
        yield tap("add")
        yield tap("view_cart")
        yield tap("checkout")

    return Goal(
        (
            f"Add a {product} to the cart {on(place)}, then check out",
            f"Put a {product} into the cart {on(place)} and go to checkout",
        ),
        lambda phone, rng: begin(phone, rng, place, 0.5),
        script,
        lambda phone: shows(phone, place, "shop_checkout") and product in shop_of(phone, place).cart,
    )


def fill_cart(phone: SimulatedPhone, rng: random.Random, place: str, *more: str, extra: int = 2) -> None:
    """Put `more` and up to `extra` other products into the cart, shuffled."""
    cart = [*rng.sample(product_names(), rng.randint(0, extra)), *more]
    cart = list(dict.fromkeys(cart))
    rng.shuffle(cart)
    shop_of(phone, place).cart = cart


@template("web_shopping", 1.0)
def see_cart(slots: Slots) -> Goal:
    place, checkout = slots.pick(PLACES), slots.pick((True, False))
    product = slots.pick(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        fill_cart(phone, rng, place, product, extra=4)
        begin(phone, rng, place, 0.2)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield tap("cart")
        yield tap("checkout" if checkout else f"product:{product}")

    goal = (
        (f"Check out the cart with the {product} {on(place)}",)
        if checkout
        else (f"Open the {product} in the cart {on(place)}",)
    )

    def reached(phone: SimulatedPhone) -> bool:
        if not checkout:
            return shows(phone, place, "shop_product", product)
        from_cart = shows(phone, place, "shop_checkout") and phone.app(host_of(place)).routes[-2].name == "shop_cart"
        return from_cart and product in shop_of(phone, place).cart

    return Goal(goal, start, script, reached)


@template("web_shopping", 1.0)
def remove_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        fill_cart(phone, rng, place, product, extra=5)
        begin(phone, rng, place, 0.25)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield tap("cart")
        yield tap(f"remove:{product}")

    return Goal(
        (f"Remove the {product} from the cart {on(place)}", f"Take the {product} out of the cart {on(place)}"),
        start,
        script,
        lambda phone: product not in shop_of(phone, place).cart,
    )


@template("web_shopping", 1.1, memory=True)
def empty_then_add(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        shop_of(phone, place).badges = False
        fill_cart(phone, rng, place, rng.choice(product_names()), extra=1)
        begin(phone, rng, place, 0.5)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield tap("cart")
        shop = shop_of(phone, place)
        while shop.cart:
            yield tap(f"remove:{shop.cart[0]}")
        yield tap("up")
        yield from search_shop(phone, product)
        yield tap(f"product:{product}")
        yield tap("add")

    def reached(phone: SimulatedPhone) -> bool:
        shop = shop_of(phone, place)
        return shop.emptied and shop.cart == [product]

    return Goal(
        (
            f"Empty the cart {on(place)}, then add a {product}",
            f"Clear the cart {on(place)} and then put a {product} into it",
        ),
        start,
        script,
        reached,
    )


@template("web_shopping", 1.1, memory=True)
def add_two(slots: Slots) -> Goal:
    place = slots.pick(PLACES)
    first, second = slots.pair(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        shop_of(phone, place).badges = False
        begin(phone, rng, place, 0.6)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from go_to_shop(phone, place)
        yield from search_shop(phone, first)
        yield tap(f"product:{first}")
        yield tap("add")
        yield tap("close")
        yield from search_shop(phone, second)
        yield tap(f"product:{second}")
        yield tap("add")

    return Goal(
        (
            f"Add a {first} and then a {second} to the cart {on(place)}",
            f"Put two things into the cart {on(place)}: a {first} and a {second}",
        ),
        start,
        script,
        lambda phone: sorted(shop_of(phone, place).cart) == sorted((first, second)),
    )
