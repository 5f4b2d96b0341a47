"""The data module of a run on lessons about screens that are drawn during training."""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary
from vlm_agent.pretraining.screens import vocabulary_texts
from vlm_agent.pretraining.stream import HELD_OUT, DrawnLessons, EndlessOrder
from vlm_agent.recipe.drawn import DrawnRecipe
from vlm_agent.recipe.training import ValidationRecipe
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.data.stream import RowStream

_DIGEST_LESSONS, _DIGEST_LESSONS_WITH_WALKS = 4, 16


@dataclass(frozen=True)
class DrawnDataModule(DataModule):
    @property
    def manifest(self) -> None:
        return None

    @property
    def drawn(self) -> DrawnRecipe:
        """The curriculum. Raises RecipeError for a recipe without one."""
        if self.recipe.data.drawn is None:
            raise RecipeError("data.drawn is missing")
        return self.recipe.data.drawn

    @cached_property
    def data_digest(self) -> str:
        """sha256 of some lessons of every form, with pixels: they depend on fonts, word lists and drawing code."""
        digest = hashlib.sha256()
        first = self.writer()
        count = _DIGEST_LESSONS if self.drawn.instructed_walks is None else _DIGEST_LESSONS_WITH_WALKS
        for writer in (first, first.at_full_difficulty()):
            for number in range(count):
                sentence = writer(number, random.Random(f"digest {number}"))  # noqa: S311 (no secret)
                digest.update(repr((sentence.input_ids, sentence.labels)).encode())
                digest.update(b"".join(screen.tobytes() for screen in sentence.screens))
        return digest.hexdigest()

    @property
    def learned_ids(self) -> tuple[()]:
        return ()

    @property
    def reads(self) -> str:
        lessons = self.steps * self.rows_per_step * self.order.count
        drawn = self.drawn
        stages = [f"the first {min(lessons, drawn.dense):,} on whole screens"] if drawn.dense else []
        starts = (("instructed walks", drawn.instructed_walks), ("exploration walks", drawn.exploration_walks))
        stages += [f"{kind} from lesson {number:,} on" for kind, number in starts if number is not None]
        return ", ".join([f"{lessons:,} lessons on screens drawn during training", *stages])

    def vocabulary(self) -> Vocabulary:
        return vocabulary_of_drawn(self.recipe.action_language.build().vocabulary(), self.drawn)

    @cached_property
    def order(self) -> EndlessOrder:
        return self._order(self.recipe.seed)

    def steps_of(self, rows: int) -> int:
        if self.recipe.training.steps is None:
            raise RecipeError("training.steps is missing; drawn screens have no epochs")
        return self.recipe.training.steps

    def writer(self) -> DrawnLessons:
        if self.processor.screens_as_html:
            raise RecipeError("a text model reads no pixels, and data.drawn teaches pixels; set data.shards")
        return DrawnLessons(self.sentences, self.drawn, self.label_grid())

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """Held-out lessons of the curriculum's last stage."""
        order = self._order(HELD_OUT)
        writer = self.writer().at_full_difficulty()
        return RowStream(order, -(-validation.episodes // order.count), writer, self.processor.collate)

    def _order(self, seed: int | str) -> EndlessOrder:
        return EndlessOrder(self.sentences_per_row, seed)


def vocabulary_of_drawn(language: LanguageVocabulary, drawn: DrawnRecipe) -> Vocabulary:
    """The words of drawn screens and of the train split's goals."""
    return Vocabulary(language, vocabulary_texts(drawn))
