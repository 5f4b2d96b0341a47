"""A run on long screens: whatever the device does by itself is guarded, and is in the trace."""

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers.data.made_episodes import traced_episode

from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading, read_trace, sealed
from vlm_agent.devices.acting.around import long_screen
from vlm_agent.devices.acting.guard import PURCHASE, REFUSED, Guard
from vlm_agent.devices.acting.loop import act
from vlm_agent.devices.errors import ActionInDoubtError
from vlm_agent.episodes import Action, UiElement

HEIGHT, ROWS, WIDTH = 200, 500, 60


@dataclass
class Shop:
    """A page of 500 rows on a screen of 200. `texts`: row → text of an element, 10 rows high."""

    texts: dict[int, str]
    at: float = 0.0
    done: list[Action] = field(default_factory=list)
    activity: str = "org.shop/.List"
    status = answer = None
    size = (HEIGHT, WIDTH)

    def __post_init__(self):
        rows = np.random.default_rng(0).integers(0, 255, (ROWS, WIDTH, 3), np.uint8)
        self.page = np.where((np.arange(ROWS) % 14 < 8)[:, None, None], rows, 245).astype(np.uint8)

    def screenshot(self):
        return self.page[round(self.at) : round(self.at) + HEIGHT]

    def elements(self):
        rows = {row - round(self.at): text for row, text in self.texts.items()}
        return tuple(
            UiElement((row / HEIGHT, 0.2, 10 / HEIGHT, 0.6), text)
            for row, text in rows.items()
            if 0 <= row <= HEIGHT - 10
        )

    def perform(self, action):
        self.done.append(action)
        if action.is_swipe:
            rows = (action.touch_yx[0] - action.lift_yx[0]) * HEIGHT
            self.at = min(max(0.0, self.at + rows), ROWS - HEIGHT)

    def tapped_row(self):
        return round(self.at) + self.done[-1].touch_yx[0] * HEIGHT


def run(folder, phone, actions, guard=Guard(), goal="look around"):  # noqa: B008 (frozen)
    """(ending, the lines of the trace)."""
    with TraceWriter(folder, Heading("1", goal, "agent", "test")) as trace:
        device = long_screen(phone, goal, trace, guard)
        ending = act(ScriptedAgent(actions), device, goal, trace, guard)
    return ending, [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_one_answer_is_one_step_and_every_device_action_is_a_line(tmp_path):
    phone = Shop({40: "Top", 455: "Bottom"})
    ending, lines = run(tmp_path / "t", phone, [Action.tap(460 / ROWS, 0.5), Action.complete()])
    assert (ending.reason, ending.steps) == ("complete", 2)
    trace = read_trace(tmp_path / "t")
    assert trace.screen(trace.steps[0]).shape == (ROWS, WIDTH, 3)
    assert [element.text for element in trace.steps[0].elements] == ["Top", "Bottom"]
    assert [step.action for step in traced_episode(trace).steps] == [Action.tap(460 / ROWS, 0.5), Action.complete()]
    of_device = [line["device"] for line in lines if "device" in line]
    performed = [action for action in phone.done if not action.is_status]
    assert [(one["touch_yx"], one["lift_yx"]) for one in of_device] == [
        (list(action.touch_yx), list(action.lift_yx)) for action in performed
    ]
    taps = [action for action in performed if action.is_tap]
    assert len(taps) == 1
    kinds = ["device" if "device" in line else "step" if "step" in line else "of" for line in lines[:-1]]
    first = kinds.index("step")
    assert set(kinds[:first]) == {"device"}  # the looks come before the step's line
    assert "device" in kinds[first : kinds.index("of")]  # the swipe and the tap after it


def test_a_connection_cut_while_the_page_is_scrolled_does_not_end_the_run(tmp_path):
    class Cut(Shop):
        def perform(self, action):
            super().perform(action)
            if action.is_swipe and not self.cut:
                self.cut = True
                raise ActionInDoubtError("the connection was cut")

    phone = Cut({40: "Top"})
    phone.cut = False
    ending, _ = run(tmp_path / "t", phone, [Action.tap(460 / ROWS, 0.5), Action.complete()])
    assert phone.cut and ending.reason == "complete"
    trace = read_trace(tmp_path / "t")
    assert trace.screen(trace.steps[0]).shape == (ROWS, WIDTH, 3)


def test_the_tap_reaches_the_row_that_the_agent_meant(tmp_path):
    phone = Shop({40: "Top"})
    phone.perform = lambda action, perform=phone.perform: (perform(action), rows.append(phone.tapped_row()))[0]
    rows = []
    run(tmp_path / "t", phone, [Action.tap(460 / ROWS, 0.5), Action.complete()])
    taps = [row for row, action in zip(rows, phone.done, strict=True) if action.is_tap]
    assert taps == pytest.approx([460], abs=1)


def test_a_purchase_beyond_the_screen_is_refused_before_the_page_moves(tmp_path):
    phone = Shop({455: "Buy"})
    ending, _ = run(tmp_path / "t", phone, [Action.tap(460 / ROWS, 0.5)])
    assert ending.reason == PURCHASE
    assert not any(action.is_tap for action in phone.done)
    assert phone.at == pytest.approx(0, abs=1)


def test_a_confirmed_purchase_beyond_the_screen_is_asked_about_again_where_it_is_tapped(tmp_path):
    for answers, taps in (([True, True], 1), ([True, False], 0)):
        phone, questions, left = Shop({455: "Buy"}), [], list(answers)
        guard = Guard(ask=lambda question, left=left, asked=questions: (asked.append(question), left.pop(0))[1])
        actions = [Action.tap(460 / ROWS, 0.5), Action.complete()]
        ending, _ = run(tmp_path / str(taps), phone, actions, guard)
        assert ending.reason == ("complete" if taps else REFUSED)
        assert ("Buy" in ending.message) == (not taps)
        assert sum(action.is_tap for action in phone.done) == taps
        assert len(questions) == 2


class FloatingButton(Shop):
    """A button floats over rows 150 to 160 of the screen, wherever the page is."""

    def elements(self):
        return (*super().elements(), UiElement((150 / HEIGHT, 0.2, 10 / HEIGHT, 0.6), "Order now"))


class SilentBelow(Shop):
    """No elements are reported once the page is scrolled."""

    def elements(self):
        return super().elements() if self.at < 1 else None


@pytest.mark.parametrize(
    ("phone", "row", "reason"),
    [(FloatingButton({40: "News"}), 155, "Order now"), (SilentBelow({40: "Buy"}), 45, "Buy")],
)
def test_a_purchase_that_the_tall_picture_lacks_is_refused_on_the_screen(tmp_path, phone, row, reason):
    ending, _ = run(tmp_path / "t", phone, [Action.tap(row / ROWS, 0.5)])
    assert ending.reason == REFUSED and reason in ending.message
    trace = read_trace(tmp_path / "t")
    assert trace.screen(trace.steps[0]).shape == (ROWS, WIDTH, 3)
    assert not any(action.is_tap for action in phone.done)


def test_texts_of_a_form_count_if_a_part_of_the_page_reports_no_elements(tmp_path):
    class Form(SilentBelow):
        def elements(self):  # the field appears while the page is scrolled
            return super().elements() if self.at >= 1 or not self.done else (field,)

    field, phone = UiElement((0.5, 0, 0.1, 1), "Card number"), Form({40: "News"})
    ending, _ = run(tmp_path / "t", phone, [Action.type_text("42")])
    assert ending.reason == REFUSED and "Card number" in ending.message
    assert not any(action.text for action in phone.done)


@pytest.mark.parametrize(
    ("texts", "guard"),
    [
        ({40: "Choose a payment method"}, Guard(ask=lambda _: True)),
        ({40: "News"}, Guard(apps=("org.mail",))),
        ({40: "News"}, Guard(ask=lambda _: True, confirm_all=True)),
    ],
)
def test_a_page_on_which_the_guard_would_ask_or_refuse_is_not_scrolled(tmp_path, texts, guard):
    phone = Shop(texts)
    run(tmp_path / "t", phone, [Action.complete()], guard)
    trace = read_trace(tmp_path / "t")
    assert trace.screen(trace.steps[0]).shape == (HEIGHT, WIDTH, 3)
    assert phone.done == [Action.complete()]


def test_a_damaged_line_of_a_device_action_is_reported(tmp_path):
    run(tmp_path / "t", Shop({40: "News"}), [Action.complete()])
    path = tmp_path / "t" / "steps.jsonl"
    line = sealed('{"device": {"kind": 4, "touch_yx": [2, 0.5], "lift_yx": [0, 0]}}')
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(Exception, match=r"line 1: .*touch_yx"):
        read_trace(tmp_path / "t")
