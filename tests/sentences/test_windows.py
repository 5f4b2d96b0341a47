"""An episode over the budget becomes windows, in which every action is learned once, with a history."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.sentences.windows import TooLongError, Window, single_steps, windows

STEPS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@st.composite
def episodes(draw) -> tuple[int, list[int], int]:
    """(goal, steps, budget), where every step fits."""
    goal, steps = draw(st.integers(0, 20)), draw(STEPS)
    return goal, steps, draw(st.integers(goal + max(steps), goal + sum(steps) + 20))


@given(episodes())
def test_every_step_is_learned_once_and_in_order(episode):
    found = windows(*episode)
    learned = [step for window in found for step in range(window.first_supervised, window.last)]
    assert learned == list(range(len(episode[1])))
    assert all(window.first_supervised < window.last for window in found)


@given(episodes())
def test_no_window_is_over_the_budget_and_its_tokens_are_counted(episode):
    goal, steps, budget = episode
    for window in windows(goal, steps, budget):
        assert window.tokens == goal + sum(steps[window.first : window.last]) <= budget


@given(episodes())
def test_what_is_only_read_takes_at_most_half_of_the_budget(episode):
    """Beside the goal and the first step that is learned, which have to be there anyhow."""
    goal, steps, budget = episode
    for window in windows(goal, steps, budget):
        read = goal + sum(steps[window.first : window.first_supervised + 1])
        assert 0 <= window.first <= window.first_supervised
        assert window.first == window.first_supervised or read <= budget // 2


@given(episodes())
def test_a_window_has_as_much_history_and_as_many_steps_as_there_is_room_for(episode):
    goal, steps, budget = episode
    for window in windows(goal, steps, budget):
        if len(steps) == window.last - window.first:
            continue
        if window.first > 0:
            assert goal + sum(steps[window.first - 1 : window.first_supervised + 1]) > budget // 2
        if window.last < len(steps):
            assert window.tokens + steps[window.last] > budget


@given(st.integers(0, 20), STEPS, st.integers(0, 20))
def test_what_fits_is_one_window(goal, steps, room):
    whole = [Window(0, 0, len(steps), goal + sum(steps))]
    assert windows(goal, steps, goal + sum(steps) + room) == whole
    assert windows(goal, steps, None) == whole


@given(STEPS, st.integers(0, 20), st.integers(1, 60))
def test_a_step_that_fits_into_no_window_is_an_error_that_names_it(steps, goal, budget):
    over = [number for number, step in enumerate(steps) if goal + step > budget]
    if not over:
        assert windows(goal, steps, budget)
        return
    with pytest.raises(TooLongError, match=rf"^step {over[0]} takes {goal + steps[over[0]]} tokens .* over {budget}$"):
        windows(goal, steps, budget)


def test_an_example():
    found = windows(5, [10] * 8, 45)
    assert found == [Window(0, 0, 4, 45), Window(4, 4, 8, 45)]  # a step of history would be 25 of 45, over half
    found = windows(2, [10] * 8, 45)
    assert found == [Window(0, 0, 4, 42), Window(3, 4, 7, 42), Window(6, 7, 8, 22)]
    assert all(after.first < before.last for before, after in itertools.pairwise(found))


@given(episodes())
def test_without_history_every_step_is_a_window_of_its_own(episode):
    goal, steps, budget = episode
    found = single_steps(goal, steps, budget)
    assert [(window.first, window.first_supervised, window.last) for window in found] == [
        (step, step, step + 1) for step in range(len(steps))
    ]
    assert [window.tokens for window in found] == [goal + tokens for tokens in steps]
