"""Widgets and tabs of the simulated phone: truth for training and tests that no agent sees."""

import dataclasses

import numpy as np
import pytest

from vlm_agent.agents import Agent, Answer
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, act
from vlm_agent.episodes import WIDGET_KINDS, Action, Screen, UiElement
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.clock import Clock
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.phone import Popup


def kinds(phone) -> list[str]:
    return [widget.kind for widget in phone.widgets()]


def open_on(name, seed=0):
    phone = SimulatedPhone(seed)
    phone.open(name)
    return phone


@pytest.mark.parametrize("seed", range(3))
def test_switches_are_on_as_the_phone_is(seed):
    phone = open_on("Settings", seed)
    texts = {element.text: element.box for element in phone.elements()}
    switches = [widget for widget in phone.widgets() if widget.kind == "switch"]
    assert switches
    for label, on in phone.canvas().states.items():
        y, _, height, _ = texts[label]
        [switch] = [one for one in switches if one.box[0] < y + height + 0.02 and y - 0.02 < one.box[0] + one.box[2]]
        assert switch.on is on


def test_the_home_screen_has_bars_a_search_field_apps_and_an_indicator_of_its_pages():
    for seed in range(6):
        phone = SimulatedPhone(seed)
        found = kinds(phone)
        home = phone.the(Launcher)
        assert found.count("status_bar") == found.count("navigation_bar") == found.count("edit_text") == 1
        assert found.count("image") == len(home.dock) + sum(name is not None for name in home.pages[home.at])
        assert found.count("page_indicator") == (len(home.pages) > 1)


def test_quick_settings_hide_the_app_and_show_tiles_that_are_on_or_off():
    phone = open_on("Shop")
    phone.shade = True
    phone.notices = []
    phone.changed()
    tiles = [widget.on for widget in phone.widgets() if widget.kind == "button"]
    assert tiles == [phone.switches[name] for name in phone.quick]
    assert set(kinds(phone)) == {"status_bar", "navigation_bar", "button"}


def test_a_dialog_leaves_only_its_own_filled_buttons_and_the_bars():
    phone = open_on("Shop")
    phone.popup = Popup("Update", "Now?", ("Later", "Update"), "Later")
    phone.changed()
    assert kinds(phone) == ["button", "navigation_bar", "status_bar"]


def test_exactly_one_tab_is_active_and_it_is_the_one_that_is_shown():
    phone = open_on("Clock")
    for name in ("Alarm", "Clock", "Timer", "Stopwatch"):
        phone.the(Clock).show(name)
        phone.changed()
        assert [tab.label for tab in phone.tabs()] == ["Alarm", "Clock", "Timer", "Stopwatch"]
        assert [tab.label for tab in phone.tabs() if tab.active] == [name]


def test_a_dialog_hides_the_tabs():
    phone = open_on("Clock")
    phone.the(Clock).show("Alarm")
    phone.the(Clock).new_alarm()
    phone.changed()
    assert phone.tabs() == ()


def test_a_canvas_refuses_an_unknown_kind_and_ignores_what_is_outside_the_clip():
    canvas = Canvas((448, 208), SimulatedPhone(0).theme)
    with pytest.raises(ValueError, match="tumbler"):
        canvas.widget("tumbler", (0, 0, 10, 10))
    canvas.clip = (100, 200)
    canvas.widget("image", (0, 0, 50, 99))
    canvas.widget("image", (0, 90, 50, 110))
    canvas.widget("image", (0, 95, 50, 115))
    assert [widget.box for widget in canvas.widgets()] == [(100 / 448, 0.0, 15 / 448, 50 / 208)]


class Looking(Agent):
    """Taps the middle of the screen, and keeps the screens that it was shown."""

    def __init__(self):
        self.screens = []

    def act(self, goal, history, screen):
        self.screens.append(screen)
        return Answer("tap", Action.tap(0.5, 0.5))


def test_no_agent_and_no_trace_sees_widgets_or_tabs(tmp_path):
    agent, phone = Looking(), open_on("Clock")
    with TraceWriter(tmp_path / "run", Heading("1", "look", "looking", "test")) as trace:
        act(agent, phone, "look", trace, Guard(allow_purchases=True), Limits(steps=2))
    assert phone.widgets()
    assert {field.name for field in dataclasses.fields(Screen)} == {
        "pixels", "elements", "activity", "notes", "episode", "step", "size", "instruction",
    }  # fmt: skip
    for screen in agent.screens:
        assert isinstance(screen.pixels, np.ndarray)
        assert all(type(element) is UiElement for element in screen.elements)
        assert not screen.notes
        assert screen.episode == "1"  # of the trace
    written = [path.read_text() for path in (tmp_path / "run").rglob("*.json*")]
    assert written
    for text in written:
        assert not any(f'"{word}"' in text for word in (*WIDGET_KINDS, "widgets", "tabs"))
