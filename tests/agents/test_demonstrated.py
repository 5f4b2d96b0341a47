"""What agents may read of a recorded episode: never a text that describes a later screen."""

from collections.abc import Mapping
from dataclasses import replace

from vlm_agent.agents import Agent, Answer, answer_step_by_step, demonstrated
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.episodes import Action, Episode, Step, recorded_screen

STEPS = tuple(
    Step(
        None,
        Action.press("home"),
        notes={"screen": f"screen {n}", "think": f"think {n}", "action": f"action {n}", "result": f"result {n}"},
    )
    for n in range(3)
)
EPISODE = Episode("e", "s", "goal", STEPS)


def texts_of(episode: Episode) -> list[Mapping[str, str]]:
    return [recorded_screen(episode, number).notes for number in range(len(episode))]


def test_a_recorded_screen_has_its_description_and_the_result_of_the_previous_action():
    assert texts_of(EPISODE) == [
        {"screen": "screen 0"},
        {"screen": "screen 1", "result": "result 0"},
        {"screen": "screen 2", "result": "result 1"},
    ]


def test_texts_that_are_not_recorded_are_absent_and_the_first_screen_has_no_result():
    without = Step(None, Action.complete())
    assert texts_of(replace(EPISODE, steps=(STEPS[0], without, without, STEPS[1]))) == [
        {"screen": "screen 0"},
        {"result": "result 0"},
        {},
        {"screen": "screen 1"},
    ]


class Recorder(Agent):
    """Answers nothing, and keeps what it read."""

    def __init__(self):
        self.read = []

    def act(self, goal, history, screen):
        self.read.append(([(turn.screen.notes, turn.notes) for turn in history], screen.notes))
        return Answer("", None)


def test_an_agent_reads_the_thoughts_of_earlier_steps_only():
    agent = Recorder()
    answer_step_by_step(agent, [EPISODE])
    turns, screen = agent.read[2]
    thoughts = [{"think": f"think {n}", "action": f"action {n}"} for n in range(2)]
    assert turns == [(texts, of_step) for texts, of_step in zip(texts_of(EPISODE), thoughts, strict=False)]
    assert screen == texts_of(EPISODE)[2]
    assert "result 2" not in str(agent.read) and "think 2" not in str(agent.read)
    assert [turn.notes for turn in demonstrated(replace(EPISODE, steps=(replace(STEPS[0], notes={}),)), 1)] == [{}]


def test_without_history_the_result_of_the_previous_action_is_hidden():
    agent = Recorder()
    ControlledAgent(agent, CONTROLS["no_history"]).act("goal", demonstrated(EPISODE, 2), recorded_screen(EPISODE, 2))
    assert agent.read == [([], {"screen": "screen 2"})]
