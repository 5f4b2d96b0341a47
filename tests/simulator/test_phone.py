"""The simulated phone as a device: every action works on every screen at every size, deterministically."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated_phone import random_action
from vlm_agent.episodes import Action
from vlm_agent.errors import UserError
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.browser import SHOPS, Browser
from vlm_agent.simulator.apps.mail import Mail
from vlm_agent.simulator.apps.shop import ShopApp
from vlm_agent.simulator.apps.store import Store
from vlm_agent.simulator.drawing.icons import element_type
from vlm_agent.simulator.task_set import SimulatedTasks
from vlm_agent.simulator.words import APPS, PRODUCTS, STORE_APPS

SIZES = [(448, 208), (600, 270), (333, 777), (1440, 720), (100, 64)]
POINTS = st.tuples(st.floats(0, 1), st.floats(0, 1))
ACTIONS = st.one_of(
    st.builds(Action.swipe, POINTS, POINTS),
    POINTS.map(lambda point: Action.tap(*point)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(Action.type_text),
    st.sampled_from([*map(Action.press, ("back", "home", "enter")), Action.complete(), Action.impossible()]),
    POINTS.map(lambda point: Action.long_press(*point)),
    st.sampled_from([*APPS, "clock ", "No Such App", ""]).map(Action.open_app),
    st.sampled_from([Action.wait(), Action.recents(), Action.answer("yes")]),
)


def on_screen(phone: SimulatedPhone) -> None:
    """Asserts the invariants of every screen."""
    screen = phone.screenshot()
    assert screen.shape == (*phone.size, 3)
    assert screen.dtype == np.uint8
    for element in phone.elements():
        y, x, height, width = element.box
        assert 0 <= y < y + height <= 1 + 1e-6
        assert 0 <= x < x + width <= 1 + 1e-6
        assert element.box == tuple(float(np.float32(value)) for value in element.box)
        assert element.text if element.type == "TEXT" else element.type.startswith("ICON_")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(SIZES[:3]), st.lists(ACTIONS, max_size=12))
def test_no_sequence_of_actions_breaks_it(seed, size, actions):
    phone = SimulatedPhone(seed, size)
    for action in actions:
        phone.perform(action)
        on_screen(phone)
        assert "/." in phone.activity


@pytest.mark.parametrize("size", SIZES)
def test_a_monkey_tapping_targets_and_typing_anything_breaks_nothing(size):
    rng = random.Random(size[0])
    for seed in range(3):
        phone = SimulatedPhone(seed, size)
        for _ in range(25):
            target = rng.choice(phone.canvas().targets)
            y, x = ((target.aim[edge] + target.aim[edge + 2]) / 2 for edge in (1, 0))
            phone.perform(Action.tap(min(y / size[0], 1.0), min(x / size[1], 1.0)))
            if phone.focus is not None:
                phone.perform(Action.type_text(rng.choice(("chess", "日本 ñ\n\t😀", "", "red lamp", "x" * 600))))
                phone.perform(rng.choice((Action.press("enter"), Action.press("back"))))
            on_screen(phone)


def test_open_app_opens_an_installed_app_by_name_and_nothing_else():
    phone = SimulatedPhone(5)
    phone.perform(Action.open_app(" clock "))
    assert (phone.front, phone.open_history) == ("Clock", ["Clock"])
    absent = next(name for name in STORE_APPS if name not in phone.installed)
    for name in (absent, "", "No Such App"):
        phone.perform(Action.open_app(name))
    assert (phone.front, phone.open_history) == ("Clock", ["Clock"])


def test_recents_shows_the_apps_that_were_opened():
    by_button, by_action = SimulatedPhone(5), SimulatedPhone(5)
    for phone in (by_button, by_action):
        phone.open("Clock")
    by_button.press_recents()
    by_button.changed()
    by_action.perform(Action.recents())
    assert by_action.activity == "org.launcher/.Recents"
    np.testing.assert_array_equal(by_action.screenshot(), by_button.screenshot())


def test_an_uninstalled_app_leaves_the_recent_apps():
    phone = SimulatedPhone(3)
    name = next(name for name in STORE_APPS if name in phone.installed)
    phone.open(name)
    phone.open("Store")
    store = phone.the(Store)
    store.show(name)
    store.uninstall(name)
    assert phone.recents == ["Store"]


def test_back_from_a_web_shop_to_another_shows_the_first_one_again():
    phone = SimulatedPhone(5)
    phone.open("Browser")
    browser = phone.the(Browser)
    first, second = list(SHOPS)[:2]
    for site in (first, second):
        browser.visit(site)
    phone.changed()
    assert browser.shop.name == second
    phone.press_back()
    phone.changed()
    assert browser.shop.name == first
    assert f"{first.lower()}.com" in {element.text for element in phone.elements()}


@pytest.mark.parametrize("action", [Action.wait(), Action.long_press(0.4, 0.4), Action.answer("three")])
def test_waiting_answering_and_long_presses_change_no_pixel(action):
    phone = SimulatedPhone(5)
    phone.open("Settings")
    phone.changed()
    before = phone.screenshot()
    phone.perform(action)
    np.testing.assert_array_equal(phone.screenshot(), before)
    assert phone.answer == (action.text or None)
    assert phone.status is None


def test_every_app_opens_and_shows_annotations():
    for name in APPS:
        phone = SimulatedPhone(3)
        phone.open(name)
        on_screen(phone)
        assert len(phone.elements()) > 3, name


def test_apps_have_at_least_24_icons_of_different_looks():
    looks = {element_type(glyph) for glyph, _ in (APPS | STORE_APPS).values()}
    assert len(looks) >= 24
    assert len(set(PRODUCTS.values())) == len(PRODUCTS)


def test_the_same_seed_and_actions_give_the_same_pixels():
    actions = [Action.swipe((0.7, 0.5), (0.2, 0.5)), Action.tap(0.4, 0.4), Action.type_text("a"), Action.press("back")]
    screens = []
    for _ in range(2):
        phone = SimulatedPhone(11)
        for action in actions:
            phone.perform(action)
            screens.append(phone.screenshot())
    for first, second in zip(screens[:4], screens[4:], strict=True):
        np.testing.assert_array_equal(first, second)


def test_reset_brings_back_the_first_screen():
    phone = SimulatedPhone(4)
    before = phone.screenshot()
    phone.open("Settings")
    assert (phone.screenshot() != before).any()
    phone.reset()
    np.testing.assert_array_equal(phone.screenshot(), before)


def test_changing_a_screenshot_does_not_change_the_phone():
    phone = SimulatedPhone(4)
    phone.screenshot()[:] = 0
    assert phone.screenshot().any()


def test_typing_without_a_field_does_nothing():
    phone = SimulatedPhone(4)
    before = phone.screenshot()
    phone.perform(Action.type_text("hello"))
    np.testing.assert_array_equal(phone.screenshot(), before)


def test_back_closes_keyboard_then_page_then_app():
    phone = SimulatedPhone(5)
    phone.open("Store")
    phone.app("Store").new_search()
    for focus, front, pages in ((None, "Store", 2), (None, "Store", 1), (None, "Launcher", 1)):
        phone.perform(Action.press("back"))
        assert (phone.focus, phone.front, len(phone.app(phone.front).routes)) == (focus, front, pages)


def test_a_swipe_from_the_top_edge_pulls_the_shade_and_up_closes_it():
    phone = SimulatedPhone(6)
    phone.perform(Action.swipe((0.01, 0.5), (0.6, 0.5)))
    assert phone.shade
    phone.perform(Action.swipe((0.6, 0.5), (0.1, 0.5)))
    assert not phone.shade


def test_the_keyboards_erase_key_deletes_selected_text_and_then_single_letters():
    phone = SimulatedPhone(5)
    phone.open("Browser")
    phone.the(Browser).new_search()
    phone.type_text("abc")
    phone.erase()
    assert phone.the(Browser).fields["query"] == "ab"
    phone.the(Browser).focus("query")  # selects it
    phone.erase()
    assert phone.the(Browser).fields["query"] == ""


def test_what_was_typed_to_one_person_is_not_in_the_reply_to_another():
    phone = SimulatedPhone(5)
    phone.open("Mail")
    for letter in phone.the(Mail).inbox[:2]:
        phone.the(Mail).push("letter", letter)
        for key in ("reply", "reply"):
            phone.changed()
            phone.canvas().find(key).on_tap()
        assert phone.the(Mail).fields.get("reply", "") == ""
        phone.type_text("hello")
        phone.the(Mail).to_root()


def test_status_actions_are_recorded_and_change_no_screen():
    phone = SimulatedPhone(6)
    before = phone.screenshot()
    phone.perform(Action.complete())
    assert phone.status == Action.complete().kind
    np.testing.assert_array_equal(phone.screenshot(), before)


@pytest.mark.parametrize("seed", range(4))
def test_the_scale_of_screenshots_changes_their_pixels_and_nothing_else(seed):
    plain, scaled = SimulatedPhone(seed), SimulatedPhone(seed, scale=2)
    rng = random.Random(seed)
    for _ in range(20):
        small, large = plain.screenshot(), scaled.screenshot()
        assert small.shape == (448, 208, 3) and large.shape == (896, 416, 3)
        assert plain.elements() == scaled.elements() and plain.widgets() == scaled.widgets()
        halved = large.reshape(448, 2, 208, 2, 3).mean((1, 3))
        assert np.abs(halved - small).mean() < 8  # the same picture but for edges of letters and icons
        action = _any_action(plain, rng)
        plain.perform(action)
        scaled.perform(action)


def _any_action(phone: SimulatedPhone, rng: random.Random) -> Action:
    """Taps of targets, and long swipes, which scroll to the end of a page."""
    targets = [target.aim for target in phone.canvas().targets]
    if targets and rng.random() < 0.6:
        left, top, right, bottom = rng.choice(targets)
        return Action.tap((top + bottom) / 2 / phone.size[0], (left + right) / 2 / phone.size[1])
    end = rng.choice(((0.2, 0.5), (0.9, 0.5), (0.6, 0.1), (0.6, 0.9)))
    return Action.swipe((0.6, 0.5), end) if rng.random() < 0.8 else Action.press("back")


def test_a_screen_too_small_to_draw_on_is_refused():
    for build in (lambda size: SimulatedPhone(0, size), lambda size: SimulatedTasks(size=size)):
        with pytest.raises(UserError, match="64 pixels"):
            build((448, 20))


def runs_on_like_the_original(seed):
    """Asserts that a fork of a used phone shows its screens, and that neither changes the other."""
    rng = random.Random(seed)
    phone = SimulatedPhone(seed)
    for _ in range(rng.randint(0, 12)):
        phone.perform(random_action(phone, rng))
    if rng.random() < 0.5:
        phone.screenshot()
    fork, other = phone.fork(), phone.fork()
    for _ in range(6):  # on another way
        other.perform(random_action(other, rng))
        other.screenshot()
    for _ in range(8):
        action = random_action(phone, rng)
        for one in (phone, fork):
            one.perform(action)
        assert np.array_equal(phone.screenshot(), fork.screenshot())
        assert phone.elements() == fork.elements()
    assert phone.digest() == fork.digest()


@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 500), marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_fork_continues_like_the_original_and_apart_from_it(seeds):
    for seed in seeds:
        runs_on_like_the_original(seed)


def test_equal_digests_mean_equal_screens_and_equal_things_that_last():
    seen = {}
    for seed in range(4):
        phone, rng = SimulatedPhone(0), random.Random(seed)
        for _ in range(25):
            phone.perform(random_action(phone, rng))
            found = (phone.screenshot().tobytes(), phone.durable())
            assert seen.setdefault(phone.digest(), found) == found
    assert 10 < len(seen) < 100


def test_what_lasts_distinguishes_phones_with_one_screen():
    phone = SimulatedPhone(0)
    fork = phone.fork()
    assert phone.digest() == fork.digest()
    fork.the(ShopApp).shop.cart.append("red ball")
    assert np.array_equal(phone.screenshot(), fork.screenshot())
    assert phone.digest() != fork.digest()
