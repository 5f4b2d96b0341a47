"""An extractor that is not part of the package: the mean colour of a screen."""

from dataclasses import dataclass

import numpy as np
import torch

from vlm_agent.models.features import Extractor, digest_of
from vlm_agent.recipe.model import FeatureSettings


@dataclass(frozen=True)
class Whole:
    def __call__(self, screenshot: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(screenshot.transpose(2, 0, 1))

    def share(self, height: int, width: int) -> float:
        return 1.0


class MeanColour:
    def shape(self, settings: FeatureSettings) -> tuple[int, int]:
        return 1, 3

    def digest(self, settings: FeatureSettings) -> str:
        return digest_of([], settings.extractor)

    def load(self, settings: FeatureSettings, device: torch.device, precision: str) -> Extractor:
        def forward(screens: torch.Tensor) -> torch.Tensor:
            return screens.float().mean((2, 3))[:, None]

        return Extractor(settings, self.digest(settings), (1, 3), Whole(), forward, device, precision)


MEAN_COLOUR = MeanColour()
