"""tests/benchmarks/planner_chats.py: what teaches a model every mode of the planner."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import tiny

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from planner_chats import chats_of, main
from simulated_thoughts import demonstrations

from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.modes import MODES
from vlm_agent.agents.dynamic_planning.prompts import PROMPTS
from vlm_agent.agents.dynamic_planning.reading import read_verdict, split_thought
from vlm_agent.agents.llm.replies import read_plan
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError
from vlm_agent.training.data.chats.reading import Chats

LANGUAGE = ElementIndexLanguage()
EPISODES = [Episode(str(number), "general", goal, steps) for number, (goal, steps) in enumerate(demonstrations(6))]
STEPS = [step for episode in EPISODES for step in episode.steps]
ACTIONS = [LANGUAGE.encode(step.action, step.screen) for step in STEPS]


def replies(mode: str) -> list[tuple[str, str]]:
    """(opening, reply)"""
    return [(chat["messages"][0]["content"], chat["messages"][-1]["content"]) for chat in chats_of(mode, EPISODES)]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_the_recorded_action_of_every_step(mode):
    written = [
        split_thought(reply)[1]
        for opening, reply in replies(mode)
        if "The actions" in opening or "choose the one" in opening
    ]
    assert written == ACTIONS


@pytest.mark.parametrize("mode", ["static", "dynamic", "d_pot"])
def test_plans_are_those_of_the_shards_and_are_read_as_plans(mode):
    plans = [read_plan(reply, mode == "d_pot") for opening, reply in replies(mode) if "Write a plan" in opening]
    steps = [episode.steps[0] for episode in EPISODES] if mode == "static" else STEPS
    assert [plan.lines for plan in plans] == [step.plan.plan for step in steps]
    if mode == "d_pot":
        assert [plan.step for plan in plans] == [step.plan.step for step in steps]


@pytest.mark.parametrize("mode", MODES)
def test_the_replies_do_not_depend_on_the_words_of_the_prompts(tmp_path, mode):
    content = yaml.safe_load(PROMPTS.read_text())
    for words in ("Write a plan", '"right"', '"step"', "Describe what is to be done", "Thought:"):
        content = _without(words, content)
    own = tmp_path / "prompts.yaml"
    own.write_text(yaml.safe_dump(content))
    feedback = {"feedback": "own"} if MODES[mode].feedback else {}
    settings = {"mode": mode, "endpoint": "http://localhost:1", "model": "none", "screen": "html"} | feedback
    (ours, theirs) = (
        [chat[-1]["content"] for chat in DynamicPlanningSettings(**settings, **prompts).lessons(EPISODES[:2])]
        for prompts in ({}, {"prompts": str(own)})
    )
    assert ours == theirs


def _without(words: str, content):
    if isinstance(content, dict):
        return {key: _without(words, value) for key, value in content.items()}
    return content.replace(words, "…")


def test_a_judge_is_taught_both_verdicts_and_a_wrong_action_never():
    verdicts = [read_verdict(reply)[0] for opening, reply in replies("reflexion") if '{"right"' in opening]
    assert len(verdicts) == len(STEPS)
    assert {True, False} == set(verdicts)


def test_a_step_without_a_plan_is_named():
    bare = replace(EPISODES[0], steps=tuple(replace(step, plan=None) for step in EPISODES[0].steps))
    with pytest.raises(DatasetError, match="step 0 of episode 0 has no plan; write shards with `vlm-agent simulate"):
        chats_of("none", [bare])


def test_the_command_writes_chats_that_training_reads(tmp_path, capsys):
    grey = [replace(step, screenshot=np.full((8, 4, 3), 128, np.uint8)) for step in EPISODES[0].steps]
    shards = tiny.write_shards(tmp_path / "shards", [replace(EPISODES[0], steps=tuple(grey))])
    for name in ("one", "two"):
        assert main(["--shards", str(shards), "--output", str(tmp_path / name), "--modes", "d_pot", "react"]) == 0
    assert len(Chats(tmp_path / "one")) == 3 * len(EPISODES[0])
    one, two = ([file.read_bytes() for file in sorted((tmp_path / name).iterdir())] for name in ("one", "two"))
    assert one == two
    assert json.loads(one[0].splitlines()[0])["messages"][-1]["role"] == "assistant"
    assert main(["--shards", str(tiny.write_shards(tmp_path / "bare", [tiny.episode()])), "--output", "x"]) == 1
    assert "has no plan" in capsys.readouterr().err


def test_a_limit_takes_episodes_from_the_whole_split(tmp_path):
    """Shards hold one subset after the other."""
    steps = tuple(replace(step, screenshot=np.full((8, 4, 3), 128, np.uint8)) for step in EPISODES[0].steps[:1])
    episodes = [Episode(str(number), "general", f"goal {number}", steps) for number in range(4)]
    shards = tiny.write_shards(tmp_path / "shards", episodes)
    assert main(["--shards", str(shards), "--output", str(tmp_path), "--modes", "none", "--limit", "2"]) == 0
    first, second = (json.loads(line)["messages"] for line in (tmp_path / "none.jsonl").read_text().splitlines())
    assert "goal 0" in str(first)
    assert "goal 2" in str(second)
