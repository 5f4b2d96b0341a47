"""An endless stream of annotated screens, each from its number alone: no files, no goals, no demonstrations.

Half are pages of simulated phones on which somebody wandered about, in any style; half are collages. The phones are
others than those of demonstrations (`datasets/simulated_phone.py`): a demonstration's seed would have to be drawn here
out of 2^48, and its look with it.
"""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np

from vlm_agent.devices.simulated_phone import SPLITS, SimulatedPhone, words
from vlm_agent.devices.simulated_phone.collage import collage
from vlm_agent.devices.simulated_phone.common_words import COMMON_WORDS
from vlm_agent.devices.simulated_phone.glyphs import GLYPHS
from vlm_agent.devices.simulated_phone.icons import element_type
from vlm_agent.devices.simulated_phone.styles import SIZES, sample_style
from vlm_agent.devices.simulated_phone.tasks import sample_task
from vlm_agent.devices.simulated_phone.wander import wander
from vlm_agent.episodes import SUBSETS, Action, Step

_COLLAGES, _OWN_SIZE = 0.5, 0.3
_PHONE_WORDS, _COMMON = 0.75, 0.97
_GOALS_HEARD = 4000
_SCREENS_READ = 100
_TIMES = 50
"""What is listed is to be known, however rarely the screens that are read show it."""


@dataclass(frozen=True)
class DrawnScreen:
    """`step` has the screenshot (uint8, of any of `SIZES`) and its elements, and no action worth learning; `switches`
    tells of every labelled switch on it whether it is on."""

    step: Step
    switches: dict[str, bool]


def draw_screen(rng: random.Random) -> DrawnScreen:
    """The next screen that the generator gives."""
    size = SIZES[0] if rng.random() < _OWN_SIZE else rng.choice(SIZES)
    if rng.random() < _COLLAGES:
        canvas = collage(rng, size, [any_word(rng) for _ in range(60)])
    else:
        phone = SimulatedPhone(rng.getrandbits(48), size, sample_style(rng))
        wander(phone, rng, [any_word(rng) for _ in range(20)])
        canvas = phone.canvas()
    step = Step(np.array(canvas.image), Action.complete(), canvas.elements(), "")
    return DrawnScreen(step, canvas.states)


def any_word(rng: random.Random) -> str:
    """One of the phone's own words; now and then a common one in any case; seldom one that no dictionary has."""
    chance = rng.random()
    if chance < _PHONE_WORDS:
        return rng.choice(phone_words())
    if chance < _COMMON:
        word = rng.choice(COMMON_WORDS)
        return word.capitalize() if rng.random() < 0.5 else word
    if rng.random() < 0.5:
        return _figure(rng)
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 7)))


def _figure(rng: random.Random) -> str:
    number = rng.randint(1, 999)
    return rng.choice((f"{number}", f"${number % 100}.{number % 90 + 10}", f"{number % 12}:{number % 50 + 10}"))


@cache
def phone_words() -> tuple[str, ...]:
    """Every name that the simulated phone's world has, each once."""
    lists = (
        *(words.APPS, words.STORE_APPS, words.SWITCHES, words.SETTING_PAGES, words.NAMES, words.COLOURS),
        *(words.PRODUCTS, words.SHOPS, words.SITES, words.CITIES, words.TOPICS, words.SECTIONS, words.LABELS),
        words.DAYS,
    )
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


def heard_texts() -> Iterator[str]:
    """Texts whose words a tokenizer for these screens, and for what is said about such phones, should hold.

    Goals are those of the train split alone, as words to know and to copy: nothing tells what to do about them.
    """
    for word in (*phone_words(), *COMMON_WORDS):
        yield from [word, word.capitalize(), word.lower()] * _TIMES
    yield from [element_type(glyph) for glyph in GLYPHS] * _TIMES
    yield from train_goals()
    for number in range(_SCREENS_READ):
        for element in draw_screen(random.Random(f"words {number}")).step.elements:  # noqa: S311 (no secret)
            yield element.text or element.type


@cache
def train_goals() -> tuple[str, ...]:
    return tuple(sample_task(SUBSETS[number % len(SUBSETS)], SPLITS[0], number).goal for number in range(_GOALS_HEARD))
