"""studies/vision_tasker/inputs: inputs that differ in the screen alone, and the score of the next element."""

from argparse import Namespace
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.agents.understood import KnownScreens, as_parts

from studies.ablation import runs
from studies.vision_tasker.inputs import arms, data
from studies.vision_tasker.inputs.arms import INPUTS, agent_of, run_of
from studies.vision_tasker.inputs.data import SIZE
from studies.vision_tasker.inputs.figures import (
    FIGURES,
    PAIRS,
    differences,
    next_element,
    tap_differences,
    tapped_screens,
)
from vlm_agent.agents.vision_tasker import VisionTaskerSettings
from vlm_agent.cli.parser import keys_in, make_parser, parse
from vlm_agent.episodes import Action
from vlm_agent.evaluation.predictions import predictions_for, write_predictions
from vlm_agent.simulator.demonstrations import simulate_episode

OPTIONS = Namespace(steps=None, episodes=3, data=Path("data"), output=Path("out"), limit=1)


@pytest.fixture(scope="module")
def episode():
    return simulate_episode(0, "test", SIZE)[0]


@pytest.fixture
def scored(tmp_path, episode):
    """The figure of answers, a step each."""

    def scored(actions):
        run = run_of("html given", 0, Namespace(**vars(OPTIONS) | {"output": tmp_path}))
        run.evaluation.mkdir(parents=True)
        rows = predictions_for(episode, [""] * len(episode), actions)
        write_predictions(run.evaluation / "predictions.parquet", rows)
        return next_element(run)

    return scored


def test_prompts_differ_in_the_screen_alone(episode):
    prompts = {}
    for name, shown in INPUTS.items():
        content = agent_of(shown, OPTIONS.output) | {"endpoint": "http://localhost:1", "model": "m"}
        agent = replace(
            VisionTaskerSettings(**content).load(), reader=KnownScreens(as_parts(episode.steps[0].elements))
        )
        opening, message = agent.messages(episode.goal, [], agent.show(episode.steps[0].screen), None)
        prompts[name] = (opening["content"].split("\n\n"), message["content"].split("\n\n"))
        assert not agent.shows_history
    assert prompts["html read"] == prompts["html given"]
    for one, other in zip(prompts["words read"], prompts["html given"], strict=True):
        assert one[0] == other[0] and one[-1] == other[-1] and one != other


def test_every_input_has_a_folder_of_its_own_and_those_of_a_seed_share_a_model():
    runs = [run_of(name, seed, OPTIONS) for name in INPUTS for seed in (0, 1)]
    assert len({run.folder for run in runs}) == len(runs)
    assert len({(run.seed, run.trained) for run in runs}) == len({run.trained for run in runs}) == 2
    assert len({(run.recipe, run.keys, run.data, run.chats) for run in runs}) == 1


def test_every_command_of_a_run_has_known_options(monkeypatch, tmp_path):
    commands = []

    def read(*words):
        words = [str(word) for word in words]
        options = parse(make_parser(words[0]), words)
        options.check_options(options)
        commands.append((words[0], keys_in(options)))

    @contextmanager
    def served(*_):
        yield "http://localhost:1/v1", "m"

    monkeypatch.setattr(runs, "command", read)
    monkeypatch.setattr(data, "command", read)
    monkeypatch.setattr(arms, "command", read)
    monkeypatch.setattr(arms, "served_model", served)
    monkeypatch.setattr(arms, "make_data", lambda *_: None)
    monkeypatch.setattr(arms, "read_texts", lambda *_: None)
    monkeypatch.setattr(arms, "read_online", lambda _: {})
    run = run_of("html given", 0, Namespace(**vars(OPTIONS) | {"output": tmp_path}))
    run.complete_files()
    run._play(2)
    assert [name for name, _ in commands] == [*["chats"] * len(INPUTS), "train", "evaluate", "evaluate"]
    assert commands[len(INPUTS)][1]["data.chats"] == str(run.chats)


def test_the_experts_own_actions_reach_every_next_element(scored, episode):
    found = scored([step.action for step in episode.steps])
    assert (found["share"], found["right"]) == (100.0, found["taps"])
    assert 0 < found["taps"] <= sum(step.action.is_tap for step in episode.steps)


@pytest.mark.parametrize("action", [None, Action.press("back"), Action.tap(0.0, 0.0)])
def test_no_action_another_kind_and_a_tap_elsewhere_are_wrong(scored, episode, action):
    assert scored([action] * len(episode))["right"] == 0


def test_a_tap_beside_the_experts_on_the_same_widget_is_right(scored, episode):
    truths = {int(truth.name.partition("-")[2]): truth for truth in tapped_screens(1)}
    actions = []
    for number, step in enumerate(episode.steps):
        action = step.action
        if number in truths:
            truth = truths[number]
            left, top, right, bottom = dict(truth.targets)[truth.key]
            action = Action.tap((0.7 * top + 0.3 * bottom) / SIZE[0], (0.7 * left + 0.3 * right) / SIZE[1])
            assert action != step.action
        actions.append(action)
    assert scored(actions)["share"] == 100.0


def test_differences_are_those_of_the_inputs_that_ran():
    figures = {name: {0: dict.fromkeys(FIGURES, float(n))} for n, name in enumerate(INPUTS)}
    assert [(row["better"], row["worse"]) for row in differences(figures)] == list(PAIRS)
    assert differences({"words read": figures["words read"]}) == []


def test_right_taps_are_compared_over_episodes_as_means_over_seeds():
    words = [{"a": "11", "b": "1", "c": "0"}, {"a": "11", "b": "0", "c": "0"}]
    html = [{"a": "10", "b": "1", "c": "0"}, {"a": "00", "b": "1", "c": "1"}]
    (row,) = tap_differences({"words read": words, "html read": html})
    assert (row["better"], row["worse"]) == ("words read", "html read")
    assert row["difference"] == 12.5  # 5 and 4 of 8
    low, high = row["interval"]
    assert low < 12.5 < high
    assert tap_differences({"words read": words}) == []
    (row,) = tap_differences({"words read": words, "html read": words})
    assert (row["difference"], row["interval"]) == (0.0, None)
