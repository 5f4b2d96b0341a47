"""An agent sees which step it answers: the episode's id and the number of the step."""

from dataclasses import dataclass, field, replace

import pytest
from helpers import tiny

from vlm_agent.agents import Agent, Answer
from vlm_agent.agents.agent import demonstrated, episode_of
from vlm_agent.agents.controls import CONTROLS, controlled, visible_parts
from vlm_agent.agents.read_screens import ReadingAgent, ScreenReader
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, act
from vlm_agent.episodes import Action, recorded_screen
from vlm_agent.screens.understand import Readers
from vlm_agent.simulator.phone import SimulatedPhone

EPISODES = [tiny.episode(number) for number in range(2)]
ALL = [(episode.id, number) for episode in EPISODES for number in range(len(episode))]


@dataclass
class Watching(Agent):
    """Records the step of every call, and those of its history."""

    seen: list = field(default_factory=list)
    history: list = field(default_factory=list)

    def act(self, goal, history, screen):
        self.seen.append((screen.episode, screen.step))
        self.history.append([turn.screen.step for turn in history])
        return Answer("", Action.tap(0.1 * len(self.seen), 0.5))


@pytest.mark.parametrize("control", [None, *CONTROLS])
@pytest.mark.parametrize("reads", [False, True])
def test_recorded_steps_are_identified_also_under_every_control_and_with_read_elements(control, reads, monkeypatch):
    agent = watching = Watching()
    if reads:
        monkeypatch.setattr(ScreenReader, "screen", lambda self, screen: replace(screen, elements=()))
        agent = ReadingAgent(agent, ScreenReader(Readers()))
    agent = agent if control is None else controlled(agent, CONTROLS[control])
    agent.answer_episodes(EPISODES)
    assert sorted(watching.seen) == ALL
    if control != "no_history":
        assert watching.history == [list(range(number)) for _, number in watching.seen]
    watching.seen.clear()
    for episode in EPISODES:
        for number in range(len(episode)):
            agent.act(episode.goal, demonstrated(episode, number), recorded_screen(episode, number))
    assert watching.seen == ALL


def test_a_batched_agent_gets_the_number_of_the_first_step_of_a_part():
    parts = visible_parts(EPISODES[0], CONTROLS["no_history"])
    assert [(part.id, part.first_step, len(part)) for part in parts] == [("0", number, 1) for number in range(5)]
    twice = [two.first_step for part in parts for two in visible_parts(part, CONTROLS["no_history"])]
    assert twice == list(range(5))


def test_history_and_screen_as_an_episode_keep_the_number():
    for number in (0, 3):
        screen = recorded_screen(EPISODES[0], number)
        for history in ([], demonstrated(EPISODES[0], number)):
            episode = episode_of("go", history, screen)
            last = recorded_screen(episode, len(episode) - 1)
            assert (last.episode, last.step) == ("0", number)


def test_on_a_phone_the_step_is_that_of_the_trace(tmp_path):
    watching = Watching()
    with TraceWriter(tmp_path / "trace", Heading("of this trace", "go", "watching", "phone")) as trace:
        act(watching, SimulatedPhone(0), "go", trace, Guard(), Limits(steps=3))
    assert watching.seen == [("of this trace", number) for number in range(3)]
    assert watching.history == [[], [0], [0, 1]]
