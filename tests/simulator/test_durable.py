"""What lasts on a simulated phone: goals change it, and looking at things does not."""

from collections import Counter
from collections.abc import Iterator

import pytest

from vlm_agent.devices.acting.episode import side_effects
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.clock import Clock
from vlm_agent.simulator.apps.shop import ShopApp
from vlm_agent.simulator.apps.store import Store
from vlm_agent.simulator.tasks import Task, sample_task

CHANGING = {"add_product", "add_two", "buy_product", "empty_then_add", "remove_product"}  # carts
CHANGING |= {"install", "install_and_open", "uninstall"}  # apps
CHANGING |= {"choose_setting", "quick_switch", "turn_switch", "add_clock", "set_alarm", "see_event"}
CHANGING |= {"call", "handle_mail", "message", "reply_mail", "send_alarm_label"}
"""The templates of the subsets below whose goals last; `see_event` also deletes events."""


def opened_and_closed(seed):
    phone = SimulatedPhone(seed)
    before = phone.durable()
    for name in phone.installed:
        phone.perform(Action.open_app(name))
        phone.canvas()
        phone.perform(Action.press("home"))
    return before, phone.durable()


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 500), marks=pytest.mark.slow)], ids=["few", "all"])
def test_looking_at_every_app_changes_nothing_that_lasts(seeds):
    for seed in seeds:
        before, after = opened_and_closed(seed)
        assert before == after
        assert side_effects(before, before, after) == []


def test_reading_what_lasts_changes_no_screen():
    for seed in range(5):
        looked, other = (SimulatedPhone(seed) for _ in range(2))
        looked.durable()
        for name in other.installed:
            for phone in (looked, other):
                phone.open(name)
            assert (looked.screenshot() == other.screenshot()).all()


def two_of_each(*subsets: str) -> Iterator[Task]:
    """Two tasks of each template of the subsets; those of `see_event` delete one."""
    found = Counter()
    for subset in subsets:
        for task in (sample_task(subset, "train", seed) for seed in range(300)):
            if found[task.template] < 2 and not task.goal.startswith("Show the"):
                found[task.template] += 1
                yield task


def test_what_the_expert_changes_is_a_side_effect_only_of_another_goal():
    changed = set()
    for task in two_of_each("google_apps", "install", "web_shopping"):
        phone = SimulatedPhone(task.seed)
        task.set_up(phone)
        before = phone.durable()
        task.solve(phone, pixels=False)
        after = phone.durable()
        assert side_effects(before, after, before) == side_effects(before, after, after) == []
        if side_effects(before, before, after):
            changed.add(task.template)
    assert changed >= CHANGING
    assert not {"search_store", "look_at_product", "see_cart", "there_and_back"} & changed


@pytest.mark.parametrize(
    ("do", "effects"),
    [
        (lambda phone: phone.the(Clock).save(), ["+ Clock: alarm at 6:00 AM, on"]),
        (lambda phone: phone.the(Store).uninstall(phone.installed[-1]), ["- Chess is installed"]),
        (lambda phone: phone.toggle("Mute"), ["+ Mute is on"]),
        (lambda phone: phone.the(ShopApp).shop.cart.extend(["red ball"] * 2), ["+ Shop: red ball in the cart"] * 2),
    ],
)
def test_a_change_that_lasts_has_a_line_for_each(do, effects):
    phone = SimulatedPhone(0)
    phone.installed.append("Chess")
    phone.switches["Mute"] = False
    before = phone.durable()
    do(phone)
    assert side_effects(before, before, phone.durable()) == effects
