"""Fine-tunes a CLIP on icons with the contrastive loss of VisionTasker, section 4.3.2."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn import functional

from shipped_weights.icons.drawn import draw
from shipped_weights.icons.fonts import Icon, icons_of
from shipped_weights.icons.tiny import KIND, KNOWN, check_sets
from shipped_weights.loop import LoopSettings, train
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.icons.clip import Clip, description, load

if TYPE_CHECKING:
    from rich.console import Console

MODEL = "model"
"""Folder of the fine-tuned checkpoint in the run's folder, for `clip:FOLDER`."""


class ClipTraining(LoopSettings):
    """`start`: folder of the CLIP to fine-tune. `sets`: sets of icons. `temperature`: None for the
    model's own, which is trained.

    A batch holds each meaning at most once, so that no description of another icon is a right one.
    """

    reader: str = "clip"
    start: str
    sets: Annotated[tuple[str, ...], Field(min_length=1)] = KNOWN
    temperature: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "ClipTraining":
        check_sets(self.sets)
        if self.batch_size > len(MEANINGS):
            raise ValueError(f"batch_size must be at most {len(MEANINGS)}, the number of meanings")
        return self

    def run(self, console: "Console") -> dict[str, Any]:
        """Trains, or resumes, and writes the checkpoint to `output`/model."""
        clip = load(Path(self.start))
        pairs = Pairs(icons_of(list(self.sets)), clip, self)

        def loss_of(step: int) -> dict[str, torch.Tensor]:
            pixels, tokens = pairs.at(step)
            scale = clip.model.logit_scale.exp() if self.temperature is None else torch.tensor(1 / self.temperature)
            return {"loss": contrastive(clip.embed_pictures(pixels), clip.embed_texts(tokens), scale)}

        def save(folder: Path) -> None:
            clip.model.save_pretrained(folder / MODEL)
            clip.tokenizer.save_pretrained(folder / MODEL)

        identity = {"meanings": list(MEANINGS), "icons": len(pairs.icons)}
        return train(self, clip.model, loss_of, save, console, KIND, identity)


def contrastive(pictures: torch.Tensor, texts: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of pairs (i, i) among all pairs of a batch, from pictures to texts and back (CLIP).

    `pictures`, `texts`: (B, N), of length 1. `scale`: 1 / temperature.
    """
    similarity = scale * pictures @ texts.T
    right = torch.arange(len(similarity))
    return (functional.cross_entropy(similarity, right) + functional.cross_entropy(similarity.T, right)) / 2


class Pairs:
    """Drawn icons with their descriptions; the batch of a step depends only on seed and step."""

    def __init__(self, icons: list[Icon], clip: Clip, settings: ClipTraining) -> None:
        self.icons, self._clip, self._settings = icons, clip, settings
        self._of_meaning: dict[str, list[Icon]] = {}
        for icon in icons:
            self._of_meaning.setdefault(icon.meaning, []).append(icon)
        self._names = sorted(self._of_meaning)

    def at(self, step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Pixels float32 (B, 3, side, side) and tokens of B descriptions."""
        rng = np.random.default_rng((self._settings.seed, step))
        count = min(self._settings.batch_size, len(self._names))
        names = [self._names[number] for number in rng.permutation(len(self._names))[:count]]
        pixels = np.stack([self._one(self._of_meaning[name], rng) for name in names])
        return torch.from_numpy(pixels), self._clip.tokens([description(name) for name in names])

    def _one(self, icons: list[Icon], rng: np.random.Generator) -> np.ndarray:
        while True:
            pixels = self._clip.pixels(draw(icons[rng.integers(len(icons))].mask, rng))
            if pixels is not None:
                return pixels
