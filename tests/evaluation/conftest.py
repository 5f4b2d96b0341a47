"""A small random world to score."""

import numpy as np
import pytest
from helpers.evaluation.gold_steps import episode, random_action

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.episodes import UiElement


@pytest.fixture(scope="session")
def world():
    """Sixty episodes of 1 … 7 steps in all subsets, on screens of up to 12 elements; unanswered."""
    rng = np.random.default_rng(7)
    rows = []
    for number in range(60):
        elements = tuple(
            UiElement((*(rng.random(2) * 0.9).tolist(), *(0.03 + rng.random(2) * 0.15).tolist()), f"e{k}")
            for k in range(rng.integers(0, 13))
        )
        actions = [random_action(rng, elements) for _ in range(rng.integers(1, 8))]
        rows += episode(f"{number:03d}", SUBSETS[number % 5], actions, elements)
    return rows
