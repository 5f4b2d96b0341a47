"""The contents of the browser phone's shop and settings, determined by a seed.

A world is the object `WORLD` of the pages' scripts, in JSON types:

    products   [{"id": "p0", "name": "Blue mug", "kind": "mug", "tint": "#1f5fbf", "price": cents, "rating": "4.3",
               "words": …}, …] in the order of the shop's list; names and prices are unique
    settings   {key: value} at the start
    pages      the sub-pages of the settings: `pages/settings.json`
    …          "currency", "elsewhere" and "plurals" of `pages/shop.json`
"""

import json
import random
from functools import cache
from pathlib import Path

PAGES = Path(__file__).with_name("pages")
PRODUCTS = 24


@cache
def shop_words() -> dict:
    """The contents of `pages/shop.json`."""
    return json.loads((PAGES / "shop.json").read_text(encoding="utf-8"))


@cache
def settings_words() -> dict:
    """The contents of `pages/settings.json`."""
    return json.loads((PAGES / "settings.json").read_text(encoding="utf-8"))


def make_world(seed: int) -> dict:
    """The world of a seed; see the module's description."""
    rng = random.Random(f"browser world {seed}")  # noqa: S311
    shop, settings = shop_words(), settings_words()
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
