"""Annotated screens and walks over phones, endlessly, each from its random generator alone: no files, no
demonstrations, and no goals but those that tell what was done.

Of the screens half are pages of simulated phones on which somebody wandered about, in any style; half are collages. The
phones are others than those of demonstrations (`datasets/simulated_phone.py`): a demonstration's seed would have to be
drawn here out of 2^48, and its look with it.
"""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import numpy as np

from vlm_agent.devices.simulated_phone import SPLITS, SimulatedPhone, words
from vlm_agent.devices.simulated_phone.collage import collage
from vlm_agent.devices.simulated_phone.common_words import COMMON_WORDS
from vlm_agent.devices.simulated_phone.errand import LISTS_WITH, next_deed, step_onward
from vlm_agent.devices.simulated_phone.glyphs import GLYPHS
from vlm_agent.devices.simulated_phone.icons import element_type
from vlm_agent.devices.simulated_phone.play import play
from vlm_agent.devices.simulated_phone.styles import SIZES, sample_style
from vlm_agent.devices.simulated_phone.tasks import sample_task
from vlm_agent.devices.simulated_phone.wander import wander
from vlm_agent.episodes import SUBSETS, Action, Episode, Step, UiElement

_COLLAGES, _OWN_SIZE = 0.5, 0.3
_PHONE_WORDS, _COMMON = 0.75, 0.97
_APP_IN_FRONT, _DEEDS, _MISSING, _SHUFFLED = 0.4, (2, 6), 0.1, 0.5
_HINTED = 0.35
_ASKED, _JOINED = ("Open", "Find", "Show", "Go to", "Look up", "Search for"), (" and ", ", ", " then ")
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


def draw_errand(rng: random.Random) -> Episode:
    """The next errand that the generator gives: a goal that tells every step, and a walk over a phone that takes them.

    Now and then the last thing told is nowhere to be seen, and so impossible.
    """
    phone, texts = _phone_to_walk(rng)
    told, steps = [], []
    for _ in range(rng.randint(*_DEEDS)):
        deed = next_deed(phone, rng, texts)
        told.append(deed.words)
        steps.append(_seen(phone, deed.action))
        phone.perform(deed.action)
    if rng.random() < _MISSING:
        told.append(_missing(phone.elements(), rng))
        steps.append(_seen(phone, Action.impossible()))
    else:
        steps.append(_seen(phone, Action.complete()))
        if rng.random() < _SHUFFLED and all(step.action.is_tap for step in steps[:-1]):
            return _errand("In any order", rng.sample(told, len(told)), steps)
    return _errand("In turn", told, steps)


def draw_hint(rng: random.Random) -> Episode:
    """As `draw_errand`, but the goal tells where the walk ends, what is typed, and little of what else leads there."""
    phone, texts = _phone_to_walk(rng)
    told, steps = [], []
    for _ in range(rng.randint(*_DEEDS)):
        deed = step_onward(phone, rng, texts)
        if deed is None:
            break
        if deed.action.name != "enter":
            told.append(deed)
        steps.append(_seen(phone, deed.action))
        phone.perform(deed.action)
    if not told:
        return draw_hint(rng)  # it began where nothing has a name
    steps.append(_seen(phone, Action.complete()))
    return _hinted([(deed.action.text or deed.words, deed.action.name == "type") for deed in told], steps, rng)


def draw_play(rng: random.Random) -> Episode:
    """As `draw_hint`, on walks that come upon more: `devices/simulated_phone/play.py`. What was sought is told."""
    phone, _ = _phone_to_walk(rng)
    told, steps = [], []
    for deed in play(phone, rng, rng.randint(*_DEEDS)):
        before = _seen(phone, deed.action)
        phone.perform(deed.action)
        if deed.action.name == "swipe" and phone.elements() == before.elements:
            continue  # there was nothing to be brought
        steps.append(before)
        if deed.words:
            told.append((deed.words, deed.sought or deed.action.name == "type"))
    if not told:
        return draw_play(rng)
    end = _seen(phone, Action.complete())
    while steps[-1].action.name == "swipe":  # for nothing that could be told
        end = replace(steps.pop(), action=Action.complete())
    return _hinted(told, [*steps, end], rng)


def _hinted(told: list[tuple[str, bool]], steps: list[Step], rng: random.Random) -> Episode:
    """A walk and a goal that tells the last of `told`, all of it that is marked, and little else."""
    kept = [words for words, marked in told[:-1] if marked or rng.random() < _HINTED]
    words = rng.choice(_JOINED).join([*kept, told[-1][0]])
    return Episode("", "", f"{rng.choice(_ASKED)} {words}", tuple(steps))


def _phone_to_walk(rng: random.Random) -> tuple[SimulatedPhone, list[str]]:
    """A phone, at home or with an app in front, and texts to type on it."""
    size = SIZES[0] if rng.random() < _OWN_SIZE else rng.choice(SIZES)
    phone = SimulatedPhone(rng.getrandbits(48), size, sample_style(rng))
    if rng.random() < _APP_IN_FRONT:
        phone.open(rng.choice(phone.installed))
        phone.changed()
    return phone, [any_word(rng) for _ in range(20)]


def _errand(how: str, told: list[str], steps: list[Step]) -> Episode:
    return Episode("", "", f"{how}: {LISTS_WITH.join(told)}", tuple(steps))


def _seen(phone: SimulatedPhone, action: Action) -> Step:
    return Step(phone.screenshot(), action, phone.elements())


def _missing(elements: tuple[UiElement, ...], rng: random.Random) -> str:
    here = " ".join(element.text for element in elements).casefold()
    while (word := rng.choice(phone_words())).casefold() in here:
        pass
    return word


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
            yield element.name


@cache
def train_goals() -> tuple[str, ...]:
    return tuple(sample_task(SUBSETS[number % len(SUBSETS)], SPLITS[0], number).goal for number in range(_GOALS_HEARD))
