"""Templates of `web_shopping`: searching, viewing products, filling and emptying the cart, checking out."""

import random
from collections.abc import Iterator
from functools import partial

from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.apps.shop import Shop, ShopApp, product_names
from vlm_agent.simulator.expert import GoalScript, Intent, always, open_app, tap, type_text
from vlm_agent.simulator.goals.general import to_site
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
    if place != "Shop" and not in_shop(phone, place):
        yield from to_site(phone, place)


def search(product: str) -> tuple[Intent, ...]:
    return (tap("shop_search"), type_text(product), tap(f"suggest:{product}"))


def find(product: str) -> tuple[Intent, ...]:
    """Open the product's page by a search."""
    return (*search(product), tap(f"product:{product}"))


def at_shop(place: str, *parts: Intent | GoalScript) -> GoalScript:
    """The script that goes to the shop and then has these parts."""
    return always(partial(go_to_shop, place=place), *parts)


def shows(phone: SimulatedPhone, place: str, page: str, about: object = None) -> bool:
    return phone.shows(host_of(place), page, about) and in_shop(phone, place)


def on(place: str) -> str:
    return "in the Shop app" if place == "Shop" else f"on {place}"


@template("web_shopping", 2.0)
def search_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    return Goal(
        (f"Search for {product} {on(place)}", f"Go to {place} and search for a {product}"),
        lambda phone, rng: begin(phone, rng, place),
        at_shop(place, *search(product)),
        lambda phone: shows(phone, place, "shop_results", product),
    )


@template("web_shopping", 2.0)
def look_at_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    return Goal(
        (f"Find a {product} {on(place)} and open it", f"Show me the page of a {product} {on(place)}"),
        lambda phone, rng: begin(phone, rng, place, 0.4),
        at_shop(place, *find(product)),
        lambda phone: shows(phone, place, "shop_product", product),
    )


@template("web_shopping", 2.5)
def add_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def add(phone: SimulatedPhone) -> Iterator[Intent]:
        shop = shop_of(phone, place)
        is_quick = shop.quick_add and not shop.grid
        yield from (tap(f"add:{product}"),) if is_quick else (tap(f"product:{product}"), tap("add"))

    return Goal(
        (f"Add a {product} to the cart {on(place)}", f"Go to {place}, search for {product} and add it to the cart"),
        lambda phone, rng: begin(phone, rng, place, 0.45),
        at_shop(place, *search(product), add),
        lambda phone: product in shop_of(phone, place).cart,
    )


@template("web_shopping", 1.2)
def buy_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    return Goal(
        (
            f"Add a {product} to the cart {on(place)}, then check out",
            f"Put a {product} into the cart {on(place)} and go to checkout",
        ),
        lambda phone, rng: begin(phone, rng, place, 0.5),
        at_shop(place, *find(product), tap("add"), tap("view_cart"), tap("checkout")),
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

    def reached(phone: SimulatedPhone) -> bool:
        if not checkout:
            return shows(phone, place, "shop_product", product)
        from_cart = shows(phone, place, "shop_checkout") and phone.app(host_of(place)).routes[-2].name == "shop_cart"
        return from_cart and product in shop_of(phone, place).cart

    what = f"Check out the cart with the {product}" if checkout else f"Open the {product} in the cart"
    script = at_shop(place, tap("cart"), tap("checkout" if checkout else f"product:{product}"))
    return Goal((f"{what} {on(place)}",), start, script, reached)


@template("web_shopping", 1.0)
def remove_product(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        fill_cart(phone, rng, place, product, extra=5)
        begin(phone, rng, place, 0.25)

    return Goal(
        (f"Remove the {product} from the cart {on(place)}", f"Take the {product} out of the cart {on(place)}"),
        start,
        at_shop(place, tap("cart"), tap(f"remove:{product}")),
        lambda phone: product not in shop_of(phone, place).cart,
    )


@template("web_shopping", 1.1, memory=True)
def empty_then_add(slots: Slots) -> Goal:
    place, product = slots.pick(PLACES), slots.pick(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        shop_of(phone, place).badges = False
        fill_cart(phone, rng, place, rng.choice(product_names()), extra=1)
        begin(phone, rng, place, 0.5)

    def empty(phone: SimulatedPhone) -> Iterator[Intent]:
        while cart := shop_of(phone, place).cart:
            yield tap(f"remove:{cart[0]}")

    def reached(phone: SimulatedPhone) -> bool:
        shop = shop_of(phone, place)
        return shop.emptied and shop.cart == [product]

    return Goal(
        (
            f"Empty the cart {on(place)}, then add a {product}",
            f"Clear the cart {on(place)} and then put a {product} into it",
        ),
        start,
        at_shop(place, tap("cart"), empty, tap("up"), *find(product), tap("add")),
        reached,
    )


@template("web_shopping", 1.1, memory=True)
def add_two(slots: Slots) -> Goal:
    place = slots.pick(PLACES)
    first, second = slots.pair(product_names())

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        shop_of(phone, place).badges = False
        begin(phone, rng, place, 0.6)

    return Goal(
        (
            f"Add a {first} and then a {second} to the cart {on(place)}",
            f"Put two things into the cart {on(place)}: a {first} and a {second}",
        ),
        start,
        at_shop(place, *find(first), tap("add"), tap("close"), *find(second), tap("add")),
        lambda phone: sorted(shop_of(phone, place).cart) == sorted((first, second)),
    )
