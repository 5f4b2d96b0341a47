"""The judge of simulated tasks has no shortcut (all figures: `python -m benchmarks.simulated_phone --judge`)."""

import re

import pytest

from benchmarks.simulated_phone import judged
from vlm_agent.simulator import SimulatedPhone, Task, sample_task
from vlm_agent.simulator.app import Route
from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.apps.calendar import Calendar
from vlm_agent.simulator.apps.clock import Clock
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.apps.mail import Mail
from vlm_agent.simulator.apps.messages import Messages
from vlm_agent.simulator.apps.shop import ShopApp
from vlm_agent.simulator.apps.store import Store
from vlm_agent.simulator.demonstrations import simulated_tasks


def test_no_goal_is_reached_at_the_start_every_one_by_the_expert_and_few_at_random():
    found = judged(simulated_tasks(80, 0, "train"), 25)
    assert (found.at_start, found.by_expert) == (0, found.tasks)
    assert found.at_random <= 4


def tasks_of(*templates: str, words: str = "", subset: str = "single") -> list[Task]:
    """A task of each template, with the words in its goal."""
    sampled = (sample_task(subset, "train", seed) for seed in range(3000))
    fitting = {task.template: task for task in sampled if task.template in templates and words in task.goal}
    assert set(fitting) == set(templates)
    return list(fitting.values())


def solved(subset: str, template: str, words: str = "") -> tuple[Task, SimulatedPhone]:
    """A task, and its phone after the expert's actions."""
    (task,) = tasks_of(template, words=words, subset=subset)
    phone = started(task)
    task.solve(phone, pixels=False)
    assert task.reached(phone)
    return task, phone


def started(task: Task) -> SimulatedPhone:
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    return phone


@pytest.mark.parametrize(
    "task",
    [
        *tasks_of(
            "turn_photo", "section_here", "event_here", "close_shade", "scroll_back", "open_site_here", "go_back"
        ),
        *tasks_of("mail_here", words="Open"),
        *tasks_of("product_here", words="Look at"),
    ],
    ids=lambda task: task.template,
)
def test_a_page_that_a_goal_names_must_be_on_the_screen(task):
    phone = started(task)
    task.solve(phone, pixels=False)
    assert task.reached(phone)
    phone.shade = True
    assert not task.reached(phone)
    phone.press_home()
    assert not task.reached(phone)


def test_quick_settings_over_another_app_are_not_those_that_were_asked_for():
    (task,) = tasks_of("pull_shade")
    phone = started(task)
    phone.press_home()
    phone.shade = True
    assert not task.reached(phone)


def test_recent_apps_the_drawer_and_quick_settings_are_not_the_home_screen():
    (task,) = tasks_of("go_home")
    phone = started(task)
    for page in ("recents", "drawer"):
        phone.press_home()
        assert task.reached(phone)
        phone.the(Launcher).push(page, 0)
        assert not task.reached(phone), page
    phone.press_home()
    phone.shade = True
    assert not task.reached(phone)


def test_another_page_is_not_the_top_of_the_page_that_was_to_be_scrolled():
    (task,) = tasks_of("scroll_back")
    phone = started(task)
    app = phone.app(phone.front)
    app.push("another")
    assert app.route.scroll == 0 and not task.reached(phone)


def test_the_event_of_the_same_name_on_another_day_is_another_event():
    (task,) = tasks_of("event_here")
    phone = started(task)
    task.solve(phone, pixels=False)
    phone.the(Calendar).at += 1 if phone.the(Calendar).at == 0 else -1
    assert not task.reached(phone)


def test_a_site_that_is_opened_without_the_search_is_not_a_site_of_its_results():
    task, phone = solved("general", "look_up_and_open")
    browser = phone.the(Browser)
    browser.routes[-2] = Route("home")
    assert not task.reached(phone)


def test_two_products_may_be_in_the_cart_in_any_order_but_must_be_there():
    task, phone = solved("web_shopping", "add_two", "Shop app")
    shop = phone.the(ShopApp).shop
    shop.cart.reverse()
    assert task.reached(phone)
    shop.remove(shop.cart[0])
    assert not task.reached(phone)


@pytest.mark.parametrize(
    ("subset", "template"), [("web_shopping", "add_product"), ("single", "product_here")], ids=lambda name: name
)
def test_a_product_that_was_removed_again_is_not_in_the_cart(subset, template):
    task, phone = solved(subset, template, "Shop app" if subset == "web_shopping" else "Add the")
    phone.the(ShopApp).shop.remove(phone.the(ShopApp).shop.cart[-1])
    assert not task.reached(phone)


def test_a_cart_is_checked_out_from_the_cart_with_its_product():
    task, phone = solved("web_shopping", "see_cart", "Check out the cart")
    host = phone.app(phone.front)
    kept, host.routes[-2] = host.routes[-2], Route("shop_product", "red lamp")
    assert not task.reached(phone)
    host.routes[-2] = kept
    assert task.reached(phone)


def test_an_alarm_that_is_off_again_wakes_nobody():
    task, phone = solved("google_apps", "set_alarm")
    phone.the(Clock).flip(phone.the(Clock).alarms[-1])
    assert not task.reached(phone)


def test_an_alarm_is_set_on_a_phone_that_has_none_at_that_time():
    for task in (sample_task("google_apps", "train", seed) for seed in range(3100, 3200)):
        if task.template == "set_alarm":
            time = re.search(r"\d+:\d+ [AP]M", task.goal).group()
            assert time not in [alarm.time for alarm in started(task).the(Clock).alarms]


def test_an_app_that_is_installed_again_is_not_uninstalled():
    task, phone = solved("install", "uninstall", "Remove")
    phone.installed.append(phone.the(Store).removals[-1])
    assert not task.reached(phone)


@pytest.mark.parametrize(("template", "app"), [("message", Messages), ("reply_mail", Mail)])
def test_letters_of_a_sent_text_may_be_capital(template, app):
    task, phone = solved("google_apps", template)
    before = phone.durable()
    phone.the(app).sent = [(name, text.upper()) for name, text in phone.the(app).sent]
    assert task.reached(phone) and phone.durable() == before


def test_a_search_in_a_shop_may_have_capital_letters():
    task, phone = solved("web_shopping", "search_product")
    route = phone.app(phone.front).route
    route.about = route.about.title()
    assert task.reached(phone)


def test_a_time_on_the_open_dial_is_chosen():
    (task,) = tasks_of("dial_here", words="Choose")
    phone = started(task)
    clock, (hour, minute, half) = phone.the(Clock), re.search(r"(\d+):(\d+) ([AP]M)", task.goal).groups()
    assert not task.reached(phone)
    clock.draft = {"hour": int(hour), "minute": int(minute), "half": half}
    assert task.reached(phone)
    clock.pop()
    assert not task.reached(phone)


def test_there_and_back_ends_in_the_first_app_whatever_else_was_opened():
    task, phone = solved("google_apps", "there_and_back")
    first = phone.front
    phone.open_history.insert(-1, "Bank")
    assert task.reached(phone) or first == "Bank"
    phone.press_home()
    assert not task.reached(phone)


def test_another_switch_between_off_and_on_does_not_undo_them():
    task, phone = solved("google_apps", "turn_off_and_on")
    phone.toggle_history.insert(-1, ("another", True))
    assert task.reached(phone)
