"""The browser phone's worlds and tasks, without a browser."""

import hashlib
import json

import pytest

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.devices.browser.tasks import SITES, browser_task, make_world
from vlm_agent.errors import UserError


class StateOnly:
    def __init__(self, state):
        self._state = state

    def state(self):
        return self._state


def test_a_seed_determines_world_and_task():
    assert make_world(5) == make_world(5) != make_world(6)
    for site in SITES:
        assert browser_task(site, 5) == browser_task(site, 5)
        assert len({browser_task(site, seed).goal for seed in range(40)}) > 20


def test_worlds_and_tasks_keep_their_content():
    """Scores on the browser phone are comparable only on the same worlds."""
    state = hashlib.sha256()
    for seed in range(20):
        state.update(json.dumps(make_world(seed), sort_keys=True).encode())
        for site in SITES:
            task = browser_task(site, seed)
            state.update(json.dumps([task.goal, task.subset, task.expected], sort_keys=True).encode())
    assert state.hexdigest()[:16] == "c7833b66d3b55663"


def test_names_and_prices_of_products_are_unique():
    for seed in range(20):
        products = make_world(seed)["products"]
        assert len({item["name"] for item in products}) == len({item["price"] for item in products}) == len(products)


@pytest.mark.parametrize("site", SITES)
def test_a_task_is_reached_exactly_in_its_expected_state(site):
    for seed in range(60):
        task = browser_task(site, seed)
        start = {"cart": {}, "orders": [], "opened": [], "settings": make_world(seed)["settings"]}
        assert not task.reached(StateOnly(start)), task.goal
        assert task.reached(StateOnly(start | task.expected))
        assert not task.reached(StateOnly(start | task.expected | {"orders": [{"items": {"p0": 9}}]})), (
            "something bought"
        )
        assert task.subset in SUBSETS


def test_an_unknown_site_is_refused():
    with pytest.raises(UserError, match="unknown site 'bank'; choose shop or settings"):
        browser_task("bank", 0)
