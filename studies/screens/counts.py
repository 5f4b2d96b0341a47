"""What was found on one screen, as counts that add up over screens."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from studies.screens.screens import Shown, ink_box
from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.screens.seen import Text
from vlm_agent.screens.widgets.boxes import corners, overlap

ENOUGH = 0.5
SIMILAR = 0.8

Counts = dict[str, int]
"""`KIND/NAME` → count; `any` is the kind of everything together."""


def of_widgets(shown: Shown, found: Sequence[Widget]) -> Counts:
    """Per kind: `truth`; `predicted`; `right`, pairs of one kind with an IoU of 0.5 or more, one per box; `located`,
    true boxes in a pair of any kinds; `centre`, true boxes that hold the centre of any found box; `state` and
    `state_right`, of pairs of one kind with a state; `ink` (touch areas only), true boxes with an IoU of 0.5 or more
    with their ink. Of the kind `any`, `right` are pairs of any kinds.
    """
    counts: Counter[str] = Counter()
    truth = shown.widgets
    ious, inside = overlap(corners(truth), corners(found)), _centres_inside(truth, found)
    same = np.array([[one.kind == other.kind for other in found] for one in truth], bool).reshape(ious.shape)
    located = pairs(ious, found)
    for name, marked in (
        ("truth", truth),
        ("predicted", found),
        ("located", [truth[row] for row, _ in located]),
        ("centre", [one for one, is_found in zip(truth, inside.any(1), strict=True) if is_found]),
    ):
        counts[f"any/{name}"] += len(marked)
        counts.update(f"{widget.kind}/{name}" for widget in marked)
    for row, column in pairs(np.where(same, ious, 0), found):
        counts[f"{truth[row].kind}/right"] += 1
        if truth[row].on is not None and found[column].on is not None:
            counts[f"{truth[row].kind}/state"] += 1
            counts[f"{truth[row].kind}/state_right"] += truth[row].on == found[column].on
    counts["any/right"] += len(located)
    if shown.touch_areas:
        counts["any/ink"] += _ink_found(shown, [widget.box for widget in truth])
    return dict(counts)


def of_texts(shown: Shown, found: Sequence[Text]) -> Counts:
    """`truth`, `predicted`, `right` (IoU of at least 0.5), `centre`, `ink` as above; `read`: true texts that equal what
    was read within their box, apart from case and spaces; `similar`: with a ratio of at least 0.8."""
    as_widgets = [Widget("image", text.box, score=text.confidence) for text in found]
    truth = [Widget("image", box) for box, _ in shown.texts]
    ious, inside = overlap(corners(truth), corners(as_widgets)), _centres_inside(truth, as_widgets)
    counts = {"truth": len(truth), "predicted": len(found), "right": len(pairs(ious, as_widgets))}
    counts["centre"] = int(inside.any(1).sum())
    ratios = [
        max([_ratio(text, found[index].text) for index in np.nonzero(near | (row > 0))[0]], default=0.0)
        for (_, text), near, row in zip(shown.texts, inside, ious, strict=True)
    ]
    counts["read"], counts["similar"] = sum(ratio == 1 for ratio in ratios), sum(ratio >= SIMILAR for ratio in ratios)
    if shown.touch_areas:
        counts["ink"] = _ink_found(shown, [box for box, _ in shown.texts])
    return {f"text/{name}": count for name, count in counts.items()}


def pairs(ious: np.ndarray, found: Sequence[Widget]) -> list[tuple[int, int]]:
    """(true box, found box), each in at most one pair; the surest found box chooses first."""
    result, free = [], np.ones(len(ious), bool)
    for column in sorted(range(len(found)), key=lambda index: -found[index].score):
        values = ious[:, column] * free if len(ious) else np.zeros(0)
        if len(values) and values.max() >= ENOUGH:
            row = int(values.argmax())
            free[row] = False
            result.append((row, column))
    return result


def _centres_inside(truth: Sequence[Widget], found: Sequence[Widget]) -> np.ndarray:
    """(truth, found) bool: whether the centre of a found box lies in a true box."""
    boxes, others = corners(truth), corners(found)
    centres = (others[:, :2] + others[:, 2:]) / 2
    return ((centres[None] >= boxes[:, None, :2]) & (centres[None] <= boxes[:, None, 2:])).all(-1)


def _ink_found(shown: Shown, boxes: Sequence[tuple[float, float, float, float]]) -> int:
    ink = [Widget("image", ink_box(shown.pixels, box)) for box in boxes]
    ious = overlap(corners([Widget("image", box) for box in boxes]), corners(ink))
    return int((np.diag(ious) >= ENOUGH).sum())


def _ratio(wanted: str, read: str) -> float:
    return SequenceMatcher(None, *("".join(text.lower().split()) for text in (wanted, read))).ratio()


def figures(counts: Counts) -> dict[str, dict[str, float | int | None]]:
    """Kind → the number of true boxes, and shares in percent."""
    kinds = [kind for kind in (*WIDGET_KINDS, "other", "any", "text") if f"{kind}/truth" in counts]
    return {kind: _figures(kind, counts) for kind in kinds}


def _figures(kind: str, counts: Counts) -> dict[str, float | int | None]:
    def count(name: str) -> int:
        return counts.get(f"{kind}/{name}", 0)

    result: dict[str, float | int | None] = {
        "truth": count("truth"),
        "recall": percent(count("right"), count("truth")),
        "precision": percent(count("right"), count("predicted")),
        "centre": percent(count("centre"), count("truth")),
    }
    for name, whole in (
        ("located", "truth"),
        ("state_right", "state"),
        ("ink", "truth"),
        ("read", "truth"),
        ("similar", "truth"),
    ):
        if f"{kind}/{name}" in counts:
            result[name] = percent(count(name), count(whole))
    return result


def percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None
