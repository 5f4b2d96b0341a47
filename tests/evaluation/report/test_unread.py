"""The table of answers that are not an action."""

import io
from dataclasses import replace

import pytest
from helpers.evaluation.gold_steps import answered, episode
from helpers.tiny import LANGUAGE
from rich.console import Console

from vlm_agent.episodes import Action
from vlm_agent.evaluation.report.terminal import example_line, parse_failure_table
from vlm_agent.evaluation.scoring.metrics import OVERALL, score

HOME = Action.press("home")


@pytest.fixture
def rows():
    """The one answer of one subset is not an action; the nine of another one are."""
    gold = [*episode("a", "general", [HOME]), *episode("b", "single", [HOME] * 9)]
    return answered(gold, [None, *([HOME] * 9)])


def _printed(table) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def test_the_share_is_that_of_all_answers_and_not_the_mean_over_subsets(rows):
    scores = score(rows) | {"about": {}}
    assert scores["official"][OVERALL]["parse_failures"] == 50
    assert "10.0" in _printed(parse_failure_table({"agent": scores}))
    assert example_line("agent", scores, rows, LANGUAGE).startswith("agent: 10.0 % of the answers are not an action")


def test_steps_that_the_agent_failed_to_answer_are_counted_apart(rows):
    scores = score(rows) | {"about": {"failed_steps": ["episode a, step 0: no reply"]}}
    printed = _printed(parse_failure_table({"agent": scores}))
    assert "failed steps" in printed
    [row] = [line.split() for line in printed.splitlines() if "agent" in line]
    assert row[-2:] == ["0.0", "1"]
    assert example_line("agent", scores, rows, LANGUAGE) is None


def test_the_example_is_the_first_answer_with_text_that_is_not_an_action():
    gold = episode("a", "general", [HOME] * 4)
    answers = answered(gold, [HOME, None, None, None])
    answers = [replace(row, text=text) for row, text in zip(answers, ("press home", " ", "go home", "so"), strict=True)]
    scores = score(answers) | {"about": {}}
    assert "step 2: answer 'go home', expected 'press home'" in example_line("agent", scores, answers, LANGUAGE)
    assert example_line("agent", scores, answers[:2], LANGUAGE) is None
