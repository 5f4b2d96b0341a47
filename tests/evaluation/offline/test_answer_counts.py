"""The counts of an evaluation's answers: of a part, summed, on disk and in words."""

import json
from dataclasses import replace

import pytest
from helpers import tiny

from vlm_agent.agents import Answer, Usage
from vlm_agent.agents.agent import Diagnostics
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.offline.parts import AnswerCounts, read_counts
from vlm_agent.files import write_checked

EPISODES = [replace(tiny.episode(number), steps=tiny.episode().steps[:2]) for number in range(2)]
RIGHT = Answer("", tiny.ACTIONS[0], usage=Usage(from_prefill=True))
ANSWERS = [
    [
        replace(RIGHT, diagnostics=Diagnostics(unwritable=True, reference_has_goal=True)),
        replace(RIGHT, diagnostics=Diagnostics(fenced=True, reference_has_goal=False)),
    ],
    [
        replace(RIGHT, failed="no reply", diagnostics=Diagnostics(beyond_context=True)),
        replace(RIGHT, diagnostics=Diagnostics(repaired=2, unread="two actions"), usage=Usage(from_prefill=False)),
    ],
]
COUNTS = AnswerCounts(
    steps=4,
    settled=3,
    unwritable=["episode 0, step 0: tap at (0.250, 0.750)"],
    failed=["episode 1, step 0: no reply"],
    unread=["episode 1, step 1: two actions"],
    references={"steps": 2, "episodes": 1, "steps_with_an_identical_goal": 1, "episodes_with_an_identical_goal": 1},
    fenced=1,
    repaired=2,
    beyond_context=1,
)


def test_every_property_of_an_answer_is_counted():
    counts = AnswerCounts.of(EPISODES, ANSWERS)
    assert len(counts.unwritable) == 1
    assert replace(counts, unwritable=COUNTS.unwritable) == COUNTS


def test_the_sum_of_parts_is_the_count_of_all_answers():
    parts = [AnswerCounts.of([episode], [answers]) for episode, answers in zip(EPISODES, ANSWERS, strict=True)]
    assert parts[0] + parts[1] == AnswerCounts.of(EPISODES, ANSWERS)
    unknown = AnswerCounts.of(EPISODES[:1], [[replace(RIGHT, usage=Usage())] * 2])
    both = unknown + parts[1]
    assert (unknown.settled, both.settled, both.in_metrics()["settled_by_prefill"]) == (None,) * 3


def test_counts_are_stored_as_by_earlier_versions_without_those_of_0(tmp_path):
    path = tmp_path / "trained.json"
    write_checked(path, COUNTS.to_json())
    assert read_counts(path, "") == COUNTS
    assert list(json.loads(path.read_text())) == [
        *("checksum", "steps", "settled", "unwritable", "failed", "unread", "references", "fenced", "repaired"),
        "beyond_context",
    ]
    path.write_text('{"steps": 3, "settled": null}')
    assert read_counts(path, "") == AnswerCounts(3, None)
    assert AnswerCounts(3, None).to_json() == {"steps": 3, "settled": None}


@pytest.mark.parametrize("content", ["{", '{"steps": 3}', '{"steps": 3, "settled": 1, "fenced": "x"}'])
def test_damaged_counts_are_an_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "trained.json"
    path.write_text(content)
    with pytest.raises(DatasetError, match=r"trained\.json is damaged"):
        read_counts(path, "remove it")


def test_metrics_and_report_have_the_counts_that_are_not_0():
    assert AnswerCounts(4, 3).in_metrics() == {"settled_by_prefill": 0.75}
    assert AnswerCounts(4, 3).facts() == {}
    assert COUNTS.in_metrics() == {
        "settled_by_prefill": 0.75,
        "unwritable_actions": {"count": 1, "first": COUNTS.unwritable},
        "failed_steps": COUNTS.failed,
        "unread_steps": COUNTS.unread,
        "repaired_replies": 2,
        "fenced_answers": 1,
        "beyond_context": 1,
        "references": COUNTS.references,
    }
    assert COUNTS.facts() == {
        "failed steps": "1, counted as wrong; first: episode 1, step 0: no reply",
        "replies requested once more": "2, because they could not be read; 1 steps without an action all the same; "
        "first: episode 1, step 1: two actions",
        "answers in a code fence": "1, read as their content",
        "answers beyond the model's context": "1 of 4, where a model predicts worse; data.past_screens bounds what a "
        "step reads",
        "nearest reference with an identical goal": "1 of 2 steps (50.0 %), 1 of 1 episodes (100.0 %)",
    }
