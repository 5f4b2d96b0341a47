"""The rules of AitZ for clicks and typed texts: the parts of the dialects `coat_point` and `coat_box`.

Source: IMNearth/CoAT, commit 9ab1a9f, `coat/evaluate.py` and `coat/screen_utils.py`. The arithmetic is that of the
published evaluator, in float64 and in its order of operations, so that `tests/golden/coat.py` gives its verdicts to the
last bit where boxes are in pixels. Where the published code errs, these rules do not:

- It compares clicks with the point (0, 0), because it reads the gold point of scrolls only. Here, the gold touch
  counts.
- It accepts an empty text for any gold text, because every text contains the empty one. Here, an empty text matches
  only an empty one.
- It never takes the element with index 0, and raises an exception for `press` without a button. Both concern the
  reading of an answer, which here is the work of the action language.
"""

from collections import defaultdict

import numpy as np

BOX_FACTOR = 1.2
"""Boxes are enlarged to this multiple of their size, about their centre."""

MIN_IOU = 0.5
MIN_RATIO = 0.8
"""A box, or a text, matches if its overlap, or its similarity, is larger than this."""


def boxes_match(predicted: np.ndarray, gold: np.ndarray, elements: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Whether each of R predicted boxes meets the gold point of its row, bool (R,).

    `predicted` is float (R, 4), `gold` (R, 2), `elements` (P, 4), and `row` int (P,) the row to which each element
    belongs. Boxes are corners (first axis, second axis, both ends: low, low, high, high), in any unit and in the order
    of axes of the points. A box that is not finite, or that has its ends swapped, matches nothing.

    A predicted box is right if it, enlarged, holds the gold point, edges included, or if an enlarged element that holds
    the gold point overlaps with it by an intersection over union above `MIN_IOU`.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # boxes of zero size, or of any model output
        predicted, elements = _enlarged(predicted), _enlarged(elements)
        right = _hold(predicted, gold)
        holding = np.flatnonzero(_hold(elements, gold[row]))
        overlap = _iou(predicted[row[holding]], elements[holding])
    right[row[holding[overlap > MIN_IOU]]] = True
    return right


def _enlarged(corners: np.ndarray) -> np.ndarray:
    low, high = corners[:, :2], corners[:, 2:]
    centre, size = (low + high) / 2, (high - low) * BOX_FACTOR
    return np.hstack([centre - size / 2, centre + size / 2])


def _hold(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    inside = (corners[:, :2] <= points) & (points <= corners[:, 2:])
    return inside[:, 0] & inside[:, 1]


def _iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of each pair of boxes; 0 or NaN if both are empty."""
    shared = np.minimum(first[:, 2:], second[:, 2:]) - np.maximum(first[:, :2], second[:, :2])
    intersection = np.maximum(shared, 0).prod(axis=1)
    areas = [(corners[:, 2:] - corners[:, :2]).prod(axis=1) for corners in (first, second)]
    return intersection / (areas[0] + areas[1] - intersection)


def texts_match(gold: str, predicted: str) -> bool:
    """Whether a typed text is close to the gold one: one contains the other, or `text_ratio` is above `MIN_RATIO`.

    Case counts. An empty text, also one of white space alone, matches only an empty one.
    """
    if not gold.strip() or not predicted.strip():
        return gold.strip() == predicted.strip()
    return gold in predicted or predicted in gold or text_ratio(gold, predicted) > MIN_RATIO


def text_ratio(first: str, second: str) -> float:
    """The similarity that the package Levenshtein calls `ratio`: 1 for equal texts, 0 without a common character.

    1 - distance / (sum of both lengths), where the distance counts inserted and deleted characters. A replaced one
    counts as one of each, so the distance is the sum of the lengths less twice the longest common subsequence.
    """
    total = len(first) + len(second)
    if not total:
        return 1.0
    return 1.0 - (total - 2 * _common_subsequence(first, second)) / total


def _common_subsequence(first: str, second: str) -> int:
    """The length of the longest common subsequence, bit-parallel: one step on a long integer for each character of
    `second` (Hyyrö 2004). Bit n of `open_` is 0 where the subsequence gains a character at first[n]."""
    places: dict[str, int] = defaultdict(int)
    for index, character in enumerate(first):
        places[character] |= 1 << index
    everywhere = (1 << len(first)) - 1
    open_ = everywhere
    for character in second:
        matched = open_ & places.get(character, 0)
        open_ = ((open_ + matched) | (open_ - matched)) & everywhere
    return len(first) - open_.bit_count()
