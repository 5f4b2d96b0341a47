"""A page that scrolls is one tall picture, and what lies beyond the screen can be touched."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from helpers.phones.long_pages import page_of_lines

from vlm_agent.devices.errors import ActionInDoubtError, NotPermittedError, RefusedError
from vlm_agent.devices.long_screen import LongScreen
from vlm_agent.episodes import Action, UiElement
from vlm_agent.simulator import SimulatedPhone

HEIGHT, WIDTH = 200, 96
lines = partial(page_of_lines, WIDTH)


@dataclass
class PagePhone:
    """Its page moves by `fling` times the finger; `at` is the row at the top of the screen. `goes_back`: whether a
    swipe down has an effect."""

    page: np.ndarray
    at: float = 0.0
    fling: float = 1.5
    goes_back: bool = True
    activity: str = "org.shop/.List"
    status = answer = None
    done: list[Action] = field(default_factory=list)

    @property
    def size(self):
        return HEIGHT, WIDTH

    def screenshot(self):
        return self.page[round(self.at) : round(self.at) + HEIGHT].copy()

    def elements(self):
        return None

    def perform(self, action):
        self.done.append(action)
        if action.is_swipe and action.direction in ("up", "down"):
            rows = (action.touch_yx[0] - action.lift_yx[0]) * HEIGHT * self.fling
            if rows > 0 or self.goes_back:
                self.at = min(max(0.0, self.at + rows), len(self.page) - HEIGHT)


def shown(phone, **options):
    """(the picture, the device, its warnings)."""
    warnings = []
    device = LongScreen(phone, warn=warnings.append, **options)
    return device.screenshot(), device, warnings


def settings(height=448):
    phone = SimulatedPhone(0, (height, 208))
    phone.open("Settings")
    phone.popup = None
    phone.changed()
    return phone


# The page


def test_a_simulated_page_is_the_page_drawn_whole_and_is_left_as_it_was():
    phone = settings()
    before = phone.screenshot()
    picture, device, warnings = shown(phone)
    whole = settings(len(picture))
    assert np.abs(picture.astype(int) - whole.screenshot()).mean() < 0.5  # the scroll bar
    assert np.array_equal(phone.screenshot(), before)
    assert (warnings, device.size, device.activity) == ([], (448, 208), phone.activity)
    names = [Counter(element.name for element in one.elements()) for one in (device, whole)]
    assert names[0] == names[1]
    off = [
        np.abs(np.subtract(element.box, other.box)) * np.array([len(picture), 208] * 2)
        for element, other in zip(
            *(sorted(one.elements(), key=lambda e: (e.name, e.box)) for one in (device, whole)), strict=True
        )
    ]
    assert np.max(off) <= 2  # pixels


@pytest.mark.parametrize("at", [0, 137, 311])
@pytest.mark.parametrize("fling", [0.7, 1.0, 1.5, 2.6])
def test_every_page_comes_back_to_where_it_was(at, fling):
    phone = PagePhone(lines(800), at, fling)
    picture, _, warnings = shown(phone)
    assert np.array_equal(picture, phone.page[at:])
    assert abs(phone.at - at) < 1
    assert warnings == []


def test_a_screen_that_does_not_scroll_is_itself():
    phone = PagePhone(lines(HEIGHT))
    picture, device, warnings = shown(phone)
    assert np.array_equal(picture, phone.page)
    device.perform(Action.tap(0.9, 0.1))
    assert phone.done[-1] == Action.tap(0.9, 0.1)
    assert warnings == []


def test_parts_that_change_by_themselves_do_not_matter():
    class Carousel(PagePhone):
        def screenshot(self):
            page = self.page.copy()
            page[60:90], page[600:640] = lines(30, len(self.done) + 50), lines(40, len(self.done) + 90)
            return page[round(self.at) : round(self.at) + HEIGHT]

    phone = Carousel(lines(700))
    picture, _, warnings = shown(phone)
    assert len(picture) == 700
    assert phone.at == pytest.approx(0, abs=0.5)
    assert warnings == []


# Touches


def test_a_tap_beyond_the_screen_scrolls_first_and_has_the_same_effect():
    _, device, _ = shown(settings())
    beyond = [one for one in device.elements() if one.type == "TEXT" and one.centre_yx[0] > 0.4]
    changed = 0
    for element in beyond[3::16]:
        phone, start = settings(), settings()
        _, device, _ = shown(phone)
        whole = settings(device.screenshot().shape[0])
        for one in (device, whole):
            one.perform(Action.tap(*element.centre_yx))
        assert (phone.activity, phone.switches) == (whole.activity, whole.switches), element
        changed += (phone.activity, phone.switches) != (start.activity, start.switches)
    assert changed > 1


def test_touches_of_any_kind_reach_their_row():
    phone = PagePhone(lines(600))
    for row in (10, 199, 330, 590):
        for action in (
            Action.tap(row / 600, 0.3),
            Action.long_press(row / 600, 0.3),
            Action.swipe((row / 600, 0.8), (row / 600, 0.2)),
        )[: 3 if row == 330 else 1]:
            phone.at, phone.done = 0, []
            _, device, warnings = shown(phone)
            device.perform(action)
            last = phone.done[-1]
            assert last.name == action.name
            assert abs(round(phone.at) + last.touch_yx[0] * HEIGHT - row) <= 1
            assert last.touch_yx[1] == action.touch_yx[1]
            assert warnings == []


def test_other_actions_are_performed_as_they_are():
    phone = PagePhone(lines(800))
    for action in (Action.swipe((0.8, 0.5), (0.3, 0.5)), Action.type_text("shoes"), Action.press("back")):
        shown(phone)[1].perform(action)
        assert phone.done[-1] == action


def test_elements_of_bars_and_of_the_page_occur_once():
    class WithElements(PagePhone):
        def screenshot(self):
            screen = super().screenshot()
            screen[:20], screen[-20:] = lines(20, 7), lines(20, 8)
            return screen

        def elements(self):
            def box(top, rows):
                return (top / HEIGHT, 0.1, rows / HEIGHT, 0.5)

            bars = [UiElement(box(4, 10), "Title"), UiElement(box(184, 10), "Home")]
            for line in range(0, 700, 50):
                top, bottom = max(20, line + 20 - round(self.at)), min(180, line + 60 - round(self.at))
                if top < bottom:
                    bars.append(UiElement(box(top, bottom - top), "Install"))
            return tuple(bars)

    phone = WithElements(lines(800))
    picture, device, _ = shown(phone)
    elements = device.elements()
    assert Counter(one.text for one in elements) == {"Title": 1, "Home": 1, "Install": 14}
    tops = sorted(round(one.box[0] * len(picture)) for one in elements if one.text == "Install")
    assert np.abs(np.subtract(tops, [20 + line for line in range(0, 700, 50)])).max() <= 1
    assert round(next(one.box[0] for one in elements if one.text == "Home") * len(picture)) == len(picture) - 16


# The guard's say, and the record


def test_every_action_of_the_device_is_permitted_and_recorded_before_it_is_performed():
    phone, permitted, recorded = PagePhone(lines(800)), [], []

    def permit(own):
        permitted.append(own)

    def record(action):
        recorded.append(action)
        assert len(phone.done) == len(recorded) - 1

    _, device, _ = shown(phone, permit=permit, record=record)
    assert all(own.looks and own.activity == "org.shop/.List" for own in permitted)
    device.perform(Action.tap(0.95, 0.5))
    assert recorded == phone.done == [own.action for own in permitted]
    assert not permitted[-1].looks and permitted[-1].action.is_tap


def test_a_page_that_must_not_be_scrolled_is_the_screen_alone():
    phone = PagePhone(lines(800))
    picture, _, warnings = shown(phone, permit=lambda own: "it could spend money")
    assert np.array_equal(picture, phone.page[:HEIGHT])
    assert (phone.done, warnings) == ([], [])


def test_a_page_that_the_phone_refuses_to_scroll_is_the_screen_alone():
    class Refusing(PagePhone):
        def perform(self, action):
            raise RefusedError("no permission for touches")

    phone = Refusing(lines(800))
    picture, device, _ = shown(phone)
    assert np.array_equal(picture, phone.page[:HEIGHT])
    with pytest.raises(RefusedError, match="no permission"):
        device.perform(Action.tap(0.5, 0.5))


def test_a_touch_beyond_the_screen_that_is_not_permitted_is_not_made():
    phone = PagePhone(lines(800))
    _, device, _ = shown(phone, permit=lambda own: "it could spend money" if own.action.is_tap else None)
    with pytest.raises(NotPermittedError, match="it could spend money"):
        device.perform(Action.tap(0.9, 0.5))
    assert not any(action.is_tap for action in phone.done)


# Pages that misbehave


def test_a_page_that_never_ends_is_cut_at_the_limit_with_one_warning():
    phone = PagePhone(lines(20_000))
    warnings = []
    device = LongScreen(phone, limit=3, warn=warnings.append)
    for _ in range(2):
        assert 3 * HEIGHT <= len(device.screenshot()) < 4 * HEIGHT
    assert warnings == ["org.shop/.List is taller than 3 screens; the rest is cut"]
    assert round(phone.at) == 0


class SlowPage(PagePhone):
    """Moves by two rows with every swipe, however long that is."""

    def perform(self, action):
        self.done.append(action)
        self.at = min(max(0.0, self.at + (2 if action.direction == "up" else -2)), len(self.page) - HEIGHT)


def test_a_page_that_moves_by_a_few_rows_with_each_swipe_is_cut_and_comes_back():
    phone = SlowPage(lines(3000))
    picture, _, warnings = shown(phone)
    assert np.array_equal(picture, phone.page[: HEIGHT + 2 * 24])
    assert (phone.at, len(phone.done)) == (0, 2 * 24)
    assert warnings == ["org.shop/.List has no end after 24 swipes; the rest is cut"]


def test_a_page_that_never_comes_back_is_shown_as_it_is_and_not_scrolled_again():
    phone = PagePhone(lines(800), goes_back=False)
    picture, device, warnings = shown(phone)
    assert np.array_equal(picture, phone.screenshot())
    assert len(warnings) == 1
    assert "did not come back" in warnings[0]
    device.perform(Action.tap(0.5, 0.5))
    assert phone.done[-1] == Action.tap(0.5, 0.5)
    phone.at, phone.done = 0, []
    assert len(device.screenshot()) == HEIGHT
    assert phone.done == []


def test_a_page_that_jumps_before_the_touch_is_not_touched():
    phone = PagePhone(lines(800))
    _, device, warnings = shown(phone)
    phone.page, phone.done = lines(800, 5), []
    phone.goes_back, phone.fling = False, 0
    with pytest.raises(ActionInDoubtError, match="did not come into view"):
        device.perform(Action.tap(0.9, 0.5))
    assert not any(action.is_tap for action in phone.done)
    assert len(warnings) == 1


@dataclass
class Drawer(PagePhone):
    """A swipe up opens a drawer; `closes`: a swipe down closes it."""

    closes: bool = True
    is_open: bool = False

    def screenshot(self):
        return lines(HEIGHT, 3 if self.is_open else 4)

    def perform(self, action):
        self.done.append(action)
        self.is_open = action.direction == "up" or (self.is_open and not self.closes)


def test_a_swipe_that_opens_a_drawer_is_made_once_and_undone():
    phone = Drawer(lines(HEIGHT))
    picture, device, warnings = shown(phone)
    assert not phone.is_open
    assert np.array_equal(picture, lines(HEIGHT, 4))
    assert len(phone.done) == 2
    device.screenshot()
    assert len(phone.done) == 2
    assert warnings == []


def test_a_drawer_that_stays_open_is_shown_with_a_warning():
    picture, _, warnings = shown(Drawer(lines(HEIGHT), closes=False))
    assert np.array_equal(picture, lines(HEIGHT, 3))
    assert len(warnings) == 1
    assert "shown as it is now" in warnings[0]


def test_a_launcher_is_never_scrolled():
    phone = PagePhone(lines(800), activity="com.android.launcher3/.Launcher")
    assert len(shown(phone, launcher="com.android.launcher3")[0]) == HEIGHT
    assert phone.done == []


def test_a_phone_that_rotates_meanwhile_is_shown_as_it_is():
    class Rotating(PagePhone):
        def screenshot(self):
            screen = super().screenshot()
            return screen if not self.done else np.ascontiguousarray(screen.transpose(1, 0, 2))

    picture, _, warnings = shown(Rotating(lines(800)))
    assert picture.shape == (WIDTH, HEIGHT, 3)
    assert len(warnings) == 1


@pytest.mark.parametrize("size", [(1, 1), (1, 60), (60, 1), (200, 96)])
def test_screens_of_one_pixel_or_one_colour_are_themselves(size):
    class Plain(PagePhone):
        def screenshot(self):
            return np.full((*size, 3), 77, np.uint8)

    picture, device, warnings = shown(Plain(lines(HEIGHT)))
    assert picture.shape == (*size, 3)
    assert device.elements() is None
    assert warnings == []
