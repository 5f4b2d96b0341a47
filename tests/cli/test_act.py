"""`vlm-agent act`: its output, its trace, its questions and its exit status."""

import io
import json
import os
import pty
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.agents.prepared_agent import Prepared
from helpers.agents.understood import understood
from helpers.phones.browser_phone import needs_browser, tap
from helpers.phones.replay import replay

from vlm_agent.agents import read_screens
from vlm_agent.agents.agent import Diagnostics
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.cli import FAILED, INTERRUPTED, OK, USAGE, act, main
from vlm_agent.cli.act import Keys
from vlm_agent.cli.demo_stages import FULL, SEED
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.devices import DEVICES, DeviceAddress, DeviceKind, OpenedDevice
from vlm_agent.devices.adb import phone as adb
from vlm_agent.devices.browser.phone import BrowserPhone
from vlm_agent.devices.browser.tasks import browser_task, make_world
from vlm_agent.devices.errors import NoDeviceError
from vlm_agent.episodes import Action
from vlm_agent.screens.seen import Part
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.demonstrations import simulated_tasks

TASK = "general/test/7"
SHOP = 0
"""The number of a task in the browser: to put a product of the shop into the cart, which it takes a swipe to find."""


def expert(subset="general", seed=7):
    task = sample_task(subset, "test", seed)
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    return [step.action for step in task.solve(phone, pixels=False)]


class Recording:
    """A phone that records the actions."""

    def __init__(self, phone):
        self._phone, self.done = phone, []

    def __getattr__(self, name):
        return getattr(self._phone, name)

    def perform(self, action):
        self.done.append(action)
        self._phone.perform(action)


def shop_expert():
    """The task's own actions on a browser phone, the swipes included that it takes to find the product."""
    task = browser_task("shop", SHOP)
    ((wanted, number),) = task.expected["cart"].items()
    with BrowserPhone() as phone:
        task.set_up(phone)
        finger = Recording(phone)
        tap(finger, next(item["name"] for item in make_world(SHOP)["products"] if item["id"] == wanted))
        for _ in range(number):
            tap(finger, "Add to cart")
    return [*finger.done, Action.complete()]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command with an agent that does these actions; `typed` is the standard input."""

    def run(actions, *more, device=f"simulated:{TASK}", typed=""):
        monkeypatch.setattr(act.agent_options, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent(actions)))
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        arguments = ["act", "--agent", "RUN", "--device", device, "--trace", str(tmp_path / "trace"), *more]
        return main(arguments)

    return run


def test_each_step_is_shown_and_the_trace_is_complete(run, tmp_path, capsys):
    actions = expert()
    assert run(actions, "--animation", str(tmp_path / "a.gif")) == OK
    printed = capsys.readouterr().out
    assert f"Goal: {sample_task('general', 'test', 7).goal}" in printed
    for number in range(len(actions)):
        assert f"{tmp_path}/trace/screen_{number:03d}.png" in printed
    assert "'complete' → complete" in printed
    assert "The goal is reached" in printed
    assert read_trace(tmp_path / "trace").heading.reached is True
    trace = read_trace(tmp_path / "trace")
    assert [step.action for step in trace.steps] == actions
    assert trace.heading.task == TASK
    assert replay(tmp_path / "trace").differing == ()
    assert (tmp_path / "a.gif").read_bytes().startswith(b"GIF89a")


def test_the_example_of_docs_and_help_is_a_task_of_the_demo_and_of_the_animation_in_readme(capsys):
    with pytest.raises(SystemExit):
        main(["act", "--help"])
    page = Path(__file__).parents[2] / "docs" / "phones.md"
    examples = [
        re.search(r"act --agent \S+ --device simulated:(\S+) --animation", text)[1]
        for text in (capsys.readouterr().out, page.read_text())
    ]
    goals = {task.name: task.goal for task in simulated_tasks(FULL.tasks, SEED)}
    assert [goals[example] for example in examples] == ["Send doctor to Maria"] * 2


def test_the_summary_counts_answers_beyond_the_models_context(run, monkeypatch, capsys):
    plain = ScriptedAgent.act
    monkeypatch.setattr(
        ScriptedAgent,
        "act",
        lambda *inputs: replace(plain(*inputs), diagnostics=Diagnostics(beyond_context=bool(inputs[2]))),
    )
    actions = expert()
    assert run(actions) == OK
    assert f"complete ({len(actions)} steps, {len(actions) - 1} answers beyond the model's context, " in (
        capsys.readouterr().out
    )


def test_a_goal_that_is_declared_but_not_reached_fails(run, tmp_path, capsys):
    assert run([Action.complete()]) == FAILED
    assert read_trace(tmp_path / "trace").heading.reached is False
    assert "complete (1 steps" in (printed := capsys.readouterr().out)
    assert "The goal is not reached" in printed


def test_a_goal_of_the_users_own_is_not_judged_by_the_task(run, tmp_path, capsys):
    assert run([Action.complete()], "--goal", "do nothing") == OK
    assert read_trace(tmp_path / "trace").heading.reached is None
    assert "reached" not in capsys.readouterr().out


def test_without_a_task_the_goal_is_that_of_the_option(run, tmp_path):
    assert run([Action.complete()], "--goal", "open the mail", device="simulated") == OK
    assert read_trace(tmp_path / "trace").heading.goal == "open the mail"


def test_with_elements_read_from_pixels_a_goal_to_buy_counts_where_no_text_was_read(run, monkeypatch, capsys):
    shown = understood(Part(0, "text", (0.1, 0.1, 0.05, 0.3), "Blue chair"))
    monkeypatch.setattr(read_screens, "understand", lambda pixels, readers: shown)
    actions = [Action.tap(0.9, 0.9), Action.complete()]
    assert run(actions, "--goal", "buy a chair", "--elements", "read") == FAILED
    assert "could spend money: the goal mentions 'buy'" in capsys.readouterr().out


def test_with_long_screens_the_agent_sees_the_page_whole(run, tmp_path):
    to_settings = [Action.press("home"), Action.open_app("Settings")]
    options = ["--long-screens", "--goal", "look around", "--animation", str(tmp_path / "a.gif")]
    assert run([*to_settings, Action.tap(0.9, 0.3), Action.complete()], *options) == OK
    trace = read_trace(tmp_path / "trace")
    heights = [trace.screen(step).shape[0] for step in trace.steps]
    assert heights[1] == 448  # the launcher
    assert heights[2] > 1000
    assert (trace.heading.task, trace.heading.size) == (None, None)
    assert (tmp_path / "a.gif").read_bytes().startswith(b"GIF89a")


def test_long_screens_cannot_be_confirmed_one_by_one(run, capsys):
    with pytest.raises(SystemExit) as refused:
        run([Action.complete()], "--long-screens", "--confirm")
    assert refused.value.code == USAGE
    assert "cannot be combined with --confirm" in capsys.readouterr().err


@needs_browser
def test_a_task_in_the_browser_is_reached_and_the_trace_is_complete(run, tmp_path, capsys):
    actions, goal = shop_expert(), browser_task("shop", SHOP).goal
    assert any(action.is_swipe for action in actions)
    assert run(actions, device=f"browser:shop/{SHOP}") == OK
    printed = capsys.readouterr().out
    assert f"Goal: {goal}" in printed
    assert "The goal is reached" in printed
    trace = read_trace(tmp_path / "trace")
    assert (trace.heading.goal, trace.heading.subset) == (goal, "web_shopping")
    assert [(step.action, step.outcome) for step in trace.steps] == [(action, "done") for action in actions]
    assert {trace.screen(step).shape for step in trace.steps} == {(2402, 1082, 3)}
    assert (trace.steps[0].activity, trace.steps[-1].activity) == ("shop/list", "shop/product")
    assert trace.end["end"] == "complete"


@needs_browser
def test_a_browser_without_a_task_uses_the_goal_of_the_option(run, tmp_path, capsys):
    assert run([Action.complete()], "--goal", "open the shop", device="browser") == OK
    assert "The task is" not in capsys.readouterr().out
    trace = read_trace(tmp_path / "trace")
    assert (trace.heading.goal, trace.heading.device) == ("open the shop", "browser_1082x2402")
    assert [step.activity for step in trace.steps] == ["launcher/home"]


class DummyPhone:
    """A grey screen that gets lighter with every action."""

    activity, size, status = "dummy/main", (96, 64), None

    def __init__(self):
        self.performed = []

    def screenshot(self):
        return np.full((*self.size, 3), 128 + len(self.performed), np.uint8)

    def elements(self):
        return ()

    def perform(self, action):
        self.performed.append(action)


def test_a_new_kind_of_device_is_one_entry_of_the_registry(run, tmp_path, monkeypatch, capsys):
    opened = []

    @contextmanager
    def open_dummy(which):
        opened.append(DummyPhone())
        yield OpenedDevice(opened[-1], f"dummy_{which}")

    kind = DeviceKind(("dummy:NAME",), lambda which: which and DeviceAddress(lambda: open_dummy(which)))
    monkeypatch.setitem(DEVICES, "dummy", kind)
    assert run([Action.tap(0.5, 0.5), Action.complete()], "--goal", "tap", device="dummy:one") == OK
    trace = read_trace(tmp_path / "trace")
    assert (trace.heading.device, trace.heading.goal, trace.heading.task) == ("dummy_one", "tap", None)
    assert [phone.performed for phone in opened] == [[Action.tap(0.5, 0.5), Action.complete()]]
    with pytest.raises(SystemExit):
        run([], device="dummy")
    assert "dummy:NAME" in capsys.readouterr().err


def test_model_output_cannot_control_the_terminal(run, capsys):
    hostile = "\x1b[2J\u202e[red]"
    run([Action.type_text(hostile), Action.complete()])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert "[red]" in printed


@pytest.mark.parametrize(
    ("actions", "more", "word"),
    [
        ([Action.press("home")], [], "loop"),
        ([Action.swipe((0.9, 0.5), (0.1 + 0.01 * n, 0.5)) for n in range(9)], ["--steps", "2"], "step_limit"),
        ([Action.tap(0.5, 0.5)], ["--confirm"], "refused"),
    ],
)
def test_an_end_not_declared_by_the_agent_is_a_failure(run, actions, more, word, tmp_path, capsys):
    assert run(actions, *more) == FAILED
    assert word in capsys.readouterr().out
    assert read_trace(tmp_path / "trace").end["end"] == word


def test_with_confirm_every_action_needs_a_yes(run, tmp_path, capsys):
    taps = [Action.tap(0.5, 0.5), Action.press("home"), Action.press("back")]
    assert run(taps, "--confirm", typed="y\nyes\nno\n") == FAILED
    assert [step.outcome for step in read_trace(tmp_path / "trace").steps] == ["done", "done", "withheld"]
    assert capsys.readouterr().out.count("Continue? [y/N/q]") == 3


def test_q_at_a_question_stops_the_run(run, tmp_path):
    assert run([Action.tap(0.5, 0.5)], "--confirm", typed="q\n") == INTERRUPTED
    assert [step.outcome for step in read_trace(tmp_path / "trace").steps] == ["withheld"]


def test_a_signal_ends_the_run_as_ctrl_c_does_and_closes_the_phone(run, monkeypatch, stop_signal):
    closed, plain = [], DEVICES["simulated"].parse

    @contextmanager
    def opened(which):
        with plain(which).open() as phone:
            try:
                yield phone
            finally:
                closed.append(True)

    kind = DeviceKind(("simulated",), lambda which: DeviceAddress(lambda: opened(which), has_task=True))
    monkeypatch.setitem(DEVICES, "simulated", kind)
    monkeypatch.setattr(ScriptedAgent, "act", lambda *_: os.kill(os.getpid(), stop_signal))
    assert run([Action.tap(0.5, 0.5)]) == INTERRUPTED
    assert closed == [True]


def checkout_task():
    """A task whose expert walks to a checkout."""
    seeds = (seed for seed in range(200) if "heck" in sample_task("web_shopping", "test", seed).goal)
    return next(seeds)


def test_a_question_names_the_place_and_the_element_there(run, capsys):
    task = sample_task("general", "test", 7)
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    y, x, height, width = min(phone.elements(), key=lambda element: element.box[2] * element.box[3]).box
    taps = [Action.tap(y + height / 2, x + width / 2), Action.swipe((0.8, 0.5), (0.2, 0.5))]
    run(taps, "--confirm", "--steps", "2", typed="y\ny\n")
    printed = capsys.readouterr().out
    assert '→ tap "' in printed, printed
    assert "at x 0.50, y 0.80 to x 0.50, y 0.20" in printed


def test_an_unknown_app_is_refused_before_the_first_step(run, tmp_path, capsys):
    assert run(expert(), "--apps", "org.clock", "org.clokc/.Home") == FAILED
    message = capsys.readouterr().err
    assert "--apps org.clokc/.Home: not a package on simulated_208x448; did you mean org.clock" in message
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("more", "typed", "status"), [([], "", FAILED), ([], "y\n" * 9, OK), (["--allow-purchases"], "", OK)]
)
def test_it_does_not_check_out_without_permission(run, tmp_path, more, typed, status, capsys):
    seed = checkout_task()
    assert run(expert("web_shopping", seed), *more, device=f"simulated:web_shopping/test/{seed}", typed=typed) == status
    assert ("spend money" in capsys.readouterr().out) is (not more)
    end = read_trace(tmp_path / "trace").end
    assert end["end"] == ("purchase" if status == FAILED else "complete")


def test_the_agent_does_not_act_in_apps_that_are_not_allowed(run, tmp_path):
    assert run(expert(), "--apps", "org.shop/.Home") == FAILED
    assert read_trace(tmp_path / "trace").end["end"] == "outside_apps"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "R", "--device", "phone"], "is not a device"),
        (["--agent", "R", "--device", "simulated:a/b"], "is not a device"),
        (["--agent", "R", "--device", "browser:nowhere"], "browser:settings or browser:shop/7"),
        (["--agent", "R", "--device", "adb"], "--goal is missing"),
        (["--agent", "R", "--device", "browser:shop"], "--goal is missing"),
        (["--device", "adb", "--goal", "x"], "select one agent"),
        (["--agent", "R", "--endpoint", "http://x", "--device", "adb", "--goal", "x"], "select one agent"),
        (["--endpoint", "http://x", "--device", "adb", "--goal", "x"], "needs --agent.model NAME"),
        (["--agent", "R", "--device", "simulated", "--goal", " "], "must be one line of text"),
    ],
)
def test_invalid_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["act", *arguments])
    assert ended.value.code == USAGE
    assert message in capsys.readouterr().err


def test_an_existing_trace_is_not_overwritten(run, tmp_path, capsys):
    assert run(expert()) == OK
    assert run(expert()) == FAILED
    assert "not an empty folder" in capsys.readouterr().err


def test_runs_that_begin_in_the_same_second_have_traces_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(act.time, "strftime", lambda _: "20260101-120000")
    agent = Prepared(prepared=ScriptedAgent([Action.complete()]))
    monkeypatch.setattr(act.agent_options, "chosen_agent", lambda _: agent)
    for _ in range(2):
        main(["act", "--agent", "RUN", "--device", f"simulated:{TASK}"])
    assert len(list(tmp_path.glob("traces/20260101-120000-*/steps.jsonl"))) == 2


def test_a_missing_phone_is_named_before_a_model_is_loaded(monkeypatch, capsys):
    def absent(serial):
        raise NoDeviceError(f"no phone {serial} is connected")

    monkeypatch.setattr(adb, "AdbPhone", absent)
    assert main(["act", "--agent", "no-such-run", "--device", "adb:X1:5", "--goal", "x"]) == FAILED
    assert "no phone X1:5 is connected" in capsys.readouterr().err


@pytest.fixture
def terminal(monkeypatch):
    """The other end of a terminal that is the standard input."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield ours
    os.close(ours)


def test_q_stops_it_before_the_next_action(terminal, tmp_path, monkeypatch):
    monkeypatch.setattr(act.agent_options, "chosen_agent", lambda _: Prepared(prepared=ScriptedAgent(expert())))
    seen = iter([False, True])
    monkeypatch.setattr(Keys, "wants_stop", lambda _: next(seen))
    arguments = ["act", "--agent", "R", "--device", f"simulated:{TASK}", "--trace", str(tmp_path / "trace")]
    assert main(arguments) == INTERRUPTED
    assert [step.outcome for step in read_trace(tmp_path / "trace").steps] == ["done", "withheld"]
    assert json.loads((tmp_path / "trace" / "steps.jsonl").read_text().splitlines()[-1])["end"] == "stopped"


def test_keys_work_without_return(terminal):
    with Keys() as keys:
        assert not keys.wants_stop()
        os.write(terminal, b"x")
        assert not keys.wants_stop()
        os.write(terminal, b"aq")
        assert keys.wants_stop()
        assert not keys.wants_stop()


def test_a_look_for_keys_does_not_wait_for_one(terminal, monkeypatch):
    waits = []
    monkeypatch.setattr("vlm_agent.cli.act.select.select", lambda *ends: waits.append(ends[3]) or ([], [], []))
    with Keys() as keys:
        assert not keys.wants_stop()
    assert waits == [0]
