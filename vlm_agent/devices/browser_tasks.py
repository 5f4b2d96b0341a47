"""Tasks on the browser phone: a goal in words, and the state that shows that it is reached.

The state is read through the phone object; nothing on the screens tells an agent whether a task is reached.
"""

import random
from dataclasses import dataclass

from vlm_agent.devices.browser_world import make_world, settings_words, shop_words

SITES = ("shop", "settings")
SUBSETS = {"shop": "web_shopping", "settings": "general"}
"""The subset that stands nearest to a site's tasks in Android in the Wild."""


@dataclass(frozen=True)
class BrowserTask:
    """`expected` are the parts of the phone's state that must be as given; the other parts are free."""

    site: str
    seed: int
    goal: str
    expected: dict

    @property
    def subset(self) -> str:
        return SUBSETS[self.site]

    def set_up(self, phone) -> None:
        """Put the phone where the task begins, whatever was done on it before."""
        phone.reset(self.site, self.seed)

    def reached(self, phone) -> bool:
        """Whether the phone is as the goal asks, and nothing was bought or set that it does not ask for."""
        state = phone.state()
        return all(state[name] == value for name, value in self.expected.items())


def browser_task(site: str, seed: int) -> BrowserTask:
    """The same arguments give the same task. Raises ValueError for a site that does not exist."""
    if site not in SITES:
        raise ValueError(f"there is no site {site!r}; there are {' and '.join(SITES)}")
    rng = random.Random(f"browser task {site} {seed}")  # noqa: S311
    world = make_world(seed)
    make = rng.choice(_TEMPLATES[site])
    goal, changes = make(world, rng)
    untouched = {"cart": {}, "orders": [], "settings": world["settings"]}
    return BrowserTask(site, seed, goal, untouched | changes)


def _add_to_cart(world, rng):
    product, count = rng.choice(world["products"]), rng.randint(1, 3)
    return f"Put {count} of the {product['name']} into the cart", {"cart": {product["id"]: count}}


def _add_cheapest(world, rng):
    kind = rng.choice(sorted({product["kind"] for product in world["products"]}))
    cheapest = min((item for item in world["products"] if item["kind"] == kind), key=lambda item: item["price"])
    return f"Add the cheapest of the {world['plurals'][kind].lower()} to the cart", {"cart": {cheapest["id"]: 1}}


def _order(world, rng):
    product, name = rng.choice(world["products"]), rng.choice(shop_words()["people"])
    delivery = rng.choice(("Standard", "Express"))
    order = {"items": {product["id"]: 1}, "name": name, "delivery": delivery}
    return f"Order one {product['name']} for {name} by {delivery.lower()} delivery", {"orders": [order]}


def _flip(world, rng):
    page, row = rng.choice(_rows(world, "toggle"))
    before = world["settings"][row["key"]]
    words = f"Turn {'off' if before else 'on'} {row['label']} under {page['title']}"
    return words, _with(world, row["key"], not before)


def _choose(world, rng):
    page, row = rng.choice(_rows(world, "choice"))
    value = rng.choice([option for option in row["options"] if option != world["settings"][row["key"]]])
    return f"Set {row['label']} to {value} under {page['title']}", _with(world, row["key"], value)


def _rename(world, rng):
    name = rng.choice([name for name in settings_words()["names"] if name != world["settings"]["name"]])
    return f"Change the device name to {name}", _with(world, "name", name)


def _rows(world, kind):
    return [(page, row) for page in world["pages"] for row in page["rows"] if row["kind"] == kind]


def _with(world, key, value):
    return {"settings": world["settings"] | {key: value}}


_TEMPLATES = {"shop": (_add_to_cart, _add_cheapest, _order), "settings": (_flip, _choose, _rename)}
