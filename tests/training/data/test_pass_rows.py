"""A dry run's table states what a pass over the episodes reads."""

import pytest

from vlm_agent.models.cost import Workload
from vlm_agent.training.data.sentence_kinds.trajectory import TrajectoryPass


@pytest.mark.parametrize(
    ("over_budget", "windows", "screen_tokens", "expected"),
    [
        (0, 0, (24, 24.0, 24), {"over the budget": "none", "tokens a screen": "24"}),
        (
            1200,
            3400,
            (24, 1530.6, 2048),
            {"over the budget": "1,200 episodes, cut into 3,400 windows", "tokens a screen": "1,531 (24 to 2,048)"},
        ),
    ],
)
def test_trajectories_over_the_budget_and_tokens_of_screens_are_listed(over_budget, windows, screen_tokens, expected):
    counted = TrajectoryPass(2000, 4200, 1900, 9, Workload(1, 1, 1, {}), over_budget, windows, screen_tokens)
    assert counted.rows() == expected
