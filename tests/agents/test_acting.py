"""An agent acts on a phone: what it is told, when it ends, and that the trace tells all of it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

from vlm_agent.agents import Answer
from vlm_agent.agents.acting import Limits, act
from vlm_agent.agents.guard import Guard
from vlm_agent.datasets.trace_writer import TraceWriter
from vlm_agent.datasets.traces import Heading, read_trace
from vlm_agent.devices.errors import ActionInDoubtError, DeviceLostError
from vlm_agent.episodes import Action

TAPS = [Action.tap(0.1 * number, 0.5) for number in range(1, 9)]
FREELY = Guard(allow_purchases=True)


@dataclass
class Teller:
    """Says these texts in turn; a text that is in `actions` means that action. Keeps what it was shown."""

    actions: list[Action | None]
    shown: list[tuple] = field(default_factory=list)

    def act(self, goal, history, screenshot):
        self.shown.append((goal, list(history), screenshot))
        action = self.actions[min(len(self.shown), len(self.actions)) - 1]
        return Answer(f"answer {len(self.shown)}", action, tokens=(100, 3))


@dataclass
class Phone:
    """Shows a number that counts what was done, unless it is `frozen`; `faults` are raised by the actions of these
    numbers, before or after they are done."""

    frozen: bool = False
    faults: dict[int, Exception] = field(default_factory=dict)
    done: list[Action] = field(default_factory=list)
    activity: str = "org.shop/.Home"

    def screenshot(self):
        return np.full((40, 20, 3), 0 if self.frozen else len(self.done), np.uint8)

    def elements(self):
        return None

    def perform(self, action):
        self.done.append(action)
        if (fault := self.faults.get(len(self.done))) is not None:
            raise fault


def run(folder, agent, phone, limits=Limits(), guard=FREELY, **options):  # noqa: B008 (frozen)
    with TraceWriter(folder, Heading("1", "open the settings", "teller", "test")) as trace:
        return act(agent, phone, "open the settings", trace, guard, limits, **options)


def outcomes(folder):
    return [step.outcome for step in read_trace(folder).steps]


def test_it_sees_what_was_done_so_far_and_ends_with_its_word(tmp_path):
    agent, phone = Teller([*TAPS[:2], Action.complete()]), Phone()
    ending = run(tmp_path / "trace", agent, phone)
    assert (ending.reason, ending.steps, ending.is_declared) == ("complete", 3, True)
    assert ending.tokens == (300, 9)
    assert phone.done == [*TAPS[:2], Action.complete()]
    goal, history, screen = agent.shown[2]
    assert goal == "open the settings"
    assert [step.action for step in history] == TAPS[:2]
    assert [step.screenshot[0, 0, 0] for step in history] == [0, 1]
    assert screen[0, 0, 0] == 2


def test_the_trace_is_the_episode_that_was_done(tmp_path):
    agent = Teller([TAPS[0], None, TAPS[1], Action.complete()])
    run(tmp_path / "trace", agent, Phone())
    trace = read_trace(tmp_path / "trace")
    assert [step.outcome for step in trace.steps] == ["done", "unparsed", "done", "done"]
    assert [step.said for step in trace.steps] == [f"answer {number}" for number in range(1, 5)]
    assert trace.end["end"] == "complete"
    assert trace.end["unparsed"] == 1
    episode = trace.episode()
    assert [step.action for step in episode.steps] == [*TAPS[:2], Action.complete()]
    assert [step.screenshot[0, 0, 0] for step in episode.steps] == [0, 1, 2]
    assert {step.activity for step in episode.steps} == {"org.shop/.Home"}


@pytest.mark.parametrize(("steps", "performed"), [(1, 1), (5, 5)])
def test_it_is_stopped_after_so_many_steps(tmp_path, steps, performed):
    phone = Phone()
    ending = run(tmp_path / "trace", Teller(TAPS), phone, Limits(steps=steps))
    assert (ending.reason, ending.steps, len(phone.done)) == ("step_limit", steps, performed)


def test_the_same_action_on_the_same_screen_is_a_loop_the_third_time(tmp_path):
    phone = Phone(frozen=True)
    ending = run(tmp_path / "trace", Teller([TAPS[0], TAPS[1]] * 9), phone, Limits(repeats=3))
    assert ending.reason == "loop"
    assert phone.done == [TAPS[0], TAPS[1]] * 2
    assert outcomes(tmp_path / "trace")[-1] == "withheld"


def test_the_same_action_on_other_screens_is_no_loop(tmp_path):
    assert run(tmp_path / "trace", Teller([TAPS[0]]), Phone(), Limits(steps=9)).reason == "step_limit"


def test_a_clock_in_the_status_bar_makes_no_screen_another_one(tmp_path):
    class Clock(Phone):
        def screenshot(self):
            screen = np.zeros((40, 20, 3), np.uint8)
            screen[0] = len(self.done)
            return screen

    assert run(tmp_path / "trace", Teller([TAPS[0]]), Clock(), Limits(steps=9)).reason == "loop"


def test_answers_that_are_no_action_end_it_when_they_do_not_stop(tmp_path):
    phone = Phone()
    ending = run(tmp_path / "a", Teller([None, None, TAPS[0], None, None, None]), phone, Limits(unparsed=3))
    assert (ending.reason, ending.unparsed, ending.steps) == ("unparsed", 5, 6)
    assert phone.done == [TAPS[0]]


def test_an_action_in_doubt_is_not_done_again_and_the_agent_decides_by_the_next_screen(tmp_path):
    phone = Phone(faults={2: ActionInDoubtError("cut")})
    agent = Teller([*TAPS[:3], Action.complete()])
    ending = run(tmp_path / "trace", agent, phone)
    assert (ending.reason, ending.in_doubt) == ("complete", 1)
    assert phone.done == [*TAPS[:3], Action.complete()]
    assert outcomes(tmp_path / "trace") == ["done", "in_doubt", "done", "done"]
    assert [step.action for step in agent.shown[2][1]] == TAPS[:2]


def test_a_phone_that_is_lost_ends_it_with_its_message_and_a_whole_trace(tmp_path):
    with pytest.raises(DeviceLostError, match="went away"):
        run(tmp_path / "trace", Teller(TAPS), Phone(faults={2: DeviceLostError("it went away")}))
    trace = read_trace(tmp_path / "trace")
    assert trace.end == {"end": "error", "message": "DeviceLostError: it went away"}
    assert [step.outcome for step in trace.steps] == ["done", "failed"]
    assert len(trace.episode()) == 1


def test_ctrl_c_ends_the_trace_too(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "trace", Teller(TAPS), Phone(faults={2: KeyboardInterrupt()}))
    trace = read_trace(tmp_path / "trace")
    assert trace.end["end"] == "stopped"
    assert trace.steps[1].outcome == "in_doubt"


def test_whoever_watches_can_stop_it_before_an_action(tmp_path):
    phone, shown = Phone(), []

    def watch(step):
        shown.append(step)
        return len(shown) == 2

    assert run(tmp_path / "trace", Teller(TAPS), phone, watch=watch).reason == "stopped"
    assert phone.done == TAPS[:1]
    assert all(step.screen.is_file() for step in shown)
    assert outcomes(tmp_path / "trace") == ["done", "withheld"]


def test_what_the_guard_refuses_is_not_done(tmp_path):
    phone = Phone()
    ending = run(tmp_path / "trace", Teller(TAPS), phone, guard=Guard(apps=["org.mail"]))
    assert ending.reason == "outside_apps"
    assert "org.shop/.Home" in ending.message
    assert phone.done == []


_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_acting import Phone, Teller, TAPS, run
class Killer(Phone):
    def perform(self, action):
        super().perform(action)
        if len(self.done) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
run(Path({folder!r}), Teller(TAPS), Killer())
"""


def test_a_kill_loses_nothing_of_what_was_done(tmp_path):
    script = _KILLED.format(here=os.path.dirname(__file__), folder=str(tmp_path / "trace"))
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    trace = read_trace(tmp_path / "trace")
    assert trace.end is None
    assert [step.outcome for step in trace.steps] == ["done", "done", "in_doubt"]
    assert [step.action for step in trace.episode().steps] == TAPS[:3]


def test_what_an_agent_says_cannot_break_the_trace(tmp_path):
    said = 'line\nbreak "quote" \ud800 \x1b[2J \u202e ' + "x" * 20_000
    agent = Teller([None])
    agent.act = lambda *_: Answer(said, None)
    run(tmp_path / "trace", agent, Phone())
    trace = read_trace(tmp_path / "trace")
    assert len(trace.steps) == 3
    assert trace.steps[0].said == said[:10_000].replace("\ud800", "?")
    assert len((tmp_path / "trace" / "steps.jsonl").read_bytes().splitlines()) == 7
    assert json.loads((tmp_path / "trace" / "trace.json").read_text())["goal"] == "open the settings"
