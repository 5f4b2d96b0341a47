"""What a model is taught before it becomes an agent: to read, to locate, to compare and to copy.

    screen   Wifi=tap at 30 12   tap at 71 50=Wi-Fi settings   Is Mute on=yes   Type red lamp=Input text …
    Goal: Find Wifi, Mail   screen 1   Action: tap at 30 12   screen 2   Action: impossible

The first form is dense: everything on one screen in one sentence. The second asks before the screen is seen, in the
words in which an agent is told its goal: a screen for each part of it. What is not there is `impossible`. All answers
are in the action language, or plain text; none of them is a decision, which is left to training as an agent.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vlm_agent.datasets.drawn_screens import DrawnScreen, any_word, phone_words, train_goals
from vlm_agent.devices.simulated_phone.errand import LISTS_WITH
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, UiElement
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ANSWER, ElementSentences, nameable, place_of, tap_on

LIST = "\nList"
SWITCH = "\nIs {name} on"
ABSENT = "\nNot here of {names}"
TYPE = "\nType {text}"
_YES, _NO = "yes", "no"
TASKS = ("find", "read", "switch", "absent", "type", "find_goal", "type_goal")
"""Kinds of single questions; the last two as a goal before the screen."""

_TOLD_FIRST = ("find_goal", "type_goal")
_MOST_SCREENS = 3
_LISTED = 8
_TYPE_KIND = ACTION_NAMES.index("type")
_LISTING, _TYPING, _MISSING = 0.1, 0.25, 0.12


@dataclass(frozen=True)
class Lessons(ElementSentences):
    """Writes lessons over drawn screens for one model; `items` questions about elements in a dense sentence."""

    items: int = 16

    def dense(self, screen: DrawnScreen, rng: random.Random) -> Sentence:
        """One screen and up to `items` answers about it."""
        sentence = self.begin(screen.step)
        named = nameable(screen.step.elements)
        if rng.random() < _LISTING and named:
            self._list(sentence, named)
            named = []
        single = set(map(id, told_apart(named)))
        questions = [
            (self.find if id(element) in single and rng.random() < 0.5 else self.read, element) for element in named
        ]
        questions = rng.sample(questions, min(self.items, len(questions)))
        extra = [(self.switch, state) for state in screen.switches.items()][:3]
        extra += [(self.absent, absentee(screen.step.elements, rng))] if named and rng.random() < 0.4 else []
        extra += [(self.type, text_to_copy(rng)) for _ in range(rng.choice((1, 1, 2, 3)))]
        for ask, about in rng.sample([*questions, *extra], len(questions) + len(extra)):
            ask(sentence, about)
        return sentence

    def question(self, task: str, screen: DrawnScreen, about) -> Sentence:
        """One question of a kind in `TASKS` about something on a screen: an element, a switch's (label, whether on),
        ([names], the one that is missing), or a text to copy."""
        if task not in TASKS:
            raise ValueError(f"there is no task {task!r}; there are {', '.join(TASKS)}")
        if task in _TOLD_FIRST:
            goal, action = _goal(about)
            return self._episode(goal, [(screen, action)])
        sentence = self.begin(screen.step)
        getattr(self, task)(sentence, about)
        return sentence

    def asked_first(self, draw: Callable[[], DrawnScreen], rng: random.Random) -> tuple[Sentence, list[DrawnScreen]]:
        """A goal, then one to three screens, each answered by its part of the goal; and those screens."""
        if rng.random() < _TYPING:
            text = text_to_copy(rng)
            screen = draw()
            goal, action = _goal(text)
            return self._episode(goal, [(screen, action)]), [screen]
        screens = [draw() for _ in range(rng.randint(1, _MOST_SCREENS))]
        asked = [_something(screen, rng) for screen in screens]
        goal = "Find " + LISTS_WITH.join(name for name, _ in asked)
        answers = [(screen, action) for screen, (_, action) in zip(screens, asked, strict=True)]
        return self._episode(goal, answers), screens

    def _episode(self, goal: str, answers: Sequence[tuple[DrawnScreen, Action]]) -> Sentence:
        steps = tuple(replace(screen.step, action=action) for screen, action in answers)
        return self.trajectory.build(Episode("", "", goal, steps))

    def _list(self, sentence: Sentence, elements: Sequence[UiElement]) -> None:
        """Places and names, top to bottom."""
        sentence.read(self.trajectory.ids(LIST))
        sentence.read(self.trajectory.ids(ANSWER))
        for element in sorted(elements, key=place_of)[:_LISTED]:
            sentence.learn([*self.trajectory.action_ids(tap_on(element))[:-1], *self.said(element.name)])

    def switch(self, sentence: Sentence, state: tuple[str, bool]) -> None:
        self.ask(sentence, SWITCH.format(name=state[0]), self.said(_YES if state[1] else _NO))

    def absent(self, sentence: Sentence, names: tuple[list[str], str]) -> None:
        self.ask(sentence, ABSENT.format(names=LISTS_WITH.join(names[0])), self.said(names[1]))

    def type(self, sentence: Sentence, text: str) -> None:
        self.ask(sentence, TYPE.format(text=text), self.trajectory.action_ids(Action.type_text(text)), _TYPE_KIND)


def text_to_copy(rng: random.Random) -> str:
    """A few words, or a goal's words: what people type, and say."""
    if rng.random() < 0.2:
        return rng.choice(train_goals())
    return " ".join(any_word(rng) for _ in range(rng.randint(1, 4)))


def absentee(elements: Sequence[UiElement], rng: random.Random) -> tuple[list[str], str]:
    """Two or three names of which all but one stand here, shuffled; and that one."""
    here = list(dict.fromkeys(one.name for one in nameable(elements) if LISTS_WITH not in one.name))
    names = rng.sample(here, min(len(here), rng.randint(1, 2)))
    missing = _missing(elements, rng)
    return rng.sample([*names, missing], len(names) + 1), missing


def _missing(elements: Sequence[UiElement], rng: random.Random) -> str:
    """A word of the phone's that stands in no text here, alone or among others, in whatever case."""
    text = " " + " ".join(re.sub(r"\W+", " ", element.name).casefold() for element in elements) + " "
    while f" {(word := rng.choice(phone_words())).casefold()} " in text:
        pass
    return word


def _goal(about: UiElement | str) -> tuple[str, Action]:
    if isinstance(about, str):
        return f"Type {about}", Action.type_text(about)
    return f"Find {about.name}", tap_on(about)


def _something(screen: DrawnScreen, rng: random.Random) -> tuple[str, Action]:
    """A name, and the tap on what is called so; now and then one that is not there, which is impossible."""
    here = [one for one in told_apart(nameable(screen.step.elements)) if LISTS_WITH not in one.name]
    if not here or rng.random() < _MISSING:
        return _missing(screen.step.elements, rng), Action.impossible()
    element = rng.choice(here)
    return element.name, tap_on(element)


def told_apart(elements: Sequence[UiElement]) -> list[UiElement]:
    """Those whose name nothing else on the screen has."""
    counts = Counter(element.name for element in elements)
    return [element for element in elements if counts[element.name] == 1]
