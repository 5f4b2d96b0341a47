"""Shops: departments, search, products, cart and checkout. The Shop app is one shop; the browser has others."""

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.page import MENU, Page
from vlm_agent.simulator.drawing.theme import Colour
from vlm_agent.simulator.drawing.tiles import BigPicture, Carousel, Cell, Chips, grid
from vlm_agent.simulator.drawing.widgets import Buttons, Header, Paragraph, Row, Space, Title, Widget, suggestion
from vlm_agent.simulator.words import COLOURS, PRODUCTS


def product_names() -> list[str]:
    return [f"{colour} {noun}" for colour in COLOURS for noun in PRODUCTS]


def picture_of(product: str) -> tuple[str, Colour]:
    colour, noun = product.split()
    return PRODUCTS[noun], COLOURS[colour]


class Shop:
    """The products, cart and pages of one shop. `host`: the app whose routes and fields it uses."""

    def __init__(self, host: App, name: str, rng: random.Random) -> None:
        self.host, self.name = host, name
        self.seed = rng.random()
        self.prices = {
            product: f"${rng.randint(4, 320)}.{rng.choice(('00', '50', '99'))}" for product in product_names()
        }
        self.deals = rng.sample(product_names(), 7)
        self.departments = rng.sample(list(PRODUCTS), 9)
        self.grid = rng.random() < 0.45
        self.quick_add = rng.random() < 0.4
        self.button_order = rng.random() < 0.5
        self.picture_tall = rng.choice((90.0, 120.0, 150.0))
        self.cart: list[str] = []
        self.emptied = False
        self.badges = True

    def durable(self) -> Iterable[str]:
        return (f"{product} in the cart" for product in self.cart)

    def _rng(self, *what: str) -> random.Random:
        return random.Random(f"{self.seed} {' '.join(what)}")

    def results(self, query: str) -> list[str]:
        """Search results: products with the same colour or noun, shuffled, including exact matches."""
        words = set(query.lower().split())
        rng = self._rng("results", query.lower())
        hits = [product for product in product_names() if set(product.split()) & words]
        others = [product for product in hits if set(product.split()) != words]
        rng.shuffle(others)
        products = others[: rng.randint(4, 7)] + [product for product in hits if set(product.split()) == words]
        rng.shuffle(products)
        return products

    def suggestions(self, query: str) -> list[str]:
        """Shuffled completions of the query, including the query itself."""
        words = query.lower().split()
        rng = self._rng("suggest", query.lower())
        near = [p for p in product_names() if set(p.split()) & set(words) and p != query.lower()]
        queries = [*rng.sample(near, min(3, len(near))), query.lower()]
        rng.shuffle(queries)
        return queries

    def add(self, product: str) -> None:
        self.cart.append(product)
        self.host.push("shop_added", product)

    def remove(self, product: str) -> None:
        self.cart.remove(product)
        self.emptied = self.emptied or not self.cart

    # Pages

    def page(self, route: Route) -> Page:
        """The page of a route `shop_…`."""
        return getattr(self, f"_{route.name.removeprefix('shop_')}")(route)

    def _page(self, body: list, title: str = "", nav: bool = True) -> Page:
        search = partial(self.host.new_search, "shop_search", "shop_query")
        actions = [("search", "shop_search", search), ("cart", "cart", partial(self.host.push, "shop_cart"))]
        if self.button_order:
            actions.reverse()
        left = self.host.up if nav else MENU
        return Page(
            body, title or self.name, nav=left, actions=actions, badge={"cart": len(self.cart) if self.badges else 0}
        )

    def search(self, query: str) -> None:
        self.host.swap("shop_results", query)

    def _home(self, route: Route) -> Page:
        chips = [
            (noun, f"department:{noun}", partial(self.host.push, "shop_results", noun), False)
            for noun in self.departments
        ]
        deals = [self._cell(product) for product in self.deals]
        rest = self._rng("home").sample(product_names(), 10)
        body = [
            Chips(chips, route.strips.get("chips", 0.0), "chips"),
            Header("Deals of the day", 12.5, False),
            Carousel(deals, "deals", route.strips.get("deals", 0.0)),
            Header("For you", 12.5, False),
            *self._list(rest),
        ]
        return self._page(body, nav=False)

    def _cell(self, product: str) -> Cell:
        look = partial(self.host.push, "shop_product", product)
        return Cell(product, f"product:{product}", look, picture=picture_of(product), second=self.prices[product])

    def _list(self, products: list[str]) -> list:
        if self.grid:
            return grid([self._cell(product) for product in products], 2, 112)
        look = {"tall": 6, "bold": True, "trail": "Add" * self.quick_add}
        return [
            self._row(one, trail_key=f"add:{one}" * self.quick_add, on_trail=partial(self.add, one), **look)
            for one in products
        ]

    def _row(self, product: str, **look: Any) -> Row:
        key, on_tap = f"product:{product}", partial(self.host.push, "shop_product", product)
        return Row(product, self.prices[product], picture=picture_of(product), key=key, on_tap=on_tap, **look)

    def _search(self, route: Route) -> Page:
        query = self.host.fields.get("shop_query", "")
        field = self.host.field("shop_query", f"Search {self.name}")
        texts = self.suggestions(query) if query.strip() else self._rng("past").sample(product_names(), 4)
        rows = [suggestion(text, "search", partial(self.search, text)) for text in texts]
        return Page(rows, self.name, nav=self.host.up, top=[field])

    def _results(self, route: Route) -> Page:
        query = str(route.about)
        products = self.results(query)
        sort = [(label, f"sort:{label}", None, False) for label in ("Sort", "Filter", "Price", "Brand")]
        body = [Chips(sort), Header(f"{len(products)} results for {query}", accent=False), *self._list(products)]
        if not products:
            body.append(Paragraph("Nothing was found. Try other words."))
        return self._page(body)

    def _product(self, route: Route) -> Page:
        product = str(route.about)
        colour, noun = product.split()
        buttons = [
            ("Add to cart", "add", lambda: self.add(product), True),
            ("Buy now", "buy", lambda: self.host.push("shop_checkout"), False),
        ]
        if self.button_order:
            buttons.reverse()
        parts = [
            BigPicture(picture_of(product), self.picture_tall),
            Title(f"{product.capitalize()}", 28, 16),
            Row(self.prices[product], "Free delivery", "star", (240, 180, 30), bold=True),
            Buttons(buttons, "left" if self.grid else "centre"),
            Paragraph(f"A fine {noun} in {colour}. Loved by many for years, made to last and easy to clean.", 11, 4),
        ]
        if self.quick_add:
            parts.insert(0, parts.pop(3))
        others = [self._cell(other) for other in self._rng("like", product).sample(product_names(), 6)]
        return self._page(
            [*parts, Header("You may also like"), Carousel(others, "like", route.strips.get("like", 0.0))]
        )

    def _added(self, route: Route) -> Page:
        page = self._product(Route("shop_product", route.about))
        view = ("View cart", "view_cart", partial(self.host.swap, "shop_cart"), False)
        buttons = Buttons([view, ("Close", "close", self.host.pop, True)], "right")
        page.dialog = [Title("Added to cart", 28, 15), Paragraph(f"{route.about} is in your cart.", 11, 1), buttons]
        page.sheet = self.button_order
        return page

    def _cart(self, route: Route) -> Page:
        if not self.cart:
            empty: list[Widget] = [Space(40), Paragraph("Your cart is empty.", 13, 1)]
            return Page(empty, "Cart", nav=self.host.up)
        rows = [
            self._row(one, tall=8, trail_glyph="trash", trail_key=f"remove:{one}", on_trail=partial(self.remove, one))
            for one in self.cart
        ]
        go = ("Checkout", "checkout", partial(self.host.push, "shop_checkout"), True)
        checkout = Buttons([go], "right" if self.grid else "centre", 44)
        total = Header(f"{len(rows)} items", 12, False)
        body: list[Widget] = [checkout, total, *rows]
        if not self.quick_add:
            body = [total, *rows, Space(12, True), checkout]
        return Page(body, "Cart", nav=self.host.up)

    def _checkout(self, route: Route) -> Page:
        rows = [
            Row("Deliver to", "12 Station Road", "home"),
            Row("Pay by", "Card ending in 42", "wallet"),
            Row("Arrives", "Tomorrow", "clock"),
            Buttons([("Place order", "order", None, True)], "centre", 50),
        ]
        return self._page(rows, "Checkout")


class ShopApp(App):
    home = "shop_home"

    def fill(self, rng: random.Random) -> None:
        self.shop = Shop(self, "Shop", rng)

    def durable(self) -> Iterable[str]:
        return self.shop.durable()

    def page(self) -> Page:
        return self.shop.page(self.route)

    def search(self, text: str) -> None:
        self.shop.search(text)
