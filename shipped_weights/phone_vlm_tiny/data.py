"""The data module of a run on lessons about screens that are drawn during training."""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from shipped_weights.phone_vlm_tiny.drawn.screens import vocabulary_texts
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe
from shipped_weights.phone_vlm_tiny.stream import HELD_OUT, DrawnLessons, EndlessOrder
from vlm_agent.errors import RecipeError
from vlm_agent.files import atomic_write
from vlm_agent.models.build import Vocabulary
from vlm_agent.recipe.run import ValidationRecipe
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.data.stream import RowStream

LESSONS = "lessons.yaml"
_DIGEST_LESSONS = 16


@dataclass(frozen=True)
class DrawnDataModule(DataModule):
    """The lessons of one ours. `RUN/lessons.yaml` holds it beside the recipe."""

    lessons: DrawnRecipe

    @property
    def manifest(self) -> None:
        return None

    @cached_property
    def data_digest(self) -> str:
        """sha256 of the curriculum and of some lessons of every form, with pixels: they depend on fonts, word lists and
        drawing code."""
        digest = hashlib.sha256(self.lessons.model_dump_json().encode())
        first = self.writer()
        for writer in (first, first.at_full_difficulty()):
            for number in range(_DIGEST_LESSONS):
                sentence = writer(number, random.Random(f"digest {number}"))
                digest.update(repr((sentence.input_ids, sentence.labels)).encode())
                digest.update(b"".join(screen.tobytes() for screen in sentence.screens))
        return digest.hexdigest()

    @property
    def learned_ids(self) -> tuple[()]:
        return ()

    @property
    def reads(self) -> str:
        stages = [("whole screens", 0.0), ("goals before the screen", self.lessons.dense)]
        stages += [("instructed walks", self.lessons.instructed_walks)]
        stages += [("exploration walks", self.lessons.exploration_walks)]
        starts = [f"{name} from lesson {self.total * share:,.0f} on" for name, share in stages if share < 1]
        return ", ".join([f"{self.total:,} lessons on screens drawn during training", *starts])

    @property
    def total(self) -> int:
        """The number of lessons of the run."""
        return self.steps * self.rows_per_step * self.order.count

    def vocabulary(self) -> Vocabulary:
        """The words of drawn screens and of the train split's goals."""
        return Vocabulary(self.recipe.action_language.build().vocabulary(), vocabulary_texts(self.lessons))

    @cached_property
    def order(self) -> EndlessOrder:
        return self._order(self.recipe.seed)

    def steps_of(self, rows: int) -> int:
        if self.recipe.training.steps is None:
            raise RecipeError("training.steps is missing; lessons have no epochs")
        return self.recipe.training.steps

    def writer(self) -> DrawnLessons:
        if self.processor.screens_as_html:
            raise RecipeError("a text model reads no pixels, and lessons teach pixels; choose a model with vision")
        return DrawnLessons(self.sentences, self.lessons, self.total, self.label_grid())

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """Held-out lessons of the curriculum's last stage."""
        order = self._order(HELD_OUT)
        writer = self.writer().at_full_difficulty()
        return RowStream(order, -(-validation.episodes // order.count), writer, self.processor.collate)

    def _order(self, seed: int | str) -> EndlessOrder:
        return EndlessOrder(self.recipe.training.batch_size or 1, seed)

    def record(self, run: Path) -> None:
        with atomic_write(run / LESSONS) as temporary:
            temporary.write_text(yaml.safe_dump(self.lessons.model_dump(mode="json"), sort_keys=False))
