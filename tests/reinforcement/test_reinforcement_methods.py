"""Advantages of each method equal those computed by hand from its formula."""

import math

import pytest

from vlm_agent.reinforcement.methods import METHODS, Trial

WON = Trial(1.0, True, ["a", "b"])
LOST = Trial(0.0, False, ["a", "c", "d"])
GROUP = [WON, LOST, LOST, LOST]


def of(name: str, group=GROUP) -> list[list[float]]:
    return METHODS[name].advantages(group)


def flat(advantages: list[list[float]]) -> list[float]:
    return [value for one in advantages for value in one]


def test_filtered_learns_every_answer_of_a_success_and_none_of_a_failure():
    assert of("filtered") == [[1.0, 1.0], *[[0.0] * 3] * 3]


def test_filtered_goes_by_success_and_not_by_reward():
    assert of("filtered", [Trial(0.5, False, ["a"])]) == [[0.0]]


def test_grpo_subtracts_the_mean_of_the_group():
    assert of("grpo") == [[0.75, 0.75], *[[-0.25] * 3] * 3]


def test_awr_weighs_by_the_exponential_of_the_advantage_up_to_its_bound():
    won, lost = min(math.exp(0.75 / 0.3), 20), math.exp(-0.25 / 0.3)
    assert flat(of("awr")) == pytest.approx([won] * 2 + [lost] * 9)
    assert of("awr", [Trial(9.0, True, ["a"]), Trial(0.0, False, ["a"])])[0] == pytest.approx([20])


def test_gigpo_adds_the_advantage_among_steps_that_begin_in_one_state():
    # The return of a step is the reward times 0.95 for each later answer. In "a" they are 0.95, 0, 0 and 0.
    first = 0.95 - 0.95 / 4
    assert flat(of("gigpo")) == pytest.approx([0.75 + first, 0.75] + [-0.25 - 0.95 / 4, -0.25, -0.25] * 3)


def test_a_state_that_a_trial_meets_twice_is_compared_with_itself():
    (walked,) = of("gigpo", [Trial(1.0, True, ["a", "a"])])
    assert walked == pytest.approx([(0.95 - 1) / 2, (1 - 0.95) / 2])


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("trial", [WON, LOST], ids=["won", "lost"])
def test_a_method_that_compares_learns_nothing_from_equal_trials(name, trial):
    alike = Trial(trial.reward, trial.success, trial.states[:1])
    assert not METHODS[name].compares or not any(value for (value,) in of(name, [alike] * 4))
