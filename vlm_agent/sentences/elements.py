"""Element sentences: one screen and questions about its annotated elements, as dense supervision for grounding.

    screen  wifi=tap at 30 12 end  tap at 71 50=Wi-Fi settings end  …

A question is the name of an element and its answer a tap on it, or the reverse. Coordinates are written as the action
language writes taps, so this supervision transfers to actions. A trajectory supervises a few coordinates; one annotated
screen supervises dozens. AITW annotates every screen with OCR text and icon types.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from vlm_agent.action_languages.names import NAME_SEPARATOR, is_name
from vlm_agent.episodes import ACTION_NAMES, Action, Step, UiElement
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.segments import USER, Segment, texts
from vlm_agent.sentences.trajectory import TrajectorySentences

ITEM = "\n"
_TAP = ACTION_NAMES.index("tap")


@dataclass(frozen=True)
class ElementSentences:
    """Builds the element sentence of one screen, with at most `items` questions in random order."""

    trajectory: TrajectorySentences
    items: int = 12

    def build(self, step: Step, rng: random.Random) -> Sentence:
        """The sentence of `segments`."""
        return self.trajectory.encode(self.segments(step, rng))

    def segments(self, step: Step, rng: random.Random) -> list[Segment]:
        """Each question asks for the place or for the name of an element, with equal probability.

        Elements without a usable name (`is_name`) have no question. `rng` draws elements, order and direction.
        """
        found = self.begin(step)
        candidates = nameable(step.elements)
        for element in rng.sample(candidates, min(self.items, len(candidates))):
            found += (self.find if rng.random() < 0.5 else self.read)(element)
        return found

    def begin(self, step: Step) -> list[Segment]:
        """The screen, before any question."""
        trajectory = self.trajectory
        return [*trajectory.start(), *trajectory.before_screen(is_first=True), trajectory.shown(step)]

    def find(self, element: UiElement) -> list[Segment]:
        """A question with the element's name; the answer is a tap on it."""
        return self.ask(ITEM + element.name, self.place(element), _TAP)

    def read(self, element: UiElement) -> list[Segment]:
        """A question with a tap on the element; the answer is its name."""
        question = texts([ITEM, self.place(element), NAME_SEPARATOR], USER)
        return [*question, *self.trajectory.answered(element.name)]

    def ask(self, question: str, answer: str, kind: int = NO_ACTION) -> list[Segment]:
        """A question without a loss and its supervised answer."""
        return [Segment(question + NAME_SEPARATOR, USER), *self.trajectory.answered(answer, kind)]

    def place(self, element: UiElement) -> str:
        """A tap on the element, as the action language writes it."""
        return self.trajectory.action_text(tap_on(element))


def nameable(elements: Iterable[UiElement]) -> list[UiElement]:
    """The elements with a usable name (`is_name`)."""
    return [element for element in elements if is_name(element.name)]


def place_of(element: UiElement) -> tuple[float, float]:
    """(y, x) of the element's centre in screen fractions, clipped to the screen."""
    y, x = (min(max(value, 0.0), 1.0) for value in element.centre_yx)
    return y, x


def tap_on(element: UiElement) -> Action:
    """A tap on the element's centre, clipped to the screen."""
    return Action.tap(*place_of(element))


def label_elements(
    step: Step, grid: tuple[int, int], sentences: TrajectorySentences, empty: float, rng: random.Random
) -> np.ndarray:
    """Labels of the visual tokens of a screen: int64 (rows * columns,), a token id or `IGNORED`.

    `grid`: (rows, columns) of visual tokens. A word or icon type that is one token labels the cell that contains its
    centre, and every cell whose centre it covers. The box of a text is divided among its words by their number of
    characters. A cell that overlaps none of them is labelled with the end mark with probability `empty`, so that blank
    cells are supervised without outweighing the words.
    """
    rows, columns = grid
    labels = np.full(grid, IGNORED, np.int64)
    is_occupied = np.zeros(grid, bool)
    for element in step.elements:
        for token, (y, x, height, width) in _words(element, sentences):
            # Annotations may reach beyond the screen; a negative index would label the opposite edge.
            top, bottom = (min(max(edge, 0.0), 1.0) * rows for edge in (y, y + height))
            left, right = (min(max(edge, 0.0), 1.0) * columns for edge in (x, x + width))
            is_occupied[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
            centre = min(int((top + bottom) / 2), rows - 1), min(int((left + right) / 2), columns - 1)
            labels[_covered_cells(top, bottom), _covered_cells(left, right)] = token
            labels[centre] = token
    is_blank = np.array([rng.random() < empty for _ in range(rows * columns)]).reshape(grid) & ~is_occupied
    labels[is_blank] = sentences.end_mark
    return labels.ravel()


def _covered_cells(first: float, last: float) -> slice:
    """The cells of one axis whose centre lies between `first` and `last`, in units of cells."""
    return slice(int(np.ceil(first - 0.5)), int(np.floor(last - 0.5)) + 1)


def _words(
    element: UiElement, sentences: TrajectorySentences
) -> Iterator[tuple[int, tuple[float, float, float, float]]]:
    """(token id, box) of each word that is a single token; the icon type instead for an element without text.

    A box is (y, x, height, width) in screen fractions.
    """
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
