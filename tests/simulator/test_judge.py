"""The judge of simulated tasks has no shortcut (all figures: `python -m benchmarks.simulated_phone --judge`)."""

from benchmarks.simulated_phone import judged
from vlm_agent.simulator.demonstrations import simulated_tasks


def test_no_goal_is_reached_at_the_start_every_one_by_the_expert_and_few_at_random():
    found = judged(simulated_tasks(80, 0, "train"), 25)
    assert (found.at_start, found.by_expert) == (0, found.tasks)
    assert found.at_random <= 4
