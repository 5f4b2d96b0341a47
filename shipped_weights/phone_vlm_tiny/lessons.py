"""Lessons about drawn screens: reading, locating, comparing and copying, before a model becomes an agent.

    screen   Wifi=tap at 30 12   tap at 71 50=Wi-Fi settings   Is Mute on=yes   Type red lamp=Input text …
    Goal: Find Wifi, Mail   screen 1   Action: tap at 30 12   screen 2   Action: impossible

The first form is dense: one sentence with many questions about one screen. In the second form the goal precedes the
screens, as in an agent's prompt, with one screen for each name in the goal; the answer to a name that is not on its
screen is `impossible`. Answers are actions in the action language or plain text. Every answer follows from the screen
and the question; decisions are learned from demonstrations.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import LIST_SEPARATOR
from shipped_weights.phone_vlm_tiny.drawn.screens import DrawnScreen
from shipped_weights.phone_vlm_tiny.drawn.words import any_word, phone_words, train_goals
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, LessonRecipe, WordRecipe
from vlm_agent.action_languages.names import NAME_SEPARATOR
from vlm_agent.episodes import ACTION_NAMES, Action, Episode, UiElement
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ElementSentences, nameable, place_of, tap_on
from vlm_agent.sentences.segments import ASSISTANT, USER, Segment, texts

LIST = "\nList"
SWITCH = "\nIs {name} on"
ABSENT = "\nNot here of {names}"
TYPE = "\nType {text}"
_YES, _NO = "yes", "no"
TASKS = ("find", "read", "switch", "absent", "type", "find_goal", "type_goal")
"""Kinds of single questions; the last two have the form of a goal before the screen."""

_GOAL_TASKS = ("find_goal", "type_goal")
_MOST_LIST_ITEMS = 8
_TYPE_KIND = ACTION_NAMES.index("type")


@dataclass(frozen=True)
class Lessons(ElementSentences):
    """Builds the sentences of lessons for one model. A dense sentence has at most `items` questions about elements."""

    items: int = 16
    settings: DrawnRecipe = field(default_factory=DrawnRecipe)

    def dense(self, screen: DrawnScreen, rng: random.Random) -> Sentence:
        """One screen with questions about it: at most `items` about elements, and a few about switches, absent names
        and texts to copy."""
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
        questions += [partial(self.switch, state=state) for state in screen.switches.items()][:3]
        if elements and rng.random() < odds.absent_name:
            questions.append(partial(self.absent, names=absent_name(screen.elements, rng)))
        for _ in range(rng.choice((1, 1, 2, 3))):
            questions.append(partial(self.type, text=text_to_copy(rng, self.settings.words)))
        for ask in rng.sample(questions, len(questions)):
            found += ask()
        return self.trajectory.encode(found)

    def question(self, task: str, screen: DrawnScreen, subject: Any) -> Sentence:
        """One question of a kind in `TASKS`.

        `subject`: an element, a switch as (label, on), names as ([names], the absent name), or a text to copy. Raises
        ValueError for an unknown task.
        """
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}; choose one of {', '.join(TASKS)}")
        if task in _GOAL_TASKS:
            goal, action = _goal(subject)
            return self._episode(goal, [(screen, action)])
        return self.trajectory.encode([*self.begin(screen.step), *getattr(self, task)(subject)])

    def goal_first(self, draw: Callable[[], DrawnScreen], rng: random.Random) -> tuple[Sentence, list[DrawnScreen]]:
        """A goal and its screens from `draw`: a text to type and one screen, or 1 to `most_screens` names with a screen
        each."""
        odds = self.settings.lessons
        if rng.random() < odds.copy_text:
            text = text_to_copy(rng, self.settings.words)
            screen = draw()
            goal, action = _goal(text)
            return self._episode(goal, [(screen, action)]), [screen]
        screens = [draw() for _ in range(rng.randint(1, odds.most_screens))]
        targets = [_name_and_action(screen, rng, odds) for screen in screens]
        goal = "Find " + LIST_SEPARATOR.join(name for name, _ in targets)
        answers = [(screen, action) for screen, (_, action) in zip(screens, targets, strict=True)]
        return self._episode(goal, answers), screens

    def _episode(self, goal: str, answers: Sequence[tuple[DrawnScreen, Action]]) -> Sentence:
        steps = tuple(replace(screen.step, action=action) for screen, action in answers)
        return self.trajectory.build(Episode("", "", goal, steps))

    def _list(self, elements: Sequence[UiElement]) -> list[Segment]:
        """The positions and names of the first `_MOST_LIST_ITEMS` elements, from top to bottom."""
        found = texts([LIST, NAME_SEPARATOR], USER)
        for element in sorted(elements, key=place_of)[:_MOST_LIST_ITEMS]:
            found += [Segment(self.place(element), ASSISTANT, role="action"), *self.trajectory.answered(element.name)]
        return found

    def switch(self, state: tuple[str, bool]) -> list[Segment]:
        """Asks whether the switch with this label is on. `state`: (label, on)."""
        return self.ask(SWITCH.format(name=state[0]), _YES if state[1] else _NO)

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


def _goal(subject: UiElement | str) -> tuple[str, Action]:
    if isinstance(subject, str):
        return f"Type {subject}", Action.type_text(subject)
    return f"Find {subject.name}", tap_on(subject)


def _name_and_action(screen: DrawnScreen, rng: random.Random, odds: LessonRecipe) -> tuple[str, Action]:
    """A name and the tap on its element, or a name that is not on the screen and the action `impossible`."""
    visible = [one for one in uniquely_named(nameable(screen.elements)) if LIST_SEPARATOR not in one.name]
    if not visible or rng.random() < odds.absent:
        return _word_in_no_name(screen.elements, rng), Action.impossible()
    element = rng.choice(visible)
    return element.name, tap_on(element)


def uniquely_named(elements: Sequence[UiElement]) -> list[UiElement]:
    """The elements whose name is unique."""
    counts = Counter(element.name for element in elements)
    return [element for element in elements if counts[element.name] == 1]
