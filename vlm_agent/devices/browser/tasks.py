"""Tasks on the browser phone: a goal, and the state of the phone that satisfies it.

The state is read from the phone object; the screens do not show an agent whether a task is reached.

A seed determines the contents of the shop and the settings, the world: the object `WORLD` of the pages' scripts, in
JSON types:

    products   [{"id": "p0", "name": "Blue mug", "kind": "mug", "tint": "#1f5fbf", "price": cents, "rating": "4.3",
               "words": …}, …] in the order of the shop's list; names and prices are unique
    settings   {key: value} at the start
    pages      the sub-pages of the settings: `pages/settings.json`
    …          "currency", "elsewhere" and "plurals" of `pages/shop.json`
"""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.devices.device import OpenedDevice, TaskWithoutExpert
from vlm_agent.devices.errors import DeviceError

if TYPE_CHECKING:
    from vlm_agent.devices.browser.phone import BrowserPhone

LAUNCHER, SITES = "launcher", ("shop", "settings")
SUBSETS = {"shop": "web_shopping", "settings": "general"}
"""Site → the most similar subset of Android in the Wild."""

PAGES = Path(__file__).with_name("pages")
PRODUCTS = 24


@cache
def page_words(page: str) -> dict:
    """The contents of `pages/PAGE.json`."""
    return json.loads((PAGES / f"{page}.json").read_text(encoding="utf-8"))


def make_world(seed: int) -> dict:
    """The world of a seed; see the module's description."""
    rng = random.Random(f"browser world {seed}")  # noqa: S311
    shop, settings = page_words("shop"), page_words("settings")
    names = rng.sample([(tint, kind) for tint in shop["tints"] for kind in shop["plurals"]], PRODUCTS)
    prices = rng.sample(range(395, 8995, 50), PRODUCTS)
    products = [
        {
            "id": f"p{number}",
            "name": f"{tint} {kind}",
            "kind": kind,
            "tint": shop["tints"][tint],
            "price": price,
            "rating": f"{rng.randint(31, 50) / 10:.1f}",
            "words": rng.choice(shop["words"]),
        }
        for number, ((tint, kind), price) in enumerate(zip(names, prices, strict=True))
    ]
    start = {row["key"]: _start(row, rng, settings) for page in settings["pages"] for row in page["rows"]}
    constants = {name: shop[name] for name in ("currency", "elsewhere", "plurals")}
    return {"products": products, "settings": start, "pages": settings["pages"], **constants}


def _start(row: dict, rng: random.Random, settings: dict) -> bool | str:
    if row["kind"] == "toggle":
        return rng.random() < 0.5
    return rng.choice(row["options"] if row["kind"] == "choice" else settings["names"])


@dataclass(frozen=True)
class BrowserTask(TaskWithoutExpert):
    """A `SetTask` and the `DeviceTask` of its phone. `expected`: the parts of `BrowserPhone.state()` that decide
    success; other parts are ignored."""

    site: str
    seed: int
    goal: str
    expected: dict
    template: str

    @property
    def name(self) -> str:
        return f"{self.site}/{self.seed}"

    @property
    def subset(self) -> str:
        return SUBSETS[self.site]

    @contextmanager
    def open(self) -> Iterator[OpenedDevice]:
        from vlm_agent.devices.browser.phone import BrowserPhone

        with BrowserPhone(self.site, self.seed) as phone:
            yield opened(phone, self)

    def set_up(self, phone: "BrowserPhone") -> None:
        """Resets the phone to the start of the task."""
        phone.reset(self.site, self.seed)

    def reached(self, phone: "BrowserPhone") -> bool:
        """Whether the phone's state satisfies the goal, without other orders, cart items or changed settings."""
        state = phone.state()
        return all(state[name] == value for name, value in self.expected.items())


def browser_task(site: str, seed: int) -> BrowserTask:
    """The task that the arguments determine. Raises DeviceError for an unknown site."""
    if site not in SITES:
        raise DeviceError(f"unknown site {site!r}; choose {' or '.join(SITES)}")
    rng = random.Random(f"browser task {site} {seed}")  # noqa: S311
    world = make_world(seed)
    make = rng.choice(_TEMPLATES[site])
    goal, changes = make(world, rng)
    initial = {"cart": {}, "orders": [], "settings": world["settings"]}
    return BrowserTask(site, seed, goal, initial | changes, make.__name__.removeprefix("_"))


def opened(phone: "BrowserPhone", task: BrowserTask | None) -> OpenedDevice:
    height, width = phone.size
    return OpenedDevice(phone, f"browser_{width}x{height}", task, packages=lambda: SITES, launcher=LAUNCHER)


def _add_to_cart(world: dict, rng: random.Random) -> tuple[str, dict]:
    product, count = rng.choice(world["products"]), rng.randint(1, 3)
    return f"Put {count} of the {product['name']} into the cart", {"cart": {product["id"]: count}}


def _add_cheapest(world: dict, rng: random.Random) -> tuple[str, dict]:
    kind = rng.choice(sorted({product["kind"] for product in world["products"]}))
    cheapest = min((item for item in world["products"] if item["kind"] == kind), key=lambda item: item["price"])
    return f"Add the cheapest of the {world['plurals'][kind].lower()} to the cart", {"cart": {cheapest["id"]: 1}}


def _order(world: dict, rng: random.Random) -> tuple[str, dict]:
    product, name = rng.choice(world["products"]), rng.choice(page_words("shop")["people"])
    delivery = rng.choice(("Standard", "Express"))
    order = {"items": {product["id"]: 1}, "name": name, "delivery": delivery}
    return f"Order one {product['name']} for {name} by {delivery.lower()} delivery", {"orders": [order]}


def _flip(world: dict, rng: random.Random) -> tuple[str, dict]:
    page, row = rng.choice(_rows(world, "toggle"))
    before = world["settings"][row["key"]]
    words = f"Turn {'off' if before else 'on'} {row['label']} under {page['title']}"
    return words, _with(world, row["key"], not before)


def _choose(world: dict, rng: random.Random) -> tuple[str, dict]:
    page, row = rng.choice(_rows(world, "choice"))
    value = rng.choice([option for option in row["options"] if option != world["settings"][row["key"]]])
    return f"Set {row['label']} to {value} under {page['title']}", _with(world, row["key"], value)


def _rename(world: dict, rng: random.Random) -> tuple[str, dict]:
    name = rng.choice([name for name in page_words("settings")["names"] if name != world["settings"]["name"]])
    return f"Change the device name to {name}", _with(world, "name", name)


def _rows(world: dict, kind: str) -> list[tuple[dict, dict]]:
    return [(page, row) for page in world["pages"] for row in page["rows"] if row["kind"] == kind]


def _with(world: dict, key: str, value: bool | str) -> dict:
    return {"settings": world["settings"] | {key: value}}


_TEMPLATES = {"shop": (_add_to_cart, _add_cheapest, _order), "settings": (_flip, _choose, _rename)}
