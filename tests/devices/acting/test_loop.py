"""The acting loop: the input of the agent, the end of a run, and the completeness of the trace."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from helpers.data.made_episodes import traced_episode

from vlm_agent.agents import Agent, Answer, NoAnswerError, Usage
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading, read_steps, read_trace, reasons_to_exclude
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, act
from vlm_agent.devices.errors import (
    ActionInDoubtError,
    DeviceLostError,
    RefusedError,
    UnknownAppError,
    UntypableTextError,
)
from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import DatasetError
from vlm_agent.files import CHECKSUM, write_checked

TAPS = [Action.tap(0.1 * number, 0.5) for number in range(1, 9)]
FREELY = Guard(allow_purchases=True)
GREY = 50


@dataclass
class ListAgent(Agent):
    """Answers with `actions` in order, repeats the last one, and records its inputs in `inputs`."""

    actions: list[Action | None]
    inputs: list[tuple] = field(default_factory=list)

    def act(self, goal, history, screen):
        self.inputs.append((goal, list(history), screen))
        action = self.actions[min(len(self.inputs), len(self.actions)) - 1]
        return Answer(f"answer {len(self.inputs)}", action, usage=Usage(100, 3, 1))


@dataclass
class Phone:
    """Its screen is grey and shows the number of executed actions, unless it is `frozen`.

    `faults`: number of an action → the exception that it raises after its execution.
    """

    frozen: bool = False
    faults: dict[int, Exception] = field(default_factory=dict)
    done: list[Action] = field(default_factory=list)
    activity: str = "org.shop/.Home"

    def screenshot(self):
        return np.full((40, 20, 3), GREY + (0 if self.frozen else len(self.done)), np.uint8)

    def elements(self):
        return None

    def perform(self, action):
        self.done.append(action)
        if (fault := self.faults.get(len(self.done))) is not None:
            raise fault


class FlickeringPhone(Phone):
    """A phone whose screen changes by itself, as a clock does, so that no two inputs of the agent are equal."""

    seen = 0

    def screenshot(self):
        screen = super().screenshot()
        screen[0, 0] = self.seen = self.seen + 1
        return screen


def run(folder, agent, phone, limits=Limits(), guard=FREELY, **options):  # noqa: B008 (frozen)
    with TraceWriter(folder, Heading("1", "open the settings", "teller", "test")) as trace:
        return act(agent, phone, "open the settings", trace, guard, limits, **options)


def outcomes(folder):
    return [step.outcome for step in read_trace(folder).steps]


def test_the_agent_gets_its_history_and_declares_the_end(tmp_path):
    agent, phone = ListAgent([*TAPS[:2], Action.complete()]), Phone()
    ending = run(tmp_path / "trace", agent, phone)
    assert (ending.reason, ending.steps, ending.is_declared) == ("complete", 3, True)
    assert (ending.tokens, ending.calls) == ((300, 9), 3)
    assert phone.done == [*TAPS[:2], Action.complete()]
    goal, history, screen = agent.inputs[2]
    assert goal == "open the settings"
    assert [turn.action for turn in history] == TAPS[:2]
    assert [turn.answer.text for turn in history] == ["answer 1", "answer 2"]
    assert [turn.screen.pixels[0, 0, 0] for turn in history] == [GREY, GREY + 1]
    assert screen.pixels[0, 0, 0] == GREY + 2


@pytest.mark.parametrize("frozen", [False, True])
def test_a_turn_says_whether_its_action_changed_the_screen(tmp_path, frozen):
    class Pages(Phone):
        def screenshot(self):
            return 100 * (super().screenshot() - GREY) + GREY

    agent = ListAgent([*TAPS[:2], Action.complete()])
    run(tmp_path / "trace", agent, Pages(frozen=frozen))
    assert [[turn.changed for turn in history] for _, history, _ in agent.inputs] == [
        [], [not frozen], [not frozen] * 2
    ]  # fmt: skip


def test_a_screen_whose_elements_a_phone_fails_to_report_has_none(tmp_path):
    class Video(Phone):
        def elements(self):
            return None if len(self.done) == 1 else (play,)

    play = UiElement((0, 0, 1, 1), "Play")
    agent = ListAgent([*TAPS[:2], Action.complete()])
    assert run(tmp_path / "trace", agent, Video()).reason == "complete"
    assert [screen.elements for _, _, screen in agent.inputs] == [(play,), (), (play,)]
    agent = ListAgent([TAPS[0], Action.complete()])
    run(tmp_path / "other", agent, Phone())
    assert [screen.elements for _, _, screen in agent.inputs] == [None, None]  # a phone that never reports any


def test_a_card_number_in_two_pieces_is_one_text_for_the_guard(tmp_path):
    in_place = (Action.wait(), Action.answer("half of it"))
    for number, (apart, reason) in enumerate((((), "purchase"), (in_place, "purchase"), ((TAPS[0],), "complete"))):
        actions = [Action.type_text("4111 1111"), *apart, Action.type_text("1111 1111"), Action.complete()]
        phone = FlickeringPhone()
        ending = run(tmp_path / str(number), ListAgent(actions), phone, guard=Guard())
        assert ending.reason == reason
        assert ("card number" in ending.message) == (reason == "purchase")


def test_current_and_earlier_screens_have_elements_and_activity(tmp_path):
    class PhoneWithElements(Phone):
        def elements(self):
            return (UiElement((0, 0, 1, 1), f"screen {len(self.done)}"),)

    agent = ListAgent([TAPS[0], Action.complete()])
    run(tmp_path / "trace", agent, PhoneWithElements())
    _, history, screen = agent.inputs[1]
    assert [one.text for one in (*history[0].screen.elements, *screen.elements)] == ["screen 0", "screen 1"]
    assert history[0].screen.activity == screen.activity == "org.shop/.Home"


def test_an_agent_that_fails_to_answer_ends_the_run_and_the_trace_records_it(tmp_path):
    agent = ListAgent([])
    agent.act = lambda *_: Answer("", None, failed="the server is down")
    with pytest.raises(NoAnswerError, match="the server is down"):
        run(tmp_path / "trace", agent, Phone())
    assert read_trace(tmp_path / "trace").end["end"] == "error"


def test_the_trace_is_the_executed_episode(tmp_path):
    agent = ListAgent([TAPS[0], None, TAPS[1], Action.complete()])
    run(tmp_path / "trace", agent, FlickeringPhone())
    trace = read_trace(tmp_path / "trace")
    assert [step.outcome for step in trace.steps] == ["done", "unparsed", "done", "done"]
    assert [step.answer for step in trace.steps] == [f"answer {number}" for number in range(1, 5)]
    assert trace.end["end"] == "complete"
    assert trace.end["unparsed"] == 1
    episode = traced_episode(trace)
    assert [step.action for step in episode.steps] == [*TAPS[:2], Action.complete()]
    assert [step.screenshot[-1, 0, 0] for step in episode.steps] == [GREY, GREY + 1, GREY + 2]
    assert {step.activity for step in episode.steps} == {"org.shop/.Home"}


@pytest.mark.parametrize(("steps", "performed"), [(1, 1), (5, 5)])
def test_a_run_stops_at_the_step_limit(tmp_path, steps, performed):
    phone = Phone()
    ending = run(tmp_path / "trace", ListAgent(TAPS), phone, Limits(steps=steps))
    assert (ending.reason, ending.steps, len(phone.done)) == ("step_limit", steps, performed)


def test_the_third_repetition_of_an_action_on_the_same_screen_is_a_loop(tmp_path):
    phone = Phone(frozen=True)
    ending = run(tmp_path / "trace", ListAgent([TAPS[0], TAPS[1]] * 9), phone, Limits(repeats=3))
    assert ending.reason == "loop"
    assert phone.done == [TAPS[0], TAPS[1]] * 2
    assert outcomes(tmp_path / "trace")[-1] == "withheld"


def test_the_same_action_on_different_screens_is_not_a_loop(tmp_path):
    assert run(tmp_path / "trace", ListAgent([TAPS[0]]), Phone(), Limits(steps=9)).reason == "step_limit"


def test_screens_that_differ_only_in_the_status_bar_are_equal(tmp_path):
    class Clock(Phone):
        def screenshot(self):
            screen = np.zeros((40, 20, 3), np.uint8)
            screen[0] = len(self.done)
            return screen

    assert run(tmp_path / "trace", ListAgent([TAPS[0]]), Clock(), Limits(steps=9)).reason == "loop"


def test_a_run_stops_after_consecutive_answers_that_are_not_actions(tmp_path):
    phone = FlickeringPhone()
    ending = run(tmp_path / "a", ListAgent([None, None, TAPS[0], None, None, None]), phone, Limits(unparsed=3))
    assert (ending.reason, ending.unparsed, ending.steps) == ("unparsed", 5, 6)
    assert phone.done == [TAPS[0]]


def test_the_same_is_not_asked_again_after_an_answer_that_is_not_an_action(tmp_path):
    agent, phone = ListAgent([TAPS[0], None]), Phone()
    ending = run(tmp_path / "trace", agent, phone, Limits(unparsed=3))
    assert (ending.reason, ending.unparsed, ending.steps, len(agent.inputs)) == ("unparsed", 1, 2, 2)
    assert (ending.tokens, ending.calls) == ((200, 6), 2)
    assert ending.message == "the answer was not an action, and the screen is as it was: the same prompt would follow"
    assert read_trace(tmp_path / "trace").end["message"] == ending.message


def test_elements_and_activity_that_change_are_another_question(tmp_path):
    class Loading(Phone):
        asked = 0

        def elements(self):
            self.asked += 1
            return (UiElement((0, 0, 1, 1), "loading" if self.asked == 1 else "loaded"),)

    agent = ListAgent([None, Action.complete()])
    assert run(tmp_path / "trace", agent, Loading()).reason == "complete"


def test_an_action_in_doubt_is_not_repeated(tmp_path):
    phone = Phone(faults={2: ActionInDoubtError("cut")})
    agent = ListAgent([*TAPS[:3], Action.complete()])
    ending = run(tmp_path / "trace", agent, phone)
    assert (ending.reason, ending.in_doubt) == ("complete", 1)
    assert phone.done == [*TAPS[:3], Action.complete()]
    assert outcomes(tmp_path / "trace") == ["done", "in_doubt", "done", "done"]
    assert [(turn.action, turn.in_doubt) for turn in agent.inputs[2][1]] == [(TAPS[0], False), (TAPS[1], True)]


@pytest.mark.parametrize("error", [UnknownAppError, UntypableTextError, RefusedError])
def test_an_action_that_the_phone_refuses_is_a_failed_step_after_which_the_agent_decides(tmp_path, error):
    phone, warnings = Phone(faults={2: error("nothing done")}), []
    agent = ListAgent([TAPS[0], Action.open_app("Gmial"), TAPS[1], Action.complete()])
    ending = run(tmp_path / "trace", agent, phone, warn=warnings.append)
    assert (ending.reason, ending.failed) == ("complete", 1)
    assert warnings == ["Step 2 failed, the phone did not perform it: nothing done"]
    assert [(turn.failed, turn.changed) for turn in agent.inputs[2][1]] == [(False, False), (True, False)]
    assert outcomes(tmp_path / "trace") == ["done", "failed", "done", "done"]
    assert [step.message for step in read_trace(tmp_path / "trace").steps] == ["", "nothing done", "", ""]
    assert [turn.action for turn in agent.inputs[2][1]] == [TAPS[0], Action.open_app("Gmial")]
    assert [step.action for step in traced_episode(read_trace(tmp_path / "trace")).steps] == [
        *TAPS[:2],
        Action.complete(),
    ]


class Secure(Phone):
    """A phone whose second screen forbids pictures of itself: it is black between the bars of the system."""

    def screenshot(self):
        screen = super().screenshot()
        if len(self.done) == 1:
            screen[2:-2] = 0
        return screen


def test_black_pictures_are_named_once_and_marked_and_no_steps_of_the_episode(tmp_path):
    warnings, agent = [], ListAgent([*TAPS[:2], Action.complete()])
    ending = run(tmp_path / "trace", agent, Secure(), warn=warnings.append)
    assert (ending.reason, ending.black) == ("complete", 1)
    assert len(warnings) == 1
    assert warnings[0].startswith("Step 2: the picture of the screen is black")
    trace = read_trace(tmp_path / "trace")
    assert [(step.outcome, step.black) for step in trace.steps] == [("done", False), ("done", True), ("done", False)]
    assert [step.action for step in traced_episode(trace).steps] == TAPS[:1]
    assert reasons_to_exclude(trace.steps) == [None, "black picture", "after a black picture"]
    *steps, rest, more = read_steps(tmp_path / "trace")
    assert [step.step.action for step in steps] == TAPS[:1]
    assert [rest.reason, more.reason] == ["black picture", "after a black picture"]


def test_every_black_picture_is_marked_and_only_the_first_one_named(tmp_path):
    class Dark(Phone):
        def screenshot(self):
            return np.zeros((40, 20, 3), np.uint8)

    warnings = []
    assert run(tmp_path / "trace", ListAgent(TAPS), Dark(), Limits(steps=3), warn=warnings.append).black == 3
    assert len(warnings) == 1
    assert len(traced_episode(read_trace(tmp_path / "trace"))) == 0


@pytest.mark.parametrize("reached", [None, True, False])
def test_the_heading_of_a_trace_says_whether_the_goal_was_reached(tmp_path, reached):
    with TraceWriter(tmp_path, Heading("1", "open the settings", "teller", "test")) as trace:
        assert json.loads((tmp_path / "trace.json").read_text())["reached"] is None
        trace.end("complete")
        trace.judged(reached)
    assert json.loads((tmp_path / "trace.json").read_text())["reached"] is reached
    assert read_trace(tmp_path).heading.reached is reached
    content = json.loads((tmp_path / "trace.json").read_text()) | {"reached": "yes"}
    write_checked(tmp_path / "trace.json", {key: value for key, value in content.items() if key != CHECKSUM})
    with pytest.raises(DatasetError, match="reached is 'yes'"):
        read_trace(tmp_path)


def test_a_lost_phone_ends_the_run_with_its_message_and_a_complete_trace(tmp_path):
    with pytest.raises(DeviceLostError, match="went away"):
        run(tmp_path / "trace", ListAgent(TAPS), Phone(faults={2: DeviceLostError("it went away")}))
    trace = read_trace(tmp_path / "trace")
    assert trace.end == {"end": "error", "message": "DeviceLostError: it went away"}
    assert [step.outcome for step in trace.steps] == ["done", "failed"]
    assert len(traced_episode(trace)) == 1


def test_ctrl_c_completes_the_trace(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "trace", ListAgent(TAPS), Phone(faults={2: KeyboardInterrupt()}))
    trace = read_trace(tmp_path / "trace")
    assert trace.end["end"] == "stopped"
    assert trace.steps[1].outcome == "in_doubt"


def test_watch_can_stop_a_run_before_an_action(tmp_path):
    phone, shown = Phone(), []

    def watch(step):
        shown.append(step)
        return len(shown) == 2

    assert run(tmp_path / "trace", ListAgent(TAPS), phone, watch=watch).reason == "stopped"
    assert phone.done == TAPS[:1]
    assert all(step.picture.is_file() for step in shown)
    assert outcomes(tmp_path / "trace") == ["done", "withheld"]


def test_a_refused_action_is_not_executed(tmp_path):
    phone = Phone()
    ending = run(tmp_path / "trace", ListAgent(TAPS), phone, guard=Guard(apps=["org.mail"]))
    assert ending.reason == "outside_apps"
    assert "org.shop/.Home" in ending.message
    assert phone.done == []


_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{here!r}, {tests!r}]
from test_loop import Phone, ListAgent, TAPS, run
class Killer(Phone):
    def perform(self, action):
        super().perform(action)
        if len(self.done) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
run(Path({folder!r}), ListAgent(TAPS), Killer())
"""


def test_the_trace_of_a_killed_run_has_all_executed_actions(tmp_path):
    here = Path(__file__).parent
    script = _KILLED.format(here=str(here), tests=str(here.parents[1]), folder=str(tmp_path / "trace"))
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    trace = read_trace(tmp_path / "trace")
    assert trace.end is None
    assert [step.outcome for step in trace.steps] == ["done", "done", "in_doubt"]
    assert [step.action for step in trace.steps] == TAPS[:3]
    assert [step.action for step in traced_episode(trace).steps] == TAPS[:2]


def test_no_text_of_an_answer_can_corrupt_the_trace(tmp_path):
    text = 'line\nbreak "quote" \ud800 \x1b[2J \u202e ' + "x" * 20_000
    agent = ListAgent([None])
    agent.act = lambda *_: Answer(text, None)
    run(tmp_path / "trace", agent, FlickeringPhone())
    trace = read_trace(tmp_path / "trace")
    assert len(trace.steps) == 3
    assert trace.steps[0].answer == text[:10_000].replace("\ud800", "?")
    assert len((tmp_path / "trace" / "steps.jsonl").read_bytes().splitlines()) == 7
    assert json.loads((tmp_path / "trace" / "trace.json").read_text())["goal"] == "open the settings"
