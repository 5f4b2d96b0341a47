"""The dialect `d_pot` and the language `element_index` agree with D-PoT's published scorer."""

import gzip
import json
from pathlib import Path

import d_pot as golden
import pytest

CASES = Path(__file__).parents[1] / "data/d_pot/eval_cases.jsonl.gz"


def test_every_copied_verdict_agrees(capsys):
    assert golden.main([str(CASES)]) == 0
    assert "250 answers, 0 differences" in capsys.readouterr().out


def test_all_reference_verdicts_agree(shared, capsys):
    assert golden.main([str(shared / "data/golden/d_pot/eval_cases.jsonl.gz")]) == 0
    assert "800 answers, 0 differences" in capsys.readouterr().out


def test_the_language_reads_every_answer_of_the_paper_s_types():
    """An index as a string and single quotation marks are read, as the published code reads them."""
    for case in golden.read_cases(CASES):
        action = golden.action_without_touch(case["extracted"])
        if case["extracted"]["action_type"] == "click" or action is not None:
            screen = golden.Screen(None, tuple(golden.UiElement(tuple(box)) for box in case["boxes_yxhw"]))
            assert golden.LANGUAGE.decode(case["response"], screen) is not None, case["response"]


@pytest.mark.parametrize(
    "change",
    [
        {"correct": False},
        {"response": '{"action_type": "status_complete"}'},
        {"extracted": {"action_type": "No match action"}},
        {"extracted": {"action_type": "click", "idx": 0}, "response": '{"action_type": "click", "idx": 1}'},
    ],
)
def test_a_difference_is_printed_and_fails(tmp_path, capsys, change):
    cases = golden.read_cases(CASES)
    case = next(case for case in cases if case["correct"] and case["extracted"]["action_type"] == "click")
    (tmp_path / "cases.jsonl").write_text(json.dumps(case | change) + "\n")
    assert golden.main([str(tmp_path / "cases.jsonl")]) == 1
    assert "case 0: " in capsys.readouterr().out


def test_a_file_without_cases_fails(tmp_path):
    (tmp_path / "none.jsonl.gz").write_bytes(gzip.compress(b"\n"))
    assert golden.main([str(tmp_path / "none.jsonl.gz")]) == 1
    assert golden.main([]) == 2


def test_a_negative_index_counts_from_the_last_element_as_published():
    case = {
        "boxes_yxhw": [[0.0, 0.0, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1]],
        "gold_action": {"action_type": "click", "idx": [1]},
        "gold_touch_yx": [0.85, 0.85],
        "response": '{"action_type": "click", "idx": -1}',
        "extracted": {"action_type": "click", "idx": -1},
        "correct": True,
    }
    assert list(golden.differences([case])) == []


def case_of(response: str, extracted: dict, gold: dict, correct: bool) -> dict:
    boxes = [[0.0, 0.0, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1]]
    touch = [0.85, 0.85] if gold["action_type"] == "click" else [-1.0, -1.0]
    answer = {"response": response, "extracted": extracted, "correct": correct}
    return {"boxes_yxhw": boxes, "gold_action": gold, "gold_touch_yx": touch, **answer}


UNREAD, CLICK, TYPE = {"action_type": golden.UNREAD}, {"action_type": "click", "idx": [1]}, {"action_type": "type"}


@pytest.mark.parametrize(
    "case",
    [
        # The published code looks for braces line by line, and evaluates after making all quotation marks single ones.
        case_of('{\n"action_type": "click",\n"idx": 1\n}', UNREAD, CLICK, False),
        case_of('{"action_type": "type", "text": "mom\'s"}', UNREAD, TYPE, False),
        case_of('{"action_type": "type", "text": "say \\"a\\""}', TYPE | {"text": "say 'a'"}, TYPE, True),
        case_of('{"action_type": "type", "text": "{a} b"}', TYPE | {"text": "{a} b"}, TYPE, True),
        case_of('{"action_type": "CLICK", "idx": 1}', {"action_type": "CLICK", "idx": 1}, CLICK, False),
        case_of('{"action_type": "scroll", "direction": "UP"}', {"action_type": "scroll", "direction": "UP"},
                {"action_type": "scroll", "direction": "up"}, False),
        case_of('{"action_type": "scroll", "direction": ["up"]}', {"action_type": "scroll", "direction": ["up"]},
                {"action_type": "scroll", "direction": "up"}, False),
        case_of('{"action_type": "wait"}', {"action_type": "wait"}, CLICK, False),
        case_of('{"action_type": "swipe"}', {"action_type": "swipe"}, {"action_type": "swipe"}, True),
        case_of('{"action_type": "click", "idx": 2}', {"action_type": "No match", "idx": 2}, CLICK, False),
        case_of('{"action_type": "status_impossible"}', {"action_type": "status_impossible"},
                {"action_type": "status_complete"}, False),
    ],
)  # fmt: skip
def test_answers_of_other_shapes_are_no_differences(case):
    assert list(golden.differences([case])) == []


def test_answers_that_only_the_language_reads_are_counted(tmp_path, capsys):
    case = case_of('{\n"action_type": "click",\n"idx": 1\n}', UNREAD, CLICK, False)
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    assert golden.main([str(tmp_path / "cases.jsonl")]) == 0
    assert "0 differences; read by the language alone: 1" in capsys.readouterr().out
