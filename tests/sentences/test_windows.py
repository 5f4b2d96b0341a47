"""An episode over the token budget becomes windows, in which every action is supervised once, with a history."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.sentences.windows import EarlierSteps, TooLongError, Window, single_steps
from vlm_agent.sentences.windows import windows as cut

STEPS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def length_of(goal: int, steps: list[int], saved: int = 0):
    """The tokens of a sentence that is its goal and its steps. `saved`: what the first step, if not 0, loses."""
    return lambda first, supervised, last: goal + sum(steps[first:last]) - (saved if first else 0)


def windows(goal: int, steps: list[int], budget: int | None) -> list[Window]:
    return cut(len(steps), length_of(goal, steps), budget)


@st.composite
def episodes(draw) -> tuple[int, list[int], int]:
    """(goal, steps, budget) such that every single step fits."""
    goal, steps = draw(st.integers(0, 20)), draw(STEPS)
    return goal, steps, draw(st.integers(goal + max(steps), goal + sum(steps) + 20))


@given(episodes())
def test_every_step_is_supervised_once_and_in_order(episode):
    result = windows(*episode)
    supervised = [step for window in result for step in range(window.first_supervised, window.last)]
    assert supervised == list(range(len(episode[1])))
    assert all(window.first_supervised < window.last for window in result)


@given(episodes())
def test_no_window_is_over_the_budget_and_its_token_count_is_right(episode):
    goal, steps, budget = episode
    for window in windows(goal, steps, budget):
        assert window.tokens == goal + sum(steps[window.first : window.last]) <= budget


@given(episodes())
def test_steps_without_a_loss_take_at_most_half_of_the_budget(episode):
    """Together with the goal and the first supervised step, which every window needs."""
    goal, steps, budget = episode
    for window in windows(goal, steps, budget):
        read = goal + sum(steps[window.first : window.first_supervised + 1])
        assert 0 <= window.first <= window.first_supervised
        assert window.first == window.first_supervised or read <= budget // 2


@given(episodes())
def test_a_window_has_as_much_history_and_as_many_steps_as_fit(episode):
    goal, steps, budget = episode
    for window in windows(goal, steps, budget):
        if len(steps) == window.last - window.first:
            continue
        if window.first > 0:
            assert goal + sum(steps[window.first - 1 : window.first_supervised + 1]) > budget // 2
        if window.last < len(steps):
            assert window.tokens + steps[window.last] > budget


@given(st.integers(0, 20), STEPS, st.integers(0, 20))
def test_an_episode_within_the_budget_is_one_window(goal, steps, room):
    whole = [Window(0, 0, len(steps), goal + sum(steps))]
    assert windows(goal, steps, goal + sum(steps) + room) == whole
    assert windows(goal, steps, None) == whole


@given(STEPS, st.integers(0, 20), st.integers(1, 60))
def test_a_step_over_the_budget_is_an_error_that_names_it(steps, goal, budget):
    over = [number for number, step in enumerate(steps) if goal + step > budget]
    if not over:
        assert windows(goal, steps, budget)
        return
    with pytest.raises(TooLongError, match=rf"^step {over[0]} takes {goal + steps[over[0]]} tokens .* over {budget}$"):
        windows(goal, steps, budget)


def test_windows_of_an_example():
    result = windows(5, [10] * 8, 45)
    assert result == [Window(0, 0, 4, 45), Window(4, 4, 8, 45)]  # a step of history would be 25 of 45, over half
    result = windows(2, [10] * 8, 45)
    assert result == [Window(0, 0, 4, 42), Window(3, 4, 7, 42), Window(6, 7, 8, 22)]
    assert all(after.first < before.last for before, after in itertools.pairwise(result))


@given(episodes())
def test_single_steps_are_one_window_per_step(episode):
    goal, steps, budget = episode
    result = single_steps(len(steps), length_of(goal, steps), None, budget)
    assert [(window.first, window.first_supervised, window.last) for window in result] == [
        (step, step, step + 1) for step in range(len(steps))
    ]
    assert [window.tokens for window in result] == [goal + tokens for tokens in steps]


def test_a_single_step_over_the_budget_is_an_error():
    length = length_of(10, [5, 5, 7], saved=3)
    assert [window.tokens for window in single_steps(3, length, None, 15)] == [15, 12, 14]
    with pytest.raises(TooLongError, match="step 0 takes 15 tokens with its goal, over 14"):
        single_steps(3, length, None, 14)


def test_a_step_after_its_past_may_fill_the_budget():
    past, length = EarlierSteps(screens=1, words=1), length_of(10, [5, 5, 7])
    found = single_steps(3, length, past, 22)
    assert [(window.first, window.first_supervised, window.tokens) for window in found] == [
        (0, 0, 15),
        (0, 1, 20),
        (1, 2, 22),
    ]
    with pytest.raises(TooLongError, match="step 2 takes 22 tokens with its goal and earlier steps, over 21"):
        single_steps(3, length, past, 21)
