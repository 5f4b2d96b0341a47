"""An agent on AndroidWorld's interface: every action, both points of a swipe, the history and the end."""

import importlib
import sys

import pytest
from helpers.pages.environments import run_example
from helpers.phones import android_world

from vlm_agent.action_languages import default_language
from vlm_agent.agents import Agent, Answer, NoAnswerError
from vlm_agent.agents.scripted import ScriptedAgent, ScriptedSettings
from vlm_agent.episodes import KINDS_WITH_TEXT, Action, ActionKind
from vlm_agent.errors import UserError

MODULE = "vlm_agent.environments.android_world"
SIZE = (1080, 2400)


@pytest.fixture
def world():
    return android_world.SimulatedWorld("general/train/7")


@pytest.fixture
def ours(monkeypatch, world):
    android_world.install(monkeypatch, world)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.tap(0.5, 0.25), {"action_type": "click", "x": 270, "y": 1200}),
        (Action.tap(1.0, 1.0), {"action_type": "click", "x": 1079, "y": 2399}),
        (Action.long_press(0, 0), {"action_type": "long_press", "x": 0, "y": 0}),
        (Action.type_text("tea"), {"action_type": "input_text", "text": "tea"}),
        (Action.open_app("Clock"), {"action_type": "open_app", "app_name": "Clock"}),
        (Action.answer("7"), {"action_type": "answer", "text": "7"}),
        (Action.press("back"), {"action_type": "navigate_back"}),
        (Action.press("home"), {"action_type": "navigate_home"}),
        (Action.press("enter"), {"action_type": "keyboard_enter"}),
        (Action.wait(), {"action_type": "wait"}),
        (Action.complete(), {"action_type": "status", "goal_status": "complete"}),
        (Action.impossible(), {"action_type": "status", "goal_status": "infeasible"}),
        (
            Action.swipe((0.5, 0.9), (0.5, 0.1)),
            {"action_type": "swipe", "direction": "right", "touch_xy": (972, 1200), "lift_xy": (108, 1200)},
        ),
        (
            Action.swipe((0.8, 0.5), (0.25, 0.5)),
            {"action_type": "swipe", "direction": "up", "touch_xy": (540, 1920), "lift_xy": (540, 600)},
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Action) else "",
)
def test_an_action_keeps_its_point_its_text_or_both_points(ours, action, expected):
    sent = ours.json_action(action, SIZE)
    assert {key: value for key, value in vars(sent).items() if value is not None} == expected


def test_only_the_list_of_recent_apps_has_no_counterpart(ours):
    for kind in ActionKind:
        points = {name: (0.5, 0.5) for name in ("touch_yx", "lift_yx")[: kind.facts.points]}
        sent = ours.json_action(Action(kind, text="Clock" if kind in KINDS_WITH_TEXT else "", **points), SIZE)
        assert (sent is None) == (kind is ActionKind.RECENTS), kind


@pytest.mark.parametrize("name", ["", "x; reboot", "$(reboot)", "a && b", "'"])
def test_a_name_that_a_shell_might_read_is_no_app(ours, name):
    assert ours.json_action(Action.open_app(name), SIZE) is None


def test_an_action_that_androidworld_refuses_is_a_failed_turn(ours, world, monkeypatch):
    def refuse(action):
        raise ValueError("AndroidWorld refuses it")

    monkeypatch.setattr(world, "execute_action", refuse)
    agent = ours.PhoneAgent(world, ScriptedAgent([Action.tap(0.5, 0.5), Action.complete()]), transition_pause=None)
    agent.reset()
    assert [agent.step(world.goal).done for _ in range(2)] == [False, True]
    assert [turn.failed for turn in agent._history] == [True, False]


def test_the_same_question_is_not_asked_again_after_an_answer_that_is_no_action(ours, world):
    class Silent(Agent):
        steps = ()

        def act(self, goal, history, screen):
            self.steps += (screen.step,)
            return Answer("hm", None)

    agent = ours.PhoneAgent(world, silent := Silent(), transition_pause=None)
    agent.reset()
    assert [agent.step(world.goal).done for _ in range(2)] == [False, True]
    assert silent.steps == (0, 1)


@pytest.mark.parametrize("address", ["general/train/7", "google_apps/train/4", "install/train/2"])
def test_the_experts_actions_reach_the_goal_through_androidworld(ours, address):
    world = android_world.SimulatedWorld(address)
    script = world.solution
    agent = ours.PhoneAgent(world, ScriptedAgent(script), transition_pause=None)
    agent.reset(go_home=True)
    results = [agent.step(world.goal) for _ in script]
    assert world.is_successful(world) == 1.0 and world.hidden == 1
    assert [one.done for one in results] == [False] * (len(script) - 1) + [True]
    assert len(world.executed) == len(script) - 1  # the end is not executed


class Recorder(Agent):
    """Answers with `answers` in order and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def act(self, goal, history, screen):
        self.asked.append((goal, history, screen))
        return self.answers.pop(0)


def test_the_agent_sees_elements_and_what_its_actions_did(ours, world):
    recents, home = Answer("recents", Action.recents()), Answer("home", Action.press("home"))
    agent = Recorder(home, recents, Answer("?", None), home)
    phone = ours.PhoneAgent(world, agent, transition_pause=None)
    phone.reset()
    results = [phone.step("goal") for _ in range(4)]
    assert [one.data["action"] is None for one in results] == [False, True, True, False]
    assert not any(one.done for one in results)
    first, last = agent.asked[0][2], agent.asked[3]
    shown = [one for one in world.phone.elements() if one.text]
    assert [one.text for one in last[2].elements] == [one.text for one in shown]
    assert last[2].elements[0].box == pytest.approx(shown[0].box)
    assert [(turn.failed, turn.changed) for turn in last[1]][1] == (True, None)
    phone.reset()
    agent.answers.append(Answer("", None, failed="no server"))
    with pytest.raises(NoAnswerError, match="no server"):
        phone.step("goal")
    assert agent.asked[-1][1] == () and agent.asked[-1][2].episode != first.episode


def test_the_example_of_androidworld_runs(ours, world, capsys, monkeypatch):
    expert = ScriptedSettings(actions=[default_language().encode(one) for one in world.solution])
    monkeypatch.setattr("vlm_agent.agents.loading.agent_settings", lambda _: expert)
    run_example("AndroidWorld")
    assert capsys.readouterr().out.strip() == "1.0"


def test_without_androidworld_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "android_world", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(UserError, match=r"pip install .*android_world"):
        importlib.import_module(MODULE)
