"""The browser phone's worlds and tasks, without a browser."""

import pytest

from vlm_agent.devices.browser_tasks import SITES, browser_task
from vlm_agent.devices.browser_world import make_world
from vlm_agent.episodes import SUBSETS


class StateOnly:
    def __init__(self, state):
        self._state = state

    def state(self):
        return self._state


def test_a_seed_makes_the_same_world_and_task_again():
    assert make_world(5) == make_world(5) != make_world(6)
    for site in SITES:
        assert browser_task(site, 5) == browser_task(site, 5)
        assert len({browser_task(site, seed).goal for seed in range(40)}) > 20


def test_products_are_told_apart_by_name_and_by_price():
    for seed in range(20):
        products = make_world(seed)["products"]
        assert len({item["name"] for item in products}) == len({item["price"] for item in products}) == len(products)


@pytest.mark.parametrize("site", SITES)
def test_no_task_is_reached_at_its_start_and_each_is_with_what_it_asks_for(site):
    for seed in range(60):
        task = browser_task(site, seed)
        start = {"cart": {}, "orders": [], "opened": [], "settings": make_world(seed)["settings"]}
        assert not task.reached(StateOnly(start)), task.goal
        assert task.reached(StateOnly(start | task.expected))
        assert not task.reached(StateOnly(start | task.expected | {"orders": [{"items": {"p0": 9}}]})), (
            "something bought"
        )
        assert task.subset in SUBSETS


def test_a_site_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="'bank'; there are shop and settings"):
        browser_task("bank", 0)
