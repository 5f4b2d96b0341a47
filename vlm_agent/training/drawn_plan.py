"""The plan of a run on screens that are drawn while it goes."""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property

from vlm_agent.action_languages.binned import PHRASES
from vlm_agent.datasets.drawn_screens import heard_texts
from vlm_agent.models.build import Vocabulary
from vlm_agent.sentences.lessons import Lessons
from vlm_agent.training.data import HELD_OUT, DrawnLessons, EndlessOrder, RowStream
from vlm_agent.training.recipe import ValidationRecipe
from vlm_agent.training.run_plan import RunPlan

_LOOKED_AT, _LOOKED_AT_ERRANDS = 4, 16


@dataclass(frozen=True)
class DrawnPlan(RunPlan):
    @property
    def manifest(self) -> None:
        return None

    @cached_property
    def data_digest(self) -> str:
        """Of some lessons of every form, pixels and all: they hang on fonts, word lists and the drawing itself."""
        digest = hashlib.sha256()
        first = self.writer()
        looked_at = _LOOKED_AT if first.errands is None else _LOOKED_AT_ERRANDS
        for writer in (first, first.hardest()):
            for number in range(looked_at):
                sentence = writer(number, random.Random(f"digest {number}"))  # noqa: S311 (no secret)
                digest.update(repr((sentence.input_ids, sentence.labels)).encode())
                digest.update(b"".join(screen.tobytes() for screen in sentence.screens))
        return digest.hexdigest()

    @property
    def reads(self) -> str:
        lessons = self.steps * self.rows_per_step * self.order.count
        drawn = self.recipe.data.drawn
        told = [f"the first {min(lessons, drawn.dense):,} of whole screens"] if drawn.dense else []
        begin = (("walks", drawn.errands), ("play", drawn.play))
        told += [f"{what} from number {number:,} on" for what, number in begin if number is not None]
        return ", ".join([f"{lessons:,} lessons on screens drawn as they are needed", *told])

    def vocabulary(self) -> Vocabulary:
        return vocabulary_of_drawn(self.recipe.action_language.bins)

    @cached_property
    def order(self) -> EndlessOrder:
        return self._order(self.recipe.seed)

    def steps_of(self, rows: int) -> int:
        return self.recipe.training.steps

    def writer(self) -> DrawnLessons:
        drawn = self.recipe.data.drawn
        lessons = Lessons(self.sentences, drawn.items)
        return DrawnLessons(lessons, drawn.dense, self.label_grid(), drawn.errands, drawn.play)

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """Lessons of both forms that no run learns."""
        order = self._order(HELD_OUT)
        return RowStream(order, -(-validation.episodes // order.count), self.writer().hardest(), self.reading.rows)

    def _order(self, seed: int | str) -> EndlessOrder:
        return EndlessOrder(self.sentences_a_row, seed)


def vocabulary_of_drawn(bins: int) -> Vocabulary:
    """The words that drawn screens may show, and those of train goals."""
    return Vocabulary(PHRASES, bins, heard_texts())
