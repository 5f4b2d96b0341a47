"""The language of CoAT: the type and the box of an answer, which its evaluator scores."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from helpers.agents.coat_answers import ELEMENTS, LANGUAGE, SCREEN, call, predicted_type
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages.coat import ACTION_TYPES, predicted_box
from vlm_agent.episodes import Action, Screen, UiElement

VERDICTS = Path(__file__).parents[1] / "data/coat/evaluator.jsonl.gz"


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (call("click_element", bbox=[100, 200, 300, 600]), (0.2, 0.1, 0.4, 0.2)),
        (call("click_element", bbox=[522, 318, 1001, 351]), (0.318, 0.522, 0.033, 0.479)),
        (call("click_element", bbox=[300, 200, 100, 600]), None),
        (call("click_element", idx=1), ELEMENTS[1].box),
        (call("click_element", idx=2), None),
        (call("scroll", direction="up", bbox=[100, 200, 300, 600]), None),
        ("CLICK(0.5, 0.5)", None),
        ("", None),
    ],
)
def test_the_box_of_a_click_is_kept_for_scoring(text, box):
    assert predicted_box(text, SCREEN) == (None if box is None else pytest.approx(box))


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4))
def test_a_click_taps_the_centre_of_its_box(sides):
    text = call("click_element", bbox=sides)
    action, box = LANGUAGE.decode(text), predicted_box(text)
    assert (action is None) == (box is None) == (sides[0] > sides[2] or sides[1] > sides[3])
    if action is not None:
        assert action == Action.tap(*UiElement(box).centre_yx)


def check_verdicts(path: Path) -> Counter[str]:
    """Compare every verdict's format hit and type, and the type of decoded actions; returns the number of cases by
    type, of actions under `action`."""
    counts: Counter[str] = Counter()
    for line in gzip.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        answer, gold, verdict = row["said"], row["gold"], row["gold_point"]
        height, width = row["size"]
        boxes = [(y / height, x / width, h / height, w / width) for y, x, h, w in gold["ui_positions"]]
        text, screen = json.dumps(answer), Screen(None, tuple(map(UiElement, boxes)))
        credited, action = predicted_type(text), LANGUAGE.decode(text, screen)
        assert (credited is not None) == verdict["format_hit"], answer
        assert (credited == gold["coat_action_desc"].split()[0]) == verdict["type_match"], answer
        counts[str(credited)] += 1
        if action is None:
            is_unusable_click = credited == "click" and _is_unusable(answer["ARGS"], len(boxes))
            assert credited is None or is_unusable_click, answer
        else:
            assert predicted_type(LANGUAGE.encode(action)) == credited, answer
            counts["action"] += 1
    return counts


def _is_unusable(arguments: dict, elements: int) -> bool:
    if "idx" in arguments:
        return not str(arguments["idx"]).isdigit() or int(arguments["idx"]) >= elements
    x1, y1, x2, y2 = arguments["bbox"]
    return x1 > x2 or y1 > y2 or max(x2, y2) > 1000


def test_calls_decode_to_the_type_that_the_published_evaluator_credits():
    counts = check_verdicts(VERDICTS)
    assert {*ACTION_TYPES, "None"} <= counts.keys()


def test_all_reference_calls_decode_to_the_type_that_the_published_evaluator_credits(shared):
    counts = check_verdicts(shared / "data/golden/coat_evaluator.jsonl.gz")
    assert counts.total() - counts["action"] == 3000
    assert counts["action"] > 2000


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (call("click_element", bbox=[3, 2, 1]), "click"),
        (call("stop"), "stop"),
        (call("fly"), None),
        ("CLICK(0.5, 0.5)", "click"),
        ("SCROLL(up)", "scroll"),
        ("TYPE(a)", "type"),
        ("PRESS(home)", "press"),
        ("STOP(impossible)", "stop"),
        ("WAIT()", None),
        ("CLICK(2, 2)", None),
    ],
)
def test_a_call_has_a_type_even_with_unusable_arguments(text, kind):
    assert predicted_type(text) == kind
