"""The browser phone: touch, text, buttons, exact resets, and no network."""

import numpy as np
import pytest
from helpers.phones.browser_phone import needs_browser, tap, texts, type_into

from vlm_agent.devices.browser.phone import BrowserPhone
from vlm_agent.devices.browser.tasks import BrowserTask, browser_task, make_world
from vlm_agent.episodes import Action, ActionKind

pytestmark = needs_browser
SEED = 3


@pytest.fixture(scope="module")
def opened():
    with BrowserPhone() as phone:
        yield phone


@pytest.fixture
def start(opened):
    def start(site=None, seed=SEED):
        opened.reset(site, seed)
        return opened

    return start


def test_the_screen_is_that_of_a_phone(start):
    phone = start("shop")
    screen = phone.screenshot()
    assert (screen.dtype, screen.shape, phone.size) == (np.uint8, (2402, 1082, 3), (2402, 1082))
    assert phone.activity == "shop/list"
    assert screen.std() > 10


def test_elements_are_the_texts_where_they_are_drawn(start):
    phone = start("shop")
    screen = phone.screenshot()
    first = make_world(SEED)["products"][0]
    found = {element.text: element.box for element in phone.elements()}
    assert {"Little Shop", "Cart", "All", first["name"]} <= set(found)
    for y, x, height, width in found.values():
        assert 0 <= y < y + height <= 1
        assert 0 <= x < x + width <= 1
    y, x, height, width = found[first["name"]]
    rows = slice(int(y * 2402), int((y + height) * 2402))
    columns = [int(side * 1082) for side in (x, x + width)]
    assert screen[rows, slice(*columns)].min() < 80, "dark letters inside the box"
    assert screen[rows, columns[0] - 12 : columns[0] - 2].min() > 200, "and none to the left of it"


def test_open_app_opens_a_site_by_name_and_nothing_else(start):
    phone = start()
    phone.perform(Action.open_app("Settings"))
    phone.screenshot()
    assert phone.activity == "settings/overview"
    for name in ("bank", "", "shop`); alert(`"):
        phone.perform(Action.open_app(name))
    phone.screenshot()
    assert phone.activity == "settings/overview"


@pytest.mark.parametrize("action", [Action.wait(), Action.recents(), Action.answer("3"), Action.long_press(0.5, 0.5)])
def test_waiting_answering_recents_and_long_presses_change_nothing(start, action):
    phone = start("shop")
    before, state = phone.screenshot(), phone.state()
    phone.perform(action)
    np.testing.assert_array_equal(phone.screenshot(), before)
    assert (phone.state(), phone.activity) == (state, "shop/list")
    assert (phone.answer, phone.status) == (action.text or None, None)


def test_a_tap_flips_a_switch_and_only_that_one(start):
    phone = start("settings")
    before = phone.state()["settings"]
    tap(phone, "Connected devices")
    tap(phone, "Bluetooth")
    assert phone.state()["settings"] == before | {"bluetooth": not before["bluetooth"]}


def test_a_swipe_scrolls_as_far_as_the_finger_moves(start):
    phone = start("shop")
    name = make_world(SEED)["products"][4]["name"]
    tops = []
    for _ in range(2):
        assert name in texts(phone)
        tops.append(next(element.box[0] for element in phone.elements() if element.text == name))
        phone.perform(Action.swipe((0.7, 0.5), (0.4, 0.5)))
    undecided = 15 / 915  # Chromium takes shorter movements for a tap
    assert tops[0] - tops[1] == pytest.approx(0.3 - undecided, abs=0.004)


def test_a_swipe_sideways_moves_the_row_under_the_finger(start):
    phone = start("shop")
    assert "Vases" not in texts(phone)
    row = next(element.centre_yx[0] for element in phone.elements() if element.text == "All")
    for _ in range(2):
        phone.perform(Action.swipe((row, 0.9), (row, 0.1)))
    assert "Vases" in texts(phone)


def test_text_is_typed_unchanged(start):
    text = "Türkis 中文 🙂 עברית <img src=https://a.example/ onerror=alert(1)> '\"; `$(id)` 100%41"
    phone = start("shop")
    tap(phone, "Search")
    type_into(phone, "Search products", text)
    assert text in texts(phone)
    phone.perform(Action.press("enter"))
    assert any(f"for “{text}”" in shown for shown in texts(phone))
    assert phone.activity == "shop/results"
    assert phone.blocked == []


def test_back_returns_to_the_previous_page_and_home_to_the_launcher(start):
    phone = start("shop")
    phone.perform(Action.swipe((0.7, 0.5), (0.4, 0.5)))
    scrolled = phone.screenshot()
    phone.perform(Action.tap(0.5, 0.3))
    assert texts(phone)
    assert phone.activity == "shop/product"
    phone.perform(Action.press("back"))
    assert np.array_equal(phone.screenshot(), scrolled)
    phone.perform(Action.press("home"))
    assert texts(phone) == ["Shop", "Settings"]
    assert phone.activity == "launcher/home"
    phone.perform(Action.press("back"))
    assert texts(phone) == ["Shop", "Settings"], "nothing lies behind the home screen"


def test_requests_to_other_hosts_are_blocked_and_recorded(start):
    phone = start("settings")
    tap(phone, "Help centre")
    assert phone.blocked == ["https://elsewhere.example/"]
    assert "Settings" in texts(phone)
    phone._page.evaluate("() => fetch('/secret').catch(String)")
    phone._page.evaluate("() => new Promise((done) => { new WebSocket('wss://b.example').onclose = () => done() })")
    assert phone.blocked[1:] == ["http://phone.invalid/secret", "wss://b.example/"]


def test_a_status_action_is_recorded_and_changes_nothing(start):
    phone = start("settings")
    before = phone.state(), texts(phone)
    phone.perform(Action.complete())
    assert phone.status is ActionKind.STATUS_TASK_COMPLETE
    assert (phone.state(), texts(phone)) == before


def test_a_reset_gives_the_same_pixels_and_state(start):
    phone = start("shop")
    screen, state = phone.screenshot(), phone.state()
    phone.perform(Action.tap(0.5, 0.3))
    tap(phone, "Add to cart")
    start("shop")
    assert np.array_equal(phone.screenshot(), screen)
    assert (phone.state(), phone.status, phone.blocked) == (state, None, [])
    here = texts(phone)
    assert texts(start("shop", SEED + 1)) != here, "another seed, another shop"


def test_an_order_reaches_its_task_and_nothing_less_does(start):
    product = make_world(SEED)["products"][6]
    order = {"items": {product["id"]: 1}, "name": "Zoë 小", "delivery": "Express"}
    untouched = {"cart": {}, "settings": make_world(SEED)["settings"]}
    task = BrowserTask(
        "shop", SEED, f"Order one {product['name']} for Zoë 小", untouched | {"orders": [order]}, "order"
    )
    phone = start()
    task.set_up(phone)
    tap(phone, product["name"])
    tap(phone, "Add to cart")
    tap(phone, "Cart")
    tap(phone, "Checkout")
    tap(phone, "Place order")
    assert "Please enter a name." in texts(phone)
    type_into(phone, "Full name", "Zoë 小")
    tap(phone, "Express")
    assert not task.reached(phone)
    tap(phone, "Place order")
    assert "Thank you!" in texts(phone)
    assert task.reached(phone)
    task.set_up(phone)
    assert not task.reached(phone)


def test_a_device_name_is_typed_and_saved(start):
    task = next(task for task in (browser_task("settings", seed) for seed in range(50)) if "device name" in task.goal)
    phone = start()
    task.set_up(phone)
    tap(phone, "About phone")
    tap(phone, "Clear")
    phone.perform(Action.type_text(task.expected["settings"]["name"]))
    assert not task.reached(phone)
    tap(phone, "Save")
    assert task.reached(phone)


def test_widgets_are_those_of_the_page_with_their_states_and_in_view(start):
    phone = start("settings")
    tap(phone, "Connected devices")
    switches = [widget for widget in phone.widgets() if widget.kind == "switch"]
    settings = phone.state()["settings"]
    assert [widget.on for widget in switches] == [settings["bluetooth"], settings["nfc"]]
    tap(phone, "Bluetooth")
    assert [one.on for one in phone.widgets() if one.kind == "switch"] == [not settings["bluetooth"], settings["nfc"]]
    phone.reset("shop", SEED)
    kinds = [widget.kind for widget in phone.widgets()]
    assert set(kinds) == {"button", "image"}
    for y, x, height, width in (widget.box for widget in phone.widgets()):
        assert 0 <= y < y + height <= 1
        assert 0 <= x < x + width <= 1
    phone.perform(Action.swipe((0.8, 0.5), (0.3, 0.5)))
    assert len({widget.box for widget in phone.widgets() if widget.kind == "image"}) >= 4
