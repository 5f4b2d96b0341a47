"""What a language that numbers elements can reach, and what answers cost, in metrics.json, terminal and report."""

from dataclasses import dataclass, replace
from io import StringIO

import pytest
from helpers import tiny
from helpers.agents.prepared_agent import Prepared
from helpers.evaluation.gold_steps import answered, episode
from helpers.pages.report_pages import Page
from rich.console import Console

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.agents import Agent, Answer, Usage
from vlm_agent.episodes import Action, Step, UiElement
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.baselines import constant_predictions, taps_on_no_element, written_in
from vlm_agent.evaluation.offline.run import evaluate
from vlm_agent.evaluation.predictions import cost_per_episode, cost_per_step, write_predictions
from vlm_agent.evaluation.scoring.dialects import verdicts
from vlm_agent.files import read_checked

TOP, BOTTOM = UiElement((0.0, 0.0, 0.1, 0.2), "top"), UiElement((0.8, 0.0, 0.2, 1.0), "bottom")
BESIDE = Action.tap(0.3, 0.1)
STEPS = tuple(
    Step(one.screenshot, action, (TOP, BOTTOM))
    for one, action in zip(
        tiny.episode().steps,
        [Action.tap(0.9, 0.5), BESIDE, Action.long_press(0.05, 0.1), Action.complete()],
        strict=False,
    )
)
EPISODES = [replace(tiny.episode(0), steps=STEPS), replace(tiny.episode(1), steps=STEPS[-1:])]


class Numbering(Prepared):
    name: str = "element_index"

    @property
    def language(self):
        return language_settings({"name": self.name})


@dataclass(frozen=True)
class Costly(Agent):
    """Every answer is the demonstrated action, and costs `usage`."""

    usage: Usage

    def answer_episodes(self, episodes):
        return [[Answer("", step.action, usage=self.usage) for step in one.steps] for one in episodes]

    def act(self, goal, history, screen):
        raise AssertionError("whole episodes are asked for")


def evaluated(folder, name="element_index", usage=Usage()):  # noqa: B008 (frozen)
    """(scores, terminal, tables of the page by kind, the text of the page)"""
    shards = tiny.write_shards(folder / "shards", EPISODES, "test")
    printed, settings = StringIO(), Numbering(prepared=Costly(usage), name=name)
    benchmark = Benchmark(shards=shards, split="test", dialect="d_pot")
    scores = evaluate(settings, benchmark, folder / "out", Console(file=printed, width=120), controls=["no_history"])
    assert read_checked(folder / "out/metrics.json", "") == scores
    page = Page((folder / "out/report.html").read_text())
    return scores, printed.getvalue(), {one[0].get("data-kind"): one for one in page.tables}, page.text


def test_a_language_that_numbers_elements_reports_its_reach(tmp_path):
    scores, terminal, tables, text = evaluated(tmp_path)
    nearest = scores["nearest_element"]
    assert nearest["about"]["gold_taps"] == {"taps": 3, "on_no_element": 1}
    # The tap beside the elements is written as the centre of the nearest one: by the strict rule another place.
    assert nearest["strict"]["overall"]["step_match"] == pytest.approx(100 * 4 / 5)
    assert set(nearest["scorers"]) == {"official", "strict", "d_pot"}
    fact = "1 of 3 demonstrated ones (33.3 %)"
    assert f"taps on no element: {fact}" in terminal and "nearest element" in terminal
    assert fact in text
    assert [row[0] for row in tables["by-set"][2].values()][-2:] == [["nearest element"], ["episodes, steps"]]


def test_other_languages_have_no_such_run(tmp_path):
    scores, terminal, _, text = evaluated(tmp_path, "binned")
    assert list(scores) == ["trained", "no_history", "blind_ceiling"]
    assert "no element" not in terminal + text
    assert "cost" not in scores["trained"]
    assert "Cost" not in terminal + text


def test_the_reach_is_what_encoding_and_decoding_leaves_of_the_demonstration():
    gold = episode("a", "general", [BESIDE, Action.tap(0.05, 0.1), Action.swipe((0.9, 0.4), (0.3, 0.4))], (TOP, BOTTOM))
    rows = written_in(ElementIndexLanguage(), gold)
    assert [row.predicted for row in rows] == [Action.tap(0.05, 0.1)] * 2 + [Action.swipe((0.8, 0.5), (0.2, 0.5))]
    assert [row.box for row in rows] == [TOP.box, TOP.box, None]
    assert taps_on_no_element(gold) == {"taps": 2, "on_no_element": 1}
    bare = episode("a", "general", [BESIDE])  # a screen without elements: the language writes the point
    assert written_in(ElementIndexLanguage(), bare)[0].predicted == BESIDE
    assert taps_on_no_element(bare) == {"taps": 1, "on_no_element": 1}


def test_a_constant_answer_has_no_box_of_the_agent():
    """With it, the dialect d_pot judged the agent's element in place of the constant tap."""
    (gold,) = episode("a", "general", [Action.tap(0.05, 0.05)], (TOP, BOTTOM))
    (right,) = answered([replace(gold, box=TOP.box)], [gold.gold])
    (constant,) = constant_predictions([right], Action.tap(0.95, 0.95))
    assert not verdicts(constant, ["d_pot"])["d_pot"][0]


def test_costs_are_means_over_episodes_in_metrics_terminal_and_page(tmp_path):
    scores, terminal, tables, _ = evaluated(tmp_path, "binned", Usage(1000, 10, 2, 0.5))
    expected = {"tokens_read": 2500, "tokens_written": 25, "calls": 5, "seconds": 1.25}  # of 4 steps and of 1
    assert scores["trained"]["cost"] == scores["no_history"]["cost"] == expected
    assert scores["trained"]["cost_a_step"] == {"tokens_read": 1000, "tokens_written": 10, "calls": 2, "seconds": 0.5}
    assert "cost" not in scores["blind_ceiling"]
    assert "Cost an episode" in terminal and "2,500" in terminal
    _, heads, rows = tables["cost"]
    assert [head[0] for head in heads] == ["tokens read", "tokens written", "calls", "seconds"]
    assert [cell[0] for cell in rows[0]] == ["prepared", "2,500", "25", "5.0", "1.2"]


def test_a_cost_that_is_not_reported_has_an_empty_cell(tmp_path):
    scores, _, tables, _ = evaluated(tmp_path, "binned", Usage(1000, 10))
    assert scores["trained"]["cost"] == {"tokens_read": 2500, "tokens_written": 25, "calls": None, "seconds": None}
    assert [cell[0] for cell in tables["cost"][2][0]] == ["prepared", "2,500", "25", "–", "–"]


def test_an_episode_with_an_unknown_cost_is_left_out_of_the_mean(tmp_path):
    usages = [Usage(10, 1, 1, 1.0), Usage(30, 3, 1, 1.0), Usage(5, 5, 1, 1.0), Usage()]
    rows = episode("a", "general", [BESIDE] * 2) + episode("b", "general", [BESIDE] * 2)
    write_predictions(tmp_path / "p", [replace(row, usage=usage) for row, usage in zip(rows, usages, strict=True)])
    assert cost_per_episode(tmp_path / "p") == {"tokens_read": 40, "tokens_written": 4, "calls": 2, "seconds": 2}
    assert cost_per_step(tmp_path / "p") == {"tokens_read": 15, "tokens_written": 3, "calls": 1, "seconds": 1}


def test_an_agent_that_reads_elements_has_no_reach_by_the_elements_of_the_data(tmp_path, monkeypatch):
    """It numbers other elements than those of the data set."""
    fact = {"elements of screens": "read from pixels"}
    monkeypatch.setattr("vlm_agent.evaluation.offline.run.elements_fact", lambda identity: fact)
    scores, terminal, _, text = evaluated(tmp_path)
    assert "nearest_element" not in scores
    assert "taps on no element" not in terminal + text
