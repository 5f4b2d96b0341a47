"""Compares the dialect `d_pot` and the language `element_index` here with verdicts of D-PoT's published scorer.

    python tests/golden/d_pot.py FILE

FILE holds a JSON object a line, plain or gzip-compressed: `boxes_yxhw` of the screen's elements, `gold_action` in the
form of the answers (`idx`: the elements that hold the gold tap), `gold_touch_yx`, the answer as text in `response`, the
published scorer's reading of it in `extracted`, and its verdict in `correct`.

Prints each difference and a line with their number; the exit status is 1 if anything differs or the file has nothing to
compare. Compared are

- the verdict of dialect `d_pot` on the published reading;
- the action that the language reads in the answer, wherever it reads one, with the published reading.

What only the published scorer does is here: an index below zero counts from the last element, and an action with a type
that the paper does not list is right if the gold one has the same type. The language reads no action there.
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


def read_cases(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def gold_action(case: dict[str, Any]) -> Action | None:
    if case["gold_action"]["action_type"] == "click":
        return Action.tap(*case["gold_touch_yx"])
    return action_without_touch(case["gold_action"])


def action_without_touch(content: dict[str, Any]) -> Action | None:
    """The action of `content`; None for a click and for what the paper does not list."""
    if content["action_type"] == "scroll":
        return Action.swipe(*SWIPES[content["direction"]]) if content.get("direction") in SWIPES else None
    return WITHOUT_TOUCH.get(content["action_type"])


def prediction(number: int, case: dict[str, Any]) -> Prediction:
    """The step with its published reading."""
    boxes, content = case["boxes_yxhw"], case["extracted"]
    action, box = action_without_touch(content), None
    if content["action_type"] == "click" and -len(boxes) <= content["idx"] < len(boxes):
        box = tuple(boxes[content["idx"]])
        action = Action.tap(0.5, 0.5)  # the box decides
    elements = tuple(UiElement(tuple(one)) for one in boxes)
    gold = gold_action(case)
    assert gold is not None, f"case {number}: no gold action"
    return Prediction(str(number), "", "", 0, 1, gold, elements, case["response"], action, box=box)


def read_differently(case: dict[str, Any]) -> bool:
    """Whether the language reads an action in the answer that the published code does not."""
    screen = Screen(None, tuple(UiElement(tuple(box)) for box in case["boxes_yxhw"]))
    content, action = case["extracted"], LANGUAGE.decode(case["response"], screen)
    if action is None:
        return False
    if content["action_type"] == "click":
        return LANGUAGE.predicted_box(case["response"], screen) != screen.elements[content["idx"]].box
    expected = action_without_touch(content)
    if expected is None or (action.name, action.direction) != (expected.name, expected.direction):
        return True
    return content["action_type"] == "type" and action.text != content.get("text")


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
    print(*found, f"{arguments[0]}: {len(cases)} answers, {len(found)} differences", sep="\n")
    return 1 if found or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
