"""The reader `clip:FOLDER`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from vlm_agent.errors import UserError
from vlm_agent.screens.icons.clip.model import Clip, description, load
from vlm_agent.screens.icons.guesses import guesses
from vlm_agent.screens.icons.meanings import MEANINGS
from vlm_agent.screens.seen import IconReader, Meaning


class ClipIcons(IconReader):
    """Scores are the softmax over all meanings of the similarities, times the checkpoint's own scale."""

    def __init__(self, clip: Clip) -> None:
        self._clip, self._names = clip, list(MEANINGS)
        clip.model.eval()
        with torch.inference_mode():
            self._texts = clip.embed_texts(clip.tokens([description(name) for name in self._names]))
            self._scale = clip.model.logit_scale.exp()

    @classmethod
    def open(cls, folder: str) -> "ClipIcons":
        """Raises UserError without a folder, CheckpointError where it does not hold a CLIP."""
        if not folder:
            raise UserError("the icon reader clip needs a folder: clip:FOLDER")
        return cls(load(Path(folder)))

    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        return guesses(crops, self._clip.pixels, self._logits, self._names)

    def _logits(self, pixels: torch.Tensor) -> torch.Tensor:
        return self._scale * self._clip.embed_pictures(pixels) @ self._texts.T
