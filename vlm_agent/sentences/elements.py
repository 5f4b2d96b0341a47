"""Screens read aloud: every annotated element named and placed, as dense supervision of seeing.

    screen  wifi=tap at 30 12 end  tap at 71 50=Wi-Fi settings end  …

Places are written as the action language writes taps, so that what is learned about places here is what actions need.
A whole trajectory teaches a handful of places; one annotated screen teaches dozens. AITW brings these annotations for
every screen (OCR text and icon types).
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from vlm_agent.action_languages.names import NAME_SEPARATOR, is_name
from vlm_agent.episodes import ACTION_NAMES, Action, Step, UiElement
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.trajectory import TrajectorySentences

ITEM = "\n"
_TAP = ACTION_NAMES.index("tap")


@dataclass(frozen=True)
class ElementSentences:
    """Writes one screen's elements, at most `items` of them, in an order drawn from the caller's generator."""

    trajectory: TrajectorySentences
    items: int = 12

    def build(self, step: Step, rng: random.Random) -> Sentence:
        sentence = self.begin(step)
        named = nameable(step.elements)
        for element in rng.sample(named, min(self.items, len(named))):
            (self.find if rng.random() < 0.5 else self.read)(sentence, element)
        return sentence

    def begin(self, step: Step) -> Sentence:
        """A sentence with the screen, before any question."""
        sentence = Sentence()
        sentence.read(self.trajectory.start_ids() + self.trajectory.before_screen(is_first=True))
        screen = self.trajectory.screen(step)
        sentence.see(screen, self.trajectory.screens.tokens(*screen.shape[1:]))
        return sentence

    def find(self, sentence: Sentence, element: UiElement) -> None:
        self.ask(sentence, ITEM + element.name, self.trajectory.action_ids(tap_on(element)), _TAP)

    def read(self, sentence: Sentence, element: UiElement) -> None:
        ids, place = self.trajectory.ids, self.trajectory.action_ids(tap_on(element))[:-1]
        sentence.read([*ids(ITEM), *place, *ids(NAME_SEPARATOR)])
        sentence.learn(self.answer_ids(element.name))

    def ask(self, sentence: Sentence, question: str, answer: list[int], kind: int = NO_ACTION) -> None:
        """A question that is read, and its answer, which is learned."""
        sentence.read(self.trajectory.ids(question + NAME_SEPARATOR))
        sentence.learn(answer, kind)

    def answer_ids(self, text: str) -> list[int]:
        """A text as an answer: its tokens and the end mark."""
        return [*self.trajectory.ids(text), self.trajectory.end_mark]


def nameable(elements: Iterable[UiElement]) -> list[UiElement]:
    """Those with a name short enough to be written."""
    return [element for element in elements if is_name(element.name)]


def place_of(element: UiElement) -> tuple[float, float]:
    """(y, x) of its middle, on the screen even where its annotation reaches beyond."""
    y, x = (min(max(value, 0.0), 1.0) for value in element.centre_yx)
    return y, x


def tap_on(element: UiElement) -> Action:
    return Action.tap(*place_of(element))


def label_elements(
    step: Step, grid: tuple[int, int], sentences: TrajectorySentences, empty: float, rng: random.Random
) -> np.ndarray:
    """int64 (rows * columns,): for each visual token the id of the word or icon type that it shows, else `IGNORED`.

    A word names the cell in which its middle lies, and every other cell whose own middle it covers; words of a text are
    placed by their share of its characters. Cells that no element touches are labelled with the end mark in a share
    `empty` of cases, so that nothing also has a name without outweighing the words.
    """
    rows, columns = grid
    labels = np.full(grid, IGNORED, np.int64)
    touched = np.zeros(grid, bool)
    for element in step.elements:
        for token, (y, x, height, width) in _words(element, sentences):
            # Annotations may reach beyond the screen; a negative index would label the opposite edge.
            top, bottom = (min(max(edge, 0.0), 1.0) * rows for edge in (y, y + height))
            left, right = (min(max(edge, 0.0), 1.0) * columns for edge in (x, x + width))
            touched[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
            middle = min(int((top + bottom) / 2), rows - 1), min(int((left + right) / 2), columns - 1)
            labels[_middles(top, bottom), _middles(left, right)] = token
            labels[middle] = token
    blank = np.array([rng.random() < empty for _ in range(rows * columns)]).reshape(grid) & ~touched
    labels[blank] = sentences.end_mark
    return labels.ravel()


def _middles(first: float, last: float) -> slice:
    """The cells whose middle lies between `first` and `last`, in cells."""
    return slice(int(np.ceil(first - 0.5)), int(np.floor(last - 0.5)) + 1)


def _words(
    element: UiElement, sentences: TrajectorySentences
) -> Iterator[tuple[int, tuple[float, float, float, float]]]:
    """(token id, box) of each word of an element that is one token."""
    if not element.text:
        pieces = [(element.type, element.box)]
    else:
        y, x, height, width = element.box
        share = width / len(element.text)
        pieces, at = [], 0
        for word in element.text.split(" "):
            pieces.append((word, (y, x + at * share, height, len(word) * share)))
            at += len(word) + 1
    for word, box in pieces:
        ids = sentences.ids(word) if word else []
        if len(ids) == 1:
            yield ids[0], box
