"""The words of drawn screens and of lessons, and the texts from which a tokenizer's vocabulary is built."""

import random
import string
from collections.abc import Iterable
from functools import cache
from itertools import chain

from shipped_weights.phone_vlm_tiny.settings import WordRecipe
from vlm_agent.episodes import UiElement
from vlm_agent.simulator import SPLITS, SUBSETS, words
from vlm_agent.simulator.tasks import sample_task

_TRAIN_GOALS = 4000


def any_word(rng: random.Random, settings: WordRecipe) -> str:
    """A word of the phone, a common word in lower or title case, or random letters or digits."""
    chance = rng.random()
    if chance < settings.phone:
        return rng.choice(phone_words())
    if chance < settings.phone + settings.common:
        word = rng.choice(COMMON_WORDS)
        return word.capitalize() if rng.random() < 0.5 else word
    if rng.random() < 0.5:
        return _number(rng)
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(2, 7)))


def _number(rng: random.Random) -> str:
    number = rng.randint(1, 999)
    return rng.choice((f"{number}", f"${number % 100}.{number % 90 + 10}", f"{number % 12}:{number % 50 + 10}"))


def word_in_no_text(elements: Iterable[UiElement], rng: random.Random) -> str:
    """A word of the phone that is not a substring of any text of the elements, ignoring case."""
    texts = " ".join(element.text for element in elements).casefold()
    while (word := rng.choice(phone_words())).casefold() in texts:
        pass
    return word


@cache
def phone_words() -> tuple[str, ...]:
    """Every name in the simulated phone's vocabulary, without duplicates."""
    lists = (
        *(words.APPS, words.STORE_APPS, words.SWITCHES, words.SETTING_PAGES, words.NAMES, words.COLOURS),
        *(words.PRODUCTS, words.SHOPS, words.SITES, words.CITIES, words.TOPICS, words.SECTIONS, words.LABELS),
        words.DAYS,
    )
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


@cache
def train_goals() -> tuple[str, ...]:
    """Goals of simulated tasks, from the train split only; only their words are used, not their demonstrations."""
    return tuple(sample_task(SUBSETS[number % len(SUBSETS)], SPLITS[0], number).goal for number in range(_TRAIN_GOALS))


_TEXT = """
    about accept access account action active add address agree album all allow also always and answer any app apply
    art at audio back balance bar best bill birthday block bonus book box browse business buy by call cancel card care
    cart category change chat check choose city clear close cloud code colour comment confirm connect contact continue
    copy country create credit custom daily data date day deal default delete delivery detail device dial discount
    discover dish document done down download draft edit email empty enable end enter error event every exit explore
    family fast favourite feed field file fill filter find first fit food for free friend from full fun game get gift
    go good group guest guide help here hide high history home hour how image in index info inside install invite item
    join journey just keep key language large last later learn left less level library like limit line link list listen
    live load local log long low make manage many map mark media meet member menu message mile minute missed mobile more
    morning most move my name near never new next night no none not note now number of off offer office ok old on once
    one only open option or order other our out over page paint past pause pay people person pet picture pin place plan
    play please plus popular post power present preview price print profile public quick quiet rate read ready recent
    record refresh register remind remove rename repeat reply report reset rest result return review right room route
    rule safe sale same save say scan score screen search seat select sell send series service set shape share ship
    short show sign size skip smart social sort sound special speed sport star start state stay step stop street style
    submit support switch table tag take talk tap task team tell terms test text that the this ticket time tip title to
    today tomorrow tool top total track traffic trial trip try turn two type undo unlock until up update upgrade upload
    use user value version video view visit voice volume wait walk want warm watch water way week welcome what where
    wide win with without word work year yes you your zoom
"""

COMMON_WORDS = tuple(_TEXT.split())
"""Words on phones in general that are not in the simulated phone's vocabulary, in lower case.

The list is short because a small model learns each word as one image, and more words mean fewer examples of each.
"""

FORM_WORDS = (
    "Goal",
    "Action",
    "Is",
    "on",
    "More",
    "App",
    "List",
    "Not",
    "here",
    "of",
    "beside",
    "switch",
    "swipe",
    "impossible",
)
"""Words of prompts, questions and goals that no list has, so that each is one token."""
