"""Published scorers of AndroidControl. Its `scroll` names the direction of the content; ours is that of the finger."""

from operator import eq

import numpy as np
import pyarrow.compute as pc

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.evaluation.scoring.controls import texts
from vlm_agent.evaluation.scoring.controls.matching import BUTTONS, ENDS, Crossing, Matching, strokes
from vlm_agent.evaluation.scoring.controls.points import (
    GRID,
    both_on_grid,
    corners,
    distance,
    finger,
    gold_pixels,
    grid,
    holds,
    in_fixed_pixels,
    nearest,
    resized,
    same_direction,
    screen,
    some,
    whole,
)
from vlm_agent.evaluation.scoring.steps import Rule, StepTable, TextRule, all_match, by_text
from vlm_agent.geometry import boxes_at, directions

_NEAR_PIXELS = float(np.sqrt((1080 * 0.14) ** 2 + (2400 * 0.14) ** 2))
"""368.5, 0.14 of the diagonal of 1080 × 2400, on every screen."""

_GROWTH = 1.2 - 1
"""Boxes are 1.2 times as large, rounded as in the published code."""

_CONTENT = ("down", "up", "right", "left")
"""Where the content moves, for each of `geometry.DIRECTIONS` of the finger."""


def near_on_grid(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """At most 140 thousandths apart."""
    return distance(*both_on_grid(table, rows)) <= 140


def _near_in_pixels(table: StepTable, rows: np.ndarray) -> np.ndarray:
    predicted = whole(table.predicted.touch[rows], screen(table, rows))
    return distance(gold_pixels(table, rows), predicted) <= _NEAR_PIXELS


def _candidates(table: StepTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The elements that the data set marks as the gold action's; without one, those under the gold point that do not
    fill the screen, or with the name of the opened app. Corners and positions as in `points.corners`. The published
    scorers read candidates from a file that chooses them in a way that is not published."""
    edges, place = corners(table.targets, table, rows)
    bare = rows[table.targets.counts[rows] == 0]
    if not len(bare):
        return edges, place
    shown, of = corners(table.boxes, table, bare)
    named = _named(table, bare)
    fills = ((shown[:, :2] <= 0) & (shown[:, 2:] >= screen(table, bare)[of])).all(axis=1)
    under = (holds(shown, gold_pixels(table, bare)[of]) & ~fills) | named
    where = np.flatnonzero(table.targets.counts[rows] == 0)[of[under]]
    return np.vstack([edges, shown[under]]), np.concatenate([place, where])


def _named(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """Whether the text of each shown element of `rows` is that of the gold action, in lower case, bool (P,)."""
    index, place = table.boxes.indices(rows)
    found = pc.utf8_lower(table.element_text.take(table.shown[index]))
    wanted = pc.utf8_lower(table.gold.text.take(rows[place]))
    equal = pc.and_(pc.equal(found, wanted), pc.not_equal(wanted, ""))
    return equal.to_numpy(zero_copy_only=False)


def _candidate_near_the_answer(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """ClawGUI, in whole pixels of 1080 × 2400 to which it takes thousandths."""
    gold, predicted = (in_fixed_pixels(points) for points in both_on_grid(table, rows))
    edges, place = _candidates(table, rows)
    chosen = nearest(edges, place, predicted)
    held = holds(edges[chosen], predicted[place[chosen]])
    return (distance(gold, predicted) <= _NEAR_PIXELS) | some(len(rows), place[chosen], held)


def _element_near_the_gold_point(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """AgentCPM-GUI and GUIEvalKit, in fractions of the screen."""
    sizes = screen(table, rows)
    gold, predicted = gold_pixels(table, rows) / sizes, whole(table.predicted.touch[rows], grid(table, rows)) / GRID
    right = distance(gold, predicted) <= 0.04
    far = np.flatnonzero(~right)
    edges, place = corners(table.nodes, table, rows[far])
    edges = edges / np.tile(sizes[far][place], 2)
    extent = edges[:, 2:] - edges[:, :2]
    start = np.maximum(0, edges[:, :2] - _GROWTH * extent / 2)
    grown = np.hstack([start, start + np.minimum(1, extent + _GROWTH * extent)])
    chosen = nearest(grown, place, gold[far])
    held = holds(grown[chosen], predicted[far][place[chosen]])
    right[far] = some(len(far), place[chosen], held)
    return right


def _in_grown_candidate(table: StepTable, rows: np.ndarray) -> np.ndarray:
    units = resized(table, rows)
    predicted = whole(table.predicted.touch[rows], units)
    edges, place = _candidates(table, rows)
    edges = edges * np.tile(units / screen(table, rows), 2)[place]
    centre, half = (edges[:, :2] + edges[:, 2:]) / 2, (edges[:, 2:] - edges[:, :2]) / 2 * 1.2
    return some(len(rows), place, holds(np.hstack([centre - half, centre + half]), predicted[place]))


def _near_or_in_candidate(table: StepTable, rows: np.ndarray) -> np.ndarray:
    units = resized(table, rows)
    gold = gold_pixels(table, rows) * units / screen(table, rows)
    predicted = whole(table.predicted.touch[rows], units)
    return (distance(gold, predicted) <= 0.04 * units.max(axis=1)) | _in_grown_candidate(table, rows)


def _near_in_fractions(table: StepTable, rows: np.ndarray) -> np.ndarray:
    units = resized(table, rows)
    predicted = whole(table.predicted.touch[rows], units) / units
    return distance(gold_pixels(table, rows) / screen(table, rows), predicted) <= 0.04


def _has_candidate(table: StepTable, rows: np.ndarray) -> np.ndarray:
    _, place = _candidates(table, rows)
    return np.bincount(place, minlength=len(rows)) > 0


def _near_whatever_kind(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """GUI-R1, in tenths of a pixel: an answer without a point has (0, 0)."""
    sizes = screen(table, rows)
    kinds = strokes(table.predicted)[rows]
    pointed = (kinds == ACTION_NAMES.index("tap")) | (kinds == ACTION_NAMES.index("long_press"))
    predicted = np.where(pointed[:, None], whole(table.predicted.touch[rows], 10 * sizes) / 10, 0)
    return distance(gold_pixels(table, rows) / sizes, predicted / sizes) < 0.14


def _content_words(touch: np.ndarray, lift: np.ndarray) -> list[str]:
    return [_CONTENT[index] for index in directions(touch, lift).tolist()]


def _word_whatever_kind(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """GUI-R1 compares the word of the direction with any text of the answer."""
    gold = _content_words(table.gold.touch[rows], table.gold.lift[rows])
    predicted = table.predicted.text.take(rows).to_pylist()
    swiped = strokes(table.predicted)[rows] == ACTION_NAMES.index("swipe")
    words = _content_words(table.predicted.touch[rows], table.predicted.lift[rows])
    # A list, because an array of texts takes the length of the longest for each.
    compared = [word if has_word else text for has_word, word, text in zip(swiped, words, predicted, strict=True)]
    return np.array([texts.one_word_or_half(*pair) for pair in zip(gold, compared, strict=True)], bool)


def _same_word_or_that_of_the_prompt(table: StepTable, rows: np.ndarray) -> np.ndarray:
    right = same_direction(table, rows)
    answered = _content_words(table.predicted.touch[rows], table.predicted.lift[rows])
    for word in ("up", "down"):
        asked = pc.match_substring(table.instruction.take(rows), f"Scroll {word}").to_numpy(zero_copy_only=False)
        right |= asked & (np.array(answered, str) == word)
    return right


def _answered_point(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """UGround's answers have a point beside the action: the box that the answer names, otherwise its touch. In tenths
    of a pixel, float64 (R, 2) in pixels."""
    box = table.predicted_box[rows]
    named = ~np.isnan(box).any(axis=1, keepdims=True)
    points = np.where(named, box[:, :2] + box[:, 2:] / 2, table.predicted.touch[rows])
    return whole(points, screen(table, rows) * 10) / 10


def _target_points(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """The gold points in pixels: of typed text, the place that the data set marks; NaN without one."""
    points = table.gold.touch[rows].copy()
    values, place = table.targets.listed(rows)
    points[place] = values[:, :2]
    pixels = whole(points, screen(table, rows))
    pixels[points[:, 0] < 0] = np.nan
    return pixels


def _in_the_smallest_element(table: StepTable, rows: np.ndarray) -> np.ndarray:
    edges, place = corners(table.nodes, table, rows)
    boxes = np.hstack([edges[:, :2], edges[:, 2:] - edges[:, :2]])
    found = boxes_at(_target_points(table, rows), boxes, place)
    right = np.zeros(len(rows), bool)
    hit = np.flatnonzero(found >= 0)
    right[hit] = holds(edges[found[hit]], _answered_point(table, rows[hit]))
    return right


def _typed_there(table: StepTable, rows: np.ndarray) -> np.ndarray:
    gold, predicted = (actions.text.take(rows) for actions in (table.gold, table.predicted))
    right = np.array(pc.equal(gold, predicted).to_numpy(zero_copy_only=False))
    pointed = np.flatnonzero(table.targets.counts[rows] > 0)
    right[pointed] &= _in_the_smallest_element(table, rows[pointed])
    return right


def _touched_text(table: StepTable, rows: np.ndarray) -> list[str]:
    """The text of the smallest element under the answered point of each row, in lower case; empty without one."""
    edges, place = corners(table.nodes, table, rows)
    boxes = np.hstack([edges[:, :2], edges[:, 2:] - edges[:, :2]])
    found = boxes_at(_answered_point(table, rows), boxes, place)
    index, _ = table.nodes.indices(rows)
    listed = table.element_text.take(table.node_index[index[found[found >= 0]]]).to_pylist()
    result = np.full(len(rows), "", object)
    result[found >= 0] = [text.lower() for text in listed]
    return result.tolist()


def _names_the_app(table: StepTable, rows: np.ndarray) -> np.ndarray:
    names = table.gold.text.take(rows).to_pylist()
    found = zip(names, _touched_text(table, rows), strict=True)
    return np.array([bool(text) and name.lower() in text for name, text in found], bool)


def _says_back(table: StepTable, rows: np.ndarray) -> np.ndarray:
    return np.array(["back" in text for text in _touched_text(table, rows)], bool)


def _both(rule: TextRule, without: str | None = None) -> dict[str, Rule]:
    return dict.fromkeys(("type", "open_app"), by_text(rule, without))


DIALECTS = {
    "os_atlas": Matching(
        rule="points within 140 thousandths, same direction, a text equal or with the same first word",
        source="OS-Atlas (Wu et al. 2024), evaluation of AndroidControl, 7,708 steps; UI-TARS and others follow it",
        points=near_on_grid,
        texts=_both(texts.first_words_equal),
        needs_size=False,
        slips={"first word only": {"texts": _both(texts.words_alike)}},
    ),
    "os_genesis": Matching(
        rule="points within 368.5 pixels on any screen, same direction or that of `Scroll up` or `Scroll down` in the "
        "instruction, typed text with F1 of words above 0.5, names of apps equal",
        source="OS-Genesis (Sun et al. 2024), evaluation/android_control/ac_eval.py",
        points=_near_in_pixels,
        swipes=_same_word_or_that_of_the_prompt,
        texts={"type": by_text(texts.words_alike), "open_app": by_text(eq)},
    ),
    "clawgui": Matching(
        rule="in one of the 5 candidate boxes nearest to the answer or within 368.5 pixels, F1 of words above 0.5; an "
        "answer that ends, answers, or presses another button than back and home is wrong",
        source="ClawGUI, ZJU-REAL/ClawGUI, 7,708 steps",
        points=_candidate_near_the_answer,
        texts=_both(texts.words_alike),
        one_kind=(("back", "home"),),
        unreadable=(*ENDS, "answer", "recents", "enter"),
    ),
    "agentcpm_ac": Matching(
        rule="in one of the 5 windows or nodes nearest to the gold point, 1.2 times as large, or within 0.04; one text "
        "in the other; every end and wait are equal; a long press is a tap; opened apps do not count",
        source="AgentCPM-GUI (Zhang et al. 2025), eval/utils/evaluator.py; validation and test, an end for each "
        "episode",
        points=_element_near_the_gold_point,
        texts={"type": by_text(texts.contain)},
        one_kind=(BUTTONS, ("wait", *ENDS)),
        equal=("wait", *ENDS),
        gold_as={"long_press": "tap"},
        left_out=("open_app",),
    ),
    "guievalkit": Matching(
        rule="as agentcpm_ac, but long presses, waits and ends apart; an answer that is not an action of the toolkit "
        "does not count",
        source="GUIEvalKit, after AgentCPM-GUI; validation and test, an end for each episode",
        points=_element_near_the_gold_point,
        texts=_both(texts.contain),
        one_kind=(BUTTONS,),
        unreadable=("impossible", "answer"),
        left_out=("open_app",),
        drops_unread=True,
        slips={"left out": {"drops_unread": False}},
    ),
    "infigui": Matching(
        rule="in a candidate box 1.2 times as large or within 0.04 of the longer side of the resized picture, same "
        "direction, one text in the other; a tap on its icon opens an app",
        source="InfiGUI-R1 (Liu et al. 2025), eval/android_control, 8,444 steps, after Qwen2.5-VL",
        points=_near_or_in_candidate,
        swipes=finger(resized),
        texts=_both(texts.contain),
        one_kind=(BUTTONS,),
        crossings=(Crossing("open_app", "tap", _in_grown_candidate, _has_candidate),),
    ),
    "ui_s1": Matching(
        rule="points within 0.04, any swipe, one text in the other",
        source="UI-S1 (Lu et al. 2025), X-PLUG/MobileAgent, 8,444 steps; its main figures are task success and "
        "progress",
        points=_near_in_fractions,
        swipes=all_match,
        texts=_both(texts.contain),
        one_kind=(BUTTONS,),
        slips={"boxes lost": {"points": _near_or_in_candidate}, "any swipe": {"swipes": finger(resized)}},
    ),
    "gui_r1": Matching(
        rule="points closer than 0.14 and texts with F1 of words from 0.5, whatever the answer's kind; back and wait "
        "do not count",
        source="GUI-R1 (Luo et al. 2025), 7,708 steps",
        points=_near_whatever_kind,
        swipes=_word_whatever_kind,
        texts=_both(texts.one_word_or_half, without="no input text"),
        kinds_only=("back", "wait"),
        free=("tap", "long_press", "swipe", "type", "open_app"),
        slips={"kind not compared": {"free": ()}},
    ),
    "uground": Matching(
        rule="in the smallest element under the gold point, equal text; opening an app and going back are equal to a "
        "tap on an element that says so",
        source="UGround (Gou et al. 2024), offline_evaluation/AndroidControl/eval.py, 500 steps; the paper's own rule",
        points=_in_the_smallest_element,
        texts={"type": _typed_there, "open_app": by_text(eq)},
        crossings=(
            Crossing("open_app", "tap", _names_the_app),
            Crossing("tap", "open_app", _names_the_app),
            Crossing("back", "tap", _says_back),
            Crossing("tap", "back", _says_back),
        ),
    ),
}
"""Scorers of AndroidControl by name."""
