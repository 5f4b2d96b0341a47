"""Lessons about drawn screens: reading, locating, comparing and copying, before a model becomes an agent.

    screen   Wifi=tap at 30 12   tap at 71 50=Wi-Fi settings   Is Mute on=yes   Add beside Tea=tap at 80 40 …
    Goal: Find Wifi, Mail   screen 1   Action: tap at 30 12   screen 2   Action: impossible
    Goal: On: Mute   screen   Action: complete

The first form is dense: one sentence with many questions about one screen. In the second form the goal precedes the
screens, as in an agent's prompt, with one screen for each name in the goal; the answer to a name that is not on its
screen is `impossible`. Answers are actions in the action language or plain text. Every answer follows from the screen
and the question; decisions are learned from demonstrations.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import LIST_SEPARATOR
from shipped_weights.phone_vlm_tiny.drawn.screens import NO, YES, DrawnScreen
from shipped_weights.phone_vlm_tiny.drawn.words import any_word, phone_words, train_goals
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, LessonRecipe, WordRecipe
from vlm_agent.action_languages.names import NAME_SEPARATOR, is_name
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, UiElement
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ElementSentences, nameable, place_of, tap_on
from vlm_agent.sentences.segments import ASSISTANT, USER, Segment, texts

LIST = "\nList"
STATE = "\nIs {name} on"
BEYOND = "\nMore"
APP = "\nApp"
CONTROL = "switch"
BESIDE = "{name} beside {other}"
ABSENT = "\nNot here of {names}"
TYPE = "\nType {text}"
TASKS = ("find", "read", "state", "beyond", "app", "alike", "absent", "type")
"""Kinds of single questions about a screen."""

GOAL_TASKS = ("find_goal", "alike_goal", "state_goal", "type_goal", "type_in_goal")
"""Kinds of single questions that have the form of a goal before the screen."""

NOWHERE = "none"
"""The answer where a screen does not scroll."""

_DIRECTIONS = ("up", "down", "left", "right")
_MOST_LIST_ITEMS = 8
_ROW = 0.018  # of the screen's height, between the centres of elements in one row
_TAP_KIND = ACTION_NAMES.index("tap")
_TYPE_KIND = ACTION_NAMES.index("type")


@dataclass(frozen=True)
class Lessons(ElementSentences):
    """Builds the sentences of lessons for one model. A dense sentence has at most `items` questions about elements."""

    items: int = 16
    settings: DrawnRecipe = field(default_factory=DrawnRecipe)

    def dense(self, screen: DrawnScreen, rng: random.Random) -> Sentence:
        """One screen with questions about it: at most `items` about elements, and a few about states, equal names,
        scrolling, the app, absent names and texts to copy."""
        odds = self.settings.lessons
        found = self.begin(screen.step)
        elements = nameable(screen.elements)
        if rng.random() < odds.listing and elements:
            found += self._list(elements)
            elements = []
        unique = set(map(id, uniquely_named(elements)))
        questions: list[Callable[[], list[Segment]]] = [
            partial(self.find if id(element) in unique and rng.random() < 0.5 else self.read, element=element)
            for element in elements
        ]
        questions = rng.sample(questions, min(self.items, len(questions)))
        states = _balanced(screen.switches, rng)[:4] + _balanced(screen.tabs, rng)[:2]
        pairs = alike(elements)
        others: list[tuple[float, list[Callable[[], list[Segment]]]]] = [
            (odds.states, [partial(self.state, state) for state in states]),
            (odds.states, [partial(self.read, mark) for mark in rng.sample(screen.marks, min(2, len(screen.marks)))]),
            (odds.beyond, [] if screen.beyond is None else [partial(self.beyond, screen.beyond)]),
            (odds.app, [partial(self.app, screen.app)] if screen.app else []),
            (odds.states, [partial(self.alike, pair) for pair in controls(screen)[:3]]),
            (odds.alike, [partial(self.alike, pair) for pair in rng.sample(pairs, min(3, len(pairs)))]),
        ]
        questions += [ask for chance, asks in others for ask in asks if rng.random() < chance]
        if elements and rng.random() < odds.absent_name:
            questions.append(partial(self.absent, names=absent_name(screen.elements, rng)))
        for _ in range(rng.choice((1, 1, 2, 3))):
            questions.append(partial(self.type, text=text_to_copy(rng, self.settings.words)))
        for ask in rng.sample(questions, len(questions)):
            found += ask()
        return self.trajectory.encode(found)

    def question(self, task: str, screen: DrawnScreen, subject: Any) -> Sentence:
        """One question of a kind in `TASKS` or `GOAL_TASKS`.

        `subject`: an element, a state as (label, on), directions, an app, two elements as (the one in question, the one
        beside it), names as ([names], the absent name), a text to copy, or (a name, a text to copy). Raises ValueError
        for an unknown task.
        """
        if task in GOAL_TASKS:
            goal, action = getattr(self, task)(screen, subject)
            return self._episode(goal, [(screen, action)])
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}; choose one of {', '.join((*TASKS, *GOAL_TASKS))}")
        return self.trajectory.encode([*self.begin(screen.step), *getattr(self, task)(subject)])

    def goal_first(self, draw: Callable[[], DrawnScreen], rng: random.Random) -> tuple[Sentence, list[DrawnScreen]]:
        """A goal and its screens from `draw`: a text to type or a state and one screen, or 1 to `most_screens` names
        with a screen each."""
        odds = self.settings.lessons
        chance = rng.random()
        if chance < odds.copy_text + odds.state:
            screen = draw()
            if chance < odds.copy_text:
                goal, action = self._text_goal(screen, rng)
            elif states := _balanced(screen.switches | screen.tabs, rng):
                goal, action = self.state_goal(screen, states[0])
            else:
                goal, action = self._text_goal(screen, rng)
            return self._episode(goal, [(screen, action)]), [screen]
        screens = [draw() for _ in range(rng.randint(1, odds.most_screens))]
        targets = [_name_and_action(screen, rng, odds) for screen in screens]
        goal = "Find " + LIST_SEPARATOR.join(name for name, _ in targets)
        answers = [(screen, action) for screen, (_, action) in zip(screens, targets, strict=True)]
        return self._episode(goal, answers), screens

    def _text_goal(self, screen: DrawnScreen, rng: random.Random) -> tuple[str, Action]:
        text = text_to_copy(rng, self.settings.words)
        names = [one for one in nameable(screen.elements) if LIST_SEPARATOR not in one.name]
        if names and rng.random() < self.settings.lessons.text_after_name:
            return self.type_in_goal(screen, (rng.choice(names).name, text))
        return self.type_goal(screen, text)

    # Goals before the screen and their actions

    def find_goal(self, screen: DrawnScreen, element: UiElement) -> tuple[str, Action]:
        """A tap on the element with this name."""
        return f"Find {element.name}", tap_on(element)

    def alike_goal(self, screen: DrawnScreen, pair: tuple[UiElement, UiElement]) -> tuple[str, Action]:
        """A tap on the first element, named with the one beside it."""
        return f"Find {BESIDE.format(name=pair[0].name, other=pair[1].name)}", tap_on(pair[0])

    def state_goal(self, screen: DrawnScreen, state: tuple[str, bool]) -> tuple[str, Action]:
        """`complete` where the switch is on or the tab selected, else a tap on its label. `state`: (label, on)."""
        label, on = state
        element = next(element for element in screen.elements if element.name == label)
        return f"On: {label}", Action.complete() if on else tap_on(element)

    def type_goal(self, screen: DrawnScreen, text: str) -> tuple[str, Action]:
        """A copy of the text."""
        return f"Type {text}", Action.type_text(text)

    def type_in_goal(self, screen: DrawnScreen, subject: tuple[str, str]) -> tuple[str, Action]:
        """A copy of the text behind a name. `subject`: (name, text)."""
        return f"In {subject[0]} type {subject[1]}", Action.type_text(subject[1])

    def _episode(self, goal: str, answers: Sequence[tuple[DrawnScreen, Action]]) -> Sentence:
        steps = tuple(replace(screen.step, action=action) for screen, action in answers)
        return self.trajectory.build(Episode("", "", goal, steps))

    def _list(self, elements: Sequence[UiElement]) -> list[Segment]:
        """The positions and names of the first `_MOST_LIST_ITEMS` elements, from top to bottom."""
        found = texts([LIST, NAME_SEPARATOR], USER)
        for element in sorted(elements, key=place_of)[:_MOST_LIST_ITEMS]:
            found += [Segment(self.place(element), ASSISTANT, role="action"), *self.trajectory.answered(element.name)]
        return found

    # Questions about the screen before them

    def state(self, state: tuple[str, bool]) -> list[Segment]:
        """Asks whether the switch is on, or the tab selected, with this label. `state`: (label, on)."""
        return self.ask(STATE.format(name=state[0]), YES if state[1] else NO)

    def beyond(self, directions: Collection[str]) -> list[Segment]:
        """Asks for the directions of swipes that bring more into view."""
        return self.ask(BEYOND, LIST_SEPARATOR.join(one for one in _DIRECTIONS if one in directions) or NOWHERE)

    def app(self, name: str) -> list[Segment]:
        """Asks for the app in the foreground, or `HOME`."""
        return self.ask(APP, name)

    def alike(self, pair: tuple[UiElement, UiElement]) -> list[Segment]:
        """Asks for the place of the first element, named with the one beside it."""
        name = BESIDE.format(name=pair[0].name, other=pair[1].name)
        return self.ask(f"\n{name}", self.place(pair[0]), _TAP_KIND)

    def absent(self, names: tuple[list[str], str]) -> list[Segment]:
        """Asks which of the names is not on the screen. `names`: ([names], the absent name)."""
        return self.ask(ABSENT.format(names=LIST_SEPARATOR.join(names[0])), names[1])

    def type(self, text: str) -> list[Segment]:
        """Asks for a `type` action with a copy of `text`."""
        return self.ask(TYPE.format(text=text), self.trajectory.action_text(Action.type_text(text)), _TYPE_KIND)


def text_to_copy(rng: random.Random, words: WordRecipe) -> str:
    """One to four words, or the goal of a task."""
    if rng.random() < 0.2:
        return rng.choice(train_goals())
    return " ".join(any_word(rng, words) for _ in range(rng.randint(1, 4)))


def absent_name(elements: Sequence[UiElement], rng: random.Random) -> tuple[list[str], str]:
    """([names], the absent name): at most three shuffled names, exactly one of them not on the screen, and this one."""
    visible = list(dict.fromkeys(one.name for one in nameable(elements) if LIST_SEPARATOR not in one.name))
    names = rng.sample(visible, min(len(visible), rng.randint(1, 2)))
    absent = _word_in_no_name(elements, rng)
    return rng.sample([*names, absent], len(names) + 1), absent


def _word_in_no_name(elements: Sequence[UiElement], rng: random.Random) -> str:
    """A word of the phone that is not a word of any element's name, ignoring case and punctuation.

    Walks use a different rule, `words.word_in_no_text`; using one rule for both would change the lessons of a seed.
    """
    names = " " + " ".join(re.sub(r"\W+", " ", element.name).casefold() for element in elements) + " "
    while f" {(word := rng.choice(phone_words())).casefold()} " in names:
        pass
    return word


def _name_and_action(screen: DrawnScreen, rng: random.Random, odds: LessonRecipe) -> tuple[str, Action]:
    """A name and the tap on its element, which may be one of several with that name beside another, or a name that is
    not on the screen and the action `impossible`. Where the screen scrolls no name is absent, because walks answer such
    a name with a swipe."""
    if rng.random() < odds.beside and (pairs := alike(screen.elements)):
        one, other = rng.choice(pairs)
        return BESIDE.format(name=one.name, other=other.name), tap_on(one)
    visible = [one for one in uniquely_named(nameable(screen.elements)) if LIST_SEPARATOR not in one.name]
    if not visible or (not screen.beyond and rng.random() < odds.absent):
        return _word_in_no_name(screen.elements, rng), Action.impossible()
    element = rng.choice(visible)
    return element.name, tap_on(element)


def uniquely_named(elements: Sequence[UiElement]) -> list[UiElement]:
    """The elements whose name is unique."""
    counts = Counter(element.name for element in elements)
    return [element for element in elements if counts[element.name] == 1]


def alike(elements: Sequence[UiElement]) -> list[tuple[UiElement, UiElement]]:
    """(element, the one beside it): elements that share their name, each with every unique name of their row that is
    beside no other element of the shared name."""
    usable = [one for one in nameable(elements) if LIST_SEPARATOR not in one.name]
    unique = {id(one) for one in uniquely_named(usable)}
    shared = [one for one in usable if id(one) not in unique]
    pairs = []
    for other in usable:
        if id(other) in unique:
            beside = [one for one in shared if _in_one_row(one, other)]
            pairs += [(one, other) for one in beside if sum(two.name == one.name for two in beside) == 1]
    return pairs


def controls(screen: DrawnScreen) -> list[tuple[UiElement, UiElement]]:
    """(control, its label): the nearest control in the row of a label, to its right, under the name `CONTROL`."""
    pairs = []
    for label in screen.elements:
        _, x = place_of(label)
        row = [mark for mark in screen.marks if _in_one_row(mark, label) and place_of(mark)[1] > x]
        if label.name in screen.switches and row:
            nearest = min(row, key=lambda mark: place_of(mark)[1])
            pairs.append((replace(nearest, text=CONTROL), label))
    return pairs


def _in_one_row(one: UiElement, other: UiElement) -> bool:
    return abs(place_of(one)[0] - place_of(other)[0]) < _ROW


def _balanced(states: Mapping[str, bool], rng: random.Random) -> list[tuple[str, bool]]:
    """The states in random order, on and off in turn as far as possible: one of many tabs is selected."""
    on, off = ([pair for pair in states.items() if pair[1] == value] for value in (True, False))
    rng.shuffle(on)
    rng.shuffle(off)
    first, second = (on, off) if rng.random() < 0.5 else (off, on)
    taken = [pair for two in zip_longest(first, second) for pair in two if pair is not None]
    return [pair for pair in taken if LIST_SEPARATOR not in pair[0] and is_name(pair[0])]
