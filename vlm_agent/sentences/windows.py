"""Windows: an episode over the token budget is split into several sentences; each action is supervised in exactly one.

A window begins with the goal and a few earlier steps without a loss, so its first supervised action has a history too.
The earlier steps are added while the window is at most half of the budget. An episode within the budget is one window.

With `data.past_screens`, each step is a window, and `EarlierSteps` has what a step knows of earlier ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vlm_agent.errors import UserError
from vlm_agent.recipe.data import DataRecipe


class TooLongError(UserError):
    """A goal, or a single step with its goal, is longer than the budget."""


@dataclass(frozen=True)
class EarlierSteps:
    """What a step knows of earlier ones: the last `screens` with their actions, and before them at most `words` steps
    in words; None: all others."""

    screens: int
    words: int | None = None

    def first_shown(self, number: int) -> int:
        """The first step whose screen step `number` is shown with."""
        return max(0, number - self.screens)

    def first_in_words(self, number: int) -> int:
        """The first of the steps that step `number` has in words; `first_shown` if there are none."""
        shown = self.first_shown(number)
        return 0 if self.words is None else max(0, shown - self.words)


def past_of(data: DataRecipe) -> EarlierSteps | None:
    """None: whole trajectories."""
    return None if data.past_screens is None else EarlierSteps(data.past_screens, data.history)


@dataclass(frozen=True)
class Window:
    """Steps `first` … `last`-1 of an episode, `tokens` long; actions from step `first_supervised` on are supervised."""

    first: int
    first_supervised: int
    last: int
    tokens: int


Length = Callable[[int, int, int], int]
"""From (first step, first supervised step, last step + 1) to the tokens of such a sentence."""


def windows(steps: int, length: Length, budget: int | None) -> list[Window]:
    """Splits an episode of `steps` steps into windows of at most `budget` tokens; `budget` None: one window.

    Raises TooLongError if the goal and a single step are over the budget.
    """
    whole = length(0, 0, steps)
    if budget is None or whole <= budget:
        return [Window(0, 0, steps, whole)]
    result: list[Window] = []
    start = 0  # the first step that is not supervised yet
    while start < steps:
        _check(start, length(start, start, start + 1), budget, "its goal")
        first = start
        while first > 0 and length(first - 1, start, start + 1) <= budget // 2:
            first -= 1
        last = start + 1
        while last < steps and length(first, start, last + 1) <= budget:
            last += 1
        result.append(Window(first, start, last, length(first, start, last)))
        start = last
    return result


def single_steps(steps: int, length: Length, past: EarlierSteps | None, budget: int | None) -> list[Window]:
    """One window per step, from the first step whose screen it shows; without `past`, without history. Raises
    TooLongError as `windows`."""
    found = []
    for step in range(steps):
        first = step if past is None else past.first_shown(step)
        tokens = length(first, step, step + 1)
        _check(step, tokens, budget, "its goal" if past is None else "its goal and earlier steps")
        found.append(Window(first, step, step + 1, tokens))
    return found


def _check(step: int, tokens: int, budget: int | None, beside: str) -> None:
    if budget is not None and tokens > budget:
        raise TooLongError(f"step {step} takes {tokens} tokens with {beside}, over {budget}")
