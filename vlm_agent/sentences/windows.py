"""Windows: an episode over the token budget becomes several sentences, each action learned in exactly one of them.

A window begins with the goal and with earlier steps, read and not learned, so that its first action has a history too;
at most half of the budget goes to them. The first window of an episode that fits is the whole of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class TooLongError(ValueError):
    """A single step that no budget of this size holds."""


@dataclass(frozen=True)
class Window:
    """Steps `first` … `last`-1 are read, the actions of `learned` … `last`-1 carry loss; `tokens` in all."""

    first: int
    learned: int
    last: int
    tokens: int


def windows(goal: int, steps: Sequence[int], budget: int | None, saved: int = 0) -> list[Window]:
    """Cuts an episode of `goal` tokens and, step by step, `steps` tokens (screen, cue and action together). A step that
    is not the episode's first has `saved` fewer where a window begins with it: nothing stands between goal and screen.

    Raises TooLongError where the goal and one step alone are over the budget.
    """
    if budget is None or goal + sum(steps) <= budget:
        return [Window(0, 0, len(steps), goal + sum(steps))]
    found, learned = [], 0
    while learned < len(steps):
        if goal + steps[learned] > budget:
            raise TooLongError(f"step {learned} takes {goal + steps[learned]} tokens with its goal, over {budget}")
        first, used = learned, goal + steps[learned]
        while first > 0 and used + steps[first - 1] <= max(budget // 2, used):
            first, used = first - 1, used + steps[first - 1]
        used -= saved if first > 0 else 0
        last = learned + 1
        while last < len(steps) and used + steps[last] <= budget:
            last, used = last + 1, used + steps[last]
        found.append(Window(first, learned, last, used))
        learned = last
    return found


def single_steps(goal: int, steps: Sequence[int], budget: int | None, saved: int = 0) -> list[Window]:
    """A window for each step, which knows no other; arguments and TooLongError as of `windows`."""
    found = []
    for step, tokens in enumerate(steps):
        whole = goal + tokens - (saved if step else 0)
        if budget is not None and whole > budget:
            raise TooLongError(f"step {step} takes {whole} tokens with its goal, over {budget}")
        found.append(Window(step, step, step + 1, whole))
    return found
