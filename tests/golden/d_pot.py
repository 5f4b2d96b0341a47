"""Compares the dialect `d_pot` and the language `element_index` here with verdicts of D-PoT's published scorer.

    python tests/golden/d_pot.py FILE

FILE holds a JSON object a line, plain or gzip-compressed: `boxes_yxhw` of the screen's elements, `gold_action` in the
form of the answers (`idx`: the elements that hold the gold tap), `gold_touch_yx`, the answer as text in `response`, the
published scorer's reading of it in `extracted`, and its verdict in `correct`.

Prints each difference and a line with their number; the exit status is 1 if anything differs or the file has nothing to
compare. Compared are

- the verdict of dialect `d_pot` on the published reading;
- the action that the language reads in the answer, wherever both read one. Quotation marks in a typed text count as
  equal, because the published code makes each of them a single one.

What only the published scorer does is here: an index below zero counts from the last element, and an action with a type
that the paper does not list is right if the gold one has the same type. The language reads no action there. What only
the language reads is counted, and is no difference: an object of several lines, or with an apostrophe in its text.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from vlm_agent.action_languages import language_settings  # noqa: E402
from vlm_agent.action_languages.language import SWIPES  # noqa: E402
from vlm_agent.episodes import Action, Screen, UiElement  # noqa: E402
from vlm_agent.evaluation.predictions import Prediction  # noqa: E402
from vlm_agent.evaluation.scoring.dialects import verdicts  # noqa: E402

LANGUAGE = language_settings({"name": "element_index"}).build()
WITHOUT_TOUCH = {
    "type": Action.type_text(""),
    "navigate_home": Action.press("home"),
    "navigate_back": Action.press("back"),
    "press_enter": Action.press("enter"),
    "status_complete": Action.complete(),
    "status_impossible": Action.impossible(),
}

UNREAD = "No match action"
"""The published type of an answer without an action."""


def read_cases(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def gold_action(case: dict[str, Any]) -> Action:
    """What the paper does not list becomes an action that no reading is."""
    if case["gold_action"]["action_type"] == "click":
        return Action.tap(*case["gold_touch_yx"])
    return action_without_touch(case["gold_action"]) or Action.wait()


def action_without_touch(content: dict[str, Any]) -> Action | None:
    """The action of `content`; None for a click and for what the paper does not list."""
    name, direction = content["action_type"], content.get("direction")
    if name == "scroll":
        return Action.swipe(*SWIPES[direction]) if isinstance(direction, str) and direction in SWIPES else None
    return WITHOUT_TOUCH.get(name) if isinstance(name, str) else None


def prediction(number: int, case: dict[str, Any]) -> Prediction:
    """The step with its published reading."""
    boxes, content = case["boxes_yxhw"], case["extracted"]
    action, box = action_without_touch(content), None
    if content["action_type"] == "click" and -len(boxes) <= content["idx"] < len(boxes):
        box = tuple(boxes[content["idx"]])
        action = Action.tap(0.5, 0.5)  # the box decides
    elements = tuple(UiElement(tuple(one)) for one in boxes)
    return Prediction(str(number), "", "", 0, 1, gold_action(case), elements, case["response"], action, box=box)


def action_read(case: dict[str, Any]) -> Action | None:
    """The action that the language reads in the answer."""
    return LANGUAGE.decode(case["response"], screen_of(case))


def screen_of(case: dict[str, Any]) -> Screen:
    return Screen(None, tuple(UiElement(tuple(box)) for box in case["boxes_yxhw"]))


def read_differently(case: dict[str, Any]) -> bool:
    """Whether the language reads another action in the answer than the published code, which reads one as well."""
    content, action, screen = case["extracted"], action_read(case), screen_of(case)
    if action is None or content["action_type"] == UNREAD:
        return False
    if content["action_type"] != json.loads(LANGUAGE.encode(action, screen))["action_type"]:
        return True
    if content["action_type"] == "click":
        return LANGUAGE.predicted_box(case["response"], screen) != screen.elements[content["idx"]].box
    if content["action_type"] == "type":
        return action.text.replace('"', "'") != content.get("text")
    return content["action_type"] == "scroll" and action.direction != content.get("direction")


def read_here_alone(case: dict[str, Any]) -> bool:
    return case["extracted"]["action_type"] == UNREAD and action_read(case) is not None


def differences(cases: list[dict[str, Any]]) -> Iterator[str]:
    right = verdicts([prediction(number, case) for number, case in enumerate(cases)], ["d_pot"])["d_pot"]
    for number, (case, here) in enumerate(zip(cases, right.tolist(), strict=True)):
        unlisted = case["extracted"]["action_type"] not in ("click", "scroll", *WITHOUT_TOUCH)
        here = here or (unlisted and case["extracted"]["action_type"] == case["gold_action"]["action_type"])
        if here != case["correct"]:
            yield f"case {number}: {here}, published {case['correct']}: {case['response']!r}"
        if read_differently(case):
            yield f"case {number}: read differently: {case['response']!r}, published {case['extracted']}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__)
        return 2
    cases = read_cases(Path(arguments[0]))
    found = list(differences(cases))
    alone = sum(map(read_here_alone, cases))
    note = f"; read by the language alone: {alone}" if alone else ""
    print(*found, f"{arguments[0]}: {len(cases)} answers, {len(found)} differences{note}", sep="\n")
    return 1 if found or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
