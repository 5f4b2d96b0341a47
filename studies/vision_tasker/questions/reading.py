"""Texts, widgets and icons that are found, against what was drawn (VisionTasker, A1 and A2)."""

from collections.abc import Sequence
from dataclasses import replace

from studies.vision_tasker.questions.truth import Truth
from studies.vision_tasker.questions.views import has, is_same, meanings_of
from vlm_agent.episodes import UiElement
from vlm_agent.geometry import contains
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.matching import make_parts
from vlm_agent.screens.seen import Box, Part, Text, Understood, area, centre, shared
from vlm_agent.screens.understand import in_blocks


def of_truth(truth: Truth) -> Understood:
    """What a perfect reader would read: the drawn texts and widgets, matched and in blocks like those that are read."""
    texts = tuple(Text(one.box, one.text) for one in truth.elements if one.type == "TEXT")
    size = (truth.pixels.shape[0], truth.pixels.shape[1])
    parts = make_parts(texts, truth.widgets, size)
    active = {label for label, is_active in truth.tabs if is_active}
    parts = tuple(replace(part, meaning=_meaning(truth, part), selected=part.text in active) for part in parts)
    blocks, parts = in_blocks(truth.pixels, parts)
    return Understood(size, texts, truth.widgets, parts, blocks)


def _meaning(truth: Truth, part: Part) -> str:
    if part.text or part.kind not in ("button", "image"):
        return ""
    inside = [one for one in truth.elements if one.type != "TEXT" and iou(one.box, part.box) > 0.3]
    known = [name for one in inside for name in meanings_of(one.type) if name in MEANINGS]
    return known[0] if known else ""


def iou(first: Box, second: Box) -> float:
    both = shared(first, second)
    whole = area(first) + area(second) - both
    return both / whole if whole > 0 else 0.0


def pairs(wanted: Sequence[Box], found: Sequence[Box]) -> list[tuple[int, int]]:
    """(wanted, found) with IoU 0.5 or more, each at most once, the largest overlap first."""
    candidates = sorted(
        ((iou(one, other), i, j) for i, one in enumerate(wanted) for j, other in enumerate(found)), reverse=True
    )
    left, right, result = set(), set(), []
    for overlap, i, j in candidates:
        if overlap >= 0.5 and i not in left and j not in right:
            left.add(i)
            right.add(j)
            result.append((i, j))
    return result


def boxes_found(truth: Truth, understood: Understood) -> dict[str, dict[str, int]]:
    drawn = [one for one in truth.elements if one.type == "TEXT"]
    texts = pairs([one.box for one in drawn], [one.box for one in understood.texts])
    widgets = pairs([one.box for one in truth.widgets], [one.box for one in understood.widgets])
    return {
        "texts": {
            "drawn": len(drawn),
            "seen": len(understood.texts),
            "iou_0.5": len(texts),
            "read": sum(_is_read(text, understood.texts) for text in drawn),
            "read_exactly": sum(is_same(drawn[i].text, understood.texts[j].text) for i, j in texts),
        },
        "widgets": {"drawn": len(truth.widgets), "seen": len(understood.widgets), "iou_0.5": len(widgets)},
    }


def _is_read(text: UiElement, texts: Sequence[Text]) -> bool:
    return any(has(one.text, text.text) for one in texts if _near(one.box, text.box))


def _near(box: Box, other: Box) -> bool:
    """Whether the centre of `other` lies in `box`, or that of `box` in `other`."""
    return contains(box, centre(other)) or contains(other, centre(box))


def icons_read(truth: Truth, understood: Understood) -> dict[str, int]:
    """Icons of a known meaning that are images or buttons: drawn, found by their centre without a text, read right."""
    icons = [one for one in truth.elements if is_known(one) and one.box[0] > 0.035]
    alone = [part for part in understood.parts if part.kind in ("button", "image") and not part.text]
    found = right = 0
    for icon in icons:
        own = [part for part in alone if iou(part.box, icon.box) > 0.3]
        found += bool(own)
        right += any(part.meaning in meanings_of(icon.type) for part in own)
    return {"drawn": len(icons), "found_alone": found, "right": right}


def is_known(element: UiElement) -> bool:
    return element.type != "TEXT" and any(name in MEANINGS for name in meanings_of(element.type))
