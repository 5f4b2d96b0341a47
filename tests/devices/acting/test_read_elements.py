"""A device whose elements are read from its screenshots: the guard sees them, on phones that report nothing."""

import numpy as np
import pytest
from helpers.agents.understood import understood

from vlm_agent.agents import read_screens
from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading, read_trace
from vlm_agent.devices.acting.around import ReadElements, long_screen
from vlm_agent.devices.acting.guard import PURCHASE, Guard, Proposal
from vlm_agent.devices.acting.loop import act
from vlm_agent.episodes import Action, UiElement, Widget
from vlm_agent.screens.seen import Text
from vlm_agent.screens.text import Confident
from vlm_agent.screens.understand import LoadedReaders, Readers
from vlm_agent.texts.secrets import MASK

HEIGHT, ROWS, WIDTH = 200, 500, 60


class SilentShop:
    """A page of 500 rows on a screen of 200, without any report of its elements."""

    activity, status, answer, size = "org.shop/.List", None, None, (HEIGHT, WIDTH)

    def __init__(self):
        rows = np.random.default_rng(0).integers(0, 255, (ROWS, WIDTH, 3), np.uint8)
        self.page = np.where((np.arange(ROWS) % 14 < 8)[:, None, None], rows, 245).astype(np.uint8)
        self.at, self.taps, self.screenshots = 0.0, [], 0

    def screenshot(self):
        self.screenshots += 1
        return self.page[round(self.at) : round(self.at) + HEIGHT]

    def elements(self):
        return None

    def perform(self, action):
        if action.is_tap:
            self.taps.append(action)
        elif action.is_swipe:
            self.at = min(max(0.0, self.at + (action.touch_yx[0] - action.lift_yx[0]) * HEIGHT), ROWS - HEIGHT)


@pytest.fixture
def shop(monkeypatch):
    read_screens.ScreenReader.of.cache_clear()
    monkeypatch.setattr(read_screens, "understand", lambda pixels, readers: understood("Blue chair", "Pay now"))
    return SilentShop()


def run(folder, device, actions, guard=Guard()):  # noqa: B008 (frozen)
    with TraceWriter(folder, Heading("1", "look around", "agent", "test")) as trace:
        ending = act(ScriptedAgent(actions), device, "look around", trace, guard)
    return ending, read_trace(folder)


def test_a_purchase_is_detected_by_words_in_the_picture(tmp_path, shop):
    device = ReadElements(shop, ScreenReader(Readers()))
    ending, trace = run(tmp_path / "read", device, [Action.tap(0.2, 0.5), Action.complete()])
    assert (ending.reason, shop.taps) == (PURCHASE, [])
    assert [element.text for element in trace.steps[0].elements] == ["Blue chair", "Pay now"]
    ending, _ = run(tmp_path / "phone", shop, [Action.tap(0.2, 0.5), Action.complete()])
    assert (ending.reason, len(shop.taps)) == ("complete", 1)


class Unclear:
    """Reads a payment button with a low confidence."""

    def read(self, pixels):
        return Text((0.1, 0.1, 0.05, 0.1), "Cart", 0.99), Text((0.5, 0.1, 0.05, 0.2), "Pay now", 0.9)


class OneButton:
    def detect(self, pixels):
        return (Widget("button", (0.45, 0.05, 0.15, 0.9)),)


def test_the_guard_has_words_that_were_read_with_a_low_confidence_and_the_agent_has_not(tmp_path):
    shop, reader = SilentShop(), ScreenReader(LoadedReaders(Confident(Unclear(), 0.95), OneButton()))
    assert "Pay now" not in [element.text for element in reader.read(shop.screenshot()).elements]
    unclear = reader.read(shop.screenshot()).unsure_elements
    assert [(element.text, element.box) for element in unclear] == [("Pay now", OneButton().detect(None)[0].box)]
    ending, _ = run(tmp_path, ReadElements(shop, reader), [Action.tap(0.5, 0.8), Action.complete()])
    assert (ending.reason, shop.taps) == (PURCHASE, [])


class Unknown:
    """Reads no text on the button, whose script it does not know."""

    def read(self, pixels):
        return (Text((0.1, 0.1, 0.05, 0.1), "Blue chair", 0.99),)


def test_reading_the_pixels_does_not_hide_a_button_whose_script_cannot_be_read():
    device = ReadElements(SilentShop(), ScreenReader(LoadedReaders(Confident(Unknown(), 0.95), OneButton())))
    tap = Action.tap(0.52, 0.5)
    for elements in (None, device.elements()):
        assert Guard().refusal(Proposal(0, "купить стул", device.activity, elements, tap))[0] == PURCHASE


def test_after_an_action_no_elements_of_the_screen_before_it_are_used(shop):
    device = ReadElements(shop, ScreenReader(Readers()))
    device.screenshot()
    device.perform(Action.swipe((0.9, 0.5), (0.1, 0.5)))
    device.elements()
    assert shop.screenshots == 2


def test_before_the_first_screenshot_one_is_taken(shop):
    device = ReadElements(shop, ScreenReader(Readers()))
    assert len(device.elements()) == len(device.elements()) == 2
    assert shop.screenshots == 1
    assert (device.activity, device.size, device.status, device.answer) == (shop.activity, shop.size, None, None)


def test_a_long_screen_is_not_scrolled_where_the_picture_shows_a_payment(tmp_path, shop):
    guard = Guard()
    with TraceWriter(tmp_path, Heading("1", "look around", "agent", "test")) as trace:
        device = long_screen(ReadElements(shop, ScreenReader(Readers())), "look around", trace, guard)
        assert device.screenshot().shape[0] == HEIGHT
    assert shop.at == 0


class Login(SilentShop):
    """A field that the phone reports as one for passwords, in a picture that does not say it."""

    def elements(self):
        return (UiElement((0.0, 0.0, 0.5, 1.0), "password"),) if self.taps else ()


def test_what_is_typed_into_a_password_field_of_the_phone_is_masked_where_the_picture_does_not_name_it(
    tmp_path, monkeypatch
):
    read_screens.ScreenReader.of.cache_clear()
    monkeypatch.setattr(read_screens, "understand", lambda pixels, readers: understood("Geheimwort", "Weiter"))
    actions = [Action.tap(0.1, 0.5), Action.type_text("hunter22"), Action.type_text("33"), Action.complete()]
    _, trace = run(tmp_path / "read", ReadElements(Login(), ScreenReader(Readers())), actions)
    assert not [path for path in (tmp_path / "read").rglob("*.json*") if b"hunter22" in path.read_bytes()]
    assert [step.action.text for step in trace.steps[1:3]] == [MASK, MASK]
    assert "password" in [element.text for element in trace.steps[1].elements]
    assert "password" not in [element.text for element in trace.steps[0].elements]


@pytest.mark.parametrize(
    "between", [(Action.wait(),), (Action.answer("soon"), Action.wait()), (Action.press("enter"),)]
)
def test_a_password_is_masked_after_waiting_and_after_enter_where_only_the_phone_names_its_field(
    tmp_path, monkeypatch, between
):
    read_screens.ScreenReader.of.cache_clear()
    monkeypatch.setattr(read_screens, "understand", lambda pixels, readers: understood("Geheimwort", "Weiter"))
    actions = [Action.tap(0.1, 0.5), *between, Action.type_text("hunter22"), Action.complete()]
    _, trace = run(tmp_path / "read", ReadElements(Login(), ScreenReader(Readers())), actions)
    assert [step.action.text for step in trace.steps if step.action.text not in ("", "soon")] == [MASK]


@pytest.mark.parametrize(
    ("widget", "label", "touch"),
    [
        (Widget("switch", (0.40, 0.85, 0.04, 0.1)), Text((0.41, 0.05, 0.03, 0.2), "Buy now"), (0.42, 0.15)),
        (Widget("image", (0.30, 0.40, 0.10, 0.2)), Text((0.41, 0.43, 0.03, 0.14), "Subscribe"), (0.425, 0.5)),
        (Widget("edit_text", (0.50, 0.10, 0.06, 0.8)), Text((0.46, 0.10, 0.03, 0.1), "Pay"), (0.47, 0.15)),
    ],
    ids=["beside", "under", "above"],
)
def test_a_label_is_at_its_own_place_for_the_guard(tmp_path, widget, label, touch):
    """The part that it names has another box: agents are shown that one."""

    class Labelled:
        def read(self, pixels):
            return (label,)

        def detect(self, pixels):
            return (widget,)

    shop, reader = SilentShop(), ScreenReader(LoadedReaders(Confident(Labelled(), 0.95), Labelled()))
    assert [(one.text, one.box) for one in reader.read(shop.screenshot()).elements] == [(label.text, widget.box)]
    ending, _ = run(tmp_path, ReadElements(shop, reader), [Action.tap(*touch), Action.complete()])
    assert (ending.reason, shop.taps) == (PURCHASE, [])


class WebPage(SilentShop):
    """A page that the phone reports as one element, whose title names a password."""

    def elements(self):
        return (UiElement((0.05, 0.0, 0.95, 1.0), "Reset your PIN and password - Shop"),)


def test_an_element_of_the_phone_with_the_name_of_a_secret_hides_no_payment_button(tmp_path, monkeypatch):
    read_screens.ScreenReader.of.cache_clear()
    monkeypatch.setattr(read_screens, "understand", lambda pixels, readers: understood("Blue chair", "Buy now"))
    page = WebPage()
    actions = [Action.tap(0.2, 0.5), Action.tap(0.7, 0.5), Action.complete()]
    ending, _ = run(tmp_path, ReadElements(page, ScreenReader(Readers())), actions)
    assert (ending.reason, len(page.taps)) == (PURCHASE, 1)
