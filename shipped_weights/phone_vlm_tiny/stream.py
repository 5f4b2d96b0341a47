"""The endless stream of lessons: a lesson's number determines its content, and difficulty increases with the number."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shipped_weights.phone_vlm_tiny.drawn.exploration_walk import draw_exploration_walk, draw_seek_walk
from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import (
    draw_checked_walk,
    draw_instructed_walk,
    draw_partially_instructed_walk,
)
from shipped_weights.phone_vlm_tiny.drawn.screens import draw_screen
from shipped_weights.phone_vlm_tiny.lessons import Lessons
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe
from vlm_agent.episodes import Step
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import label_elements
from vlm_agent.sentences.trajectory import TrajectorySentences

HELD_OUT = "held out"
"""The seed of validation lessons. No run trains on them, because the seed of a run is a number."""


class EndlessOrder:
    """Batches of `count` sentences in stream order: row k has the sentences k · `count` … (k + 1) · `count` - 1."""

    items = range(2**62)  # item k is lesson number k

    def __init__(self, count: int, seed: int | str) -> None:
        self.count, self.seed = count, seed

    def row(self, number: int) -> list[tuple[int, int]]:
        """(item, its number in the stream) of each sentence in row `number`."""
        return [(at, at) for at in range(number * self.count, (number + 1) * self.count)]


@dataclass(frozen=True)
class DrawnLessons:
    """Writes lesson `number` of the curriculum in `settings`, a function of the number and its generator alone.

    `total`: the number of lessons of the run, which its stages divide. `grid`: (rows, columns) of the visual tokens if
    they are supervised with element labels, otherwise None.
    """

    trajectory: TrajectorySentences
    settings: DrawnRecipe
    total: int
    grid: tuple[int, int] | None = None

    @property
    def lessons(self) -> Lessons:
        return Lessons(self.trajectory, self.settings.items, self.settings)

    def at_full_difficulty(self) -> "DrawnLessons":
        """The stream after the last stage of the curriculum."""
        stages = {"dense": 0.0, "instructed_walks": 0.0, "exploration_walks": 0.0}
        return replace(self, settings=self.settings.model_copy(update=stages))

    def __call__(self, number: int, rng: random.Random) -> Sentence:
        sentence, steps = self._lesson(number, rng)
        sentence.about = f"lesson {number}"
        if self.grid:
            empty = self.settings.named_empty_cells
            sentence.element_labels = [label_elements(step, self.grid, self.trajectory, empty, rng) for step in steps]
        return sentence

    def _lesson(self, number: int, rng: random.Random) -> tuple[Sentence, Sequence[Step]]:
        settings, progress = self.settings, number / self.total
        if progress < settings.dense or number % 2:
            screen = draw_screen(rng, settings)
            return self.lessons.dense(screen, rng), [screen.marked_step]
        explores, walks = progress >= settings.exploration_walks, progress >= settings.instructed_walks
        if walks and rng.random() < settings.checked_walk_share:
            walk = draw_checked_walk(rng, settings)
            return self.trajectory.build(walk, first_supervised_step=len(walk) - 1), walk.steps
        if explores and rng.random() < settings.seek_walk_share:
            walk = draw_seek_walk(rng, settings)
        elif explores and rng.random() < settings.exploration_walk_share:
            walk = draw_exploration_walk(rng, settings)
        elif walks and rng.random() < settings.instructed_walk_share:
            is_partial = explores and rng.random() < settings.partial_instruction_share
            walk = (draw_partially_instructed_walk if is_partial else draw_instructed_walk)(rng, settings)
        else:
            sentence, screens = self.lessons.goal_first(lambda: draw_screen(rng, settings), rng)
            return sentence, [screen.marked_step for screen in screens]
        return self.trajectory.build(walk, with_swipe_targets=True), walk.steps
