"""Windows: an episode over the token budget is split into several sentences; each action is supervised in exactly one.

A window begins with the goal and a few earlier steps without a loss, so its first supervised action has a history too.
The earlier steps are added while the window is at most half of the budget. An episode within the budget is one window.

With `data.past_screens`, each step is a window, and `Past` has what a step knows of earlier ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.errors import UserError
from vlm_agent.recipe.data import DataRecipe


class TooLongError(UserError):
    """A single step with its goal is longer than the budget."""


@dataclass(frozen=True)
class Past:
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


def past_of(data: DataRecipe) -> Past | None:
    """None: whole trajectories."""
    return None if data.past_screens is None else Past(data.past_screens, data.history)


@dataclass(frozen=True)
class PastTokens:
    """The tokens of an episode's steps as earlier ones. `shown`: with screen and action. `words`: in words. `heading`:
    before the first step in words."""

    shown: Sequence[int]
    words: Sequence[int]
    heading: int


@dataclass(frozen=True)
class Window:
    """Steps `first` … `last`-1 of an episode, `tokens` long; actions from step `first_supervised` on are supervised."""

    first: int
    first_supervised: int
    last: int
    tokens: int


def windows(goal: int, steps: Sequence[int], budget: int | None, saved: int = 0) -> list[Window]:
    """Splits an episode into windows of at most `budget` tokens; `budget` None: one window.

    `goal`: tokens before the first step. `steps`: tokens of each step (screen, cue and action). `saved`: tokens that a
    step other than the first loses at the start of a window, where it follows the goal and not a previous turn. Raises
    TooLongError if the goal and a single step are over the budget.
    """
    if budget is None or goal + sum(steps) <= budget:
        return [Window(0, 0, len(steps), goal + sum(steps))]
    result: list[Window] = []
    start = 0  # the first step that is not supervised yet
    while start < len(steps):
        if goal + steps[start] > budget:
            raise TooLongError(f"step {start} takes {goal + steps[start]} tokens with its goal, over {budget}")
        first, used = start, goal + steps[start]
        while first > 0 and used + steps[first - 1] <= max(budget // 2, used):
            first, used = first - 1, used + steps[first - 1]
        used -= saved if first > 0 else 0
        last = start + 1
        while last < len(steps) and used + steps[last] <= budget:
            last, used = last + 1, used + steps[last]
        result.append(Window(first, start, last, used))
        start = last
    return result


def single_steps(goal: int, steps: Sequence[int], budget: int | None, saved: int = 0) -> list[Window]:
    """One window per step, without history. Arguments and TooLongError as for `windows`."""
    found = []
    for step, tokens in enumerate(steps):
        whole = goal + tokens - (saved if step else 0)
        if budget is not None and whole > budget:
            raise TooLongError(f"step {step} takes {whole} tokens with its goal, over {budget}")
        found.append(Window(step, step, step + 1, whole))
    return found


def steps_after_past(
    goal: int, steps: Sequence[int], earlier: PastTokens, past: Past, budget: int | None, saved: int = 0
) -> list[Window]:
    """One window per step, from the first step whose screen it shows. Arguments and TooLongError as for `windows`."""
    found = []
    for step, tokens in enumerate(steps):
        word, shown = past.first_in_words(step), past.first_shown(step)
        in_words = sum(earlier.words[word:shown]) + (earlier.heading if word < shown else 0)
        whole = goal + in_words + sum(earlier.shown[shown:step]) + tokens - (saved if shown else 0)
        if budget is not None and whole > budget:
            raise TooLongError(f"step {step} takes {whole} tokens with its goal and earlier steps, over {budget}")
        found.append(Window(shown, step, step + 1, whole))
    return found
