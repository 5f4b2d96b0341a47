"""A tiny Auto-UI run with random weights, and an extractor without any."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny

from vlm_agent.action_languages.auto_ui import AutoUiLanguage
from vlm_agent.models.build import Vocabulary, build, build_tokenizer, save
from vlm_agent.models.features import EXTRACTORS, Extractor
from vlm_agent.models.run_layout import RECIPE_FILE
from vlm_agent.recipe.model import FeatureSettings
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.steps import PHRASES, StepSentences

T5 = {
    "model_type": "t5",
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "scale_decoder_outputs": False,  # a head of its own
}
EXTRACTOR = "colours"


@dataclass
class Colours:
    """The colours of 4 x 2 pixels, or their mean. `screens`: how many were extracted."""

    screens: int = 0

    def shape(self, settings: FeatureSettings) -> tuple[int, int]:
        return (1 if settings.form == "pooled" else 8), 3

    def digest(self, settings: FeatureSettings) -> str:
        return sha256(str(settings).encode()).hexdigest()

    def load(self, settings: FeatureSettings, device: torch.device, precision: str = "float32") -> Extractor:
        def forward(screens: torch.Tensor) -> torch.Tensor:
            self.screens += len(screens)
            colours = (screens.float() / 64 - 2).flatten(2).mT
            return colours.mean(1, keepdim=True) if settings.form == "pooled" else colours

        return Extractor(settings, self.digest(settings), self.shape(settings), Pixels(), forward, device, precision)


class Pixels:
    """The preprocessing: 4 x 2 pixels of a screen."""

    def __call__(self, screenshot: np.ndarray) -> np.ndarray:
        height, width = (size // number for size, number in zip(screenshot.shape, (4, 2), strict=False))
        return np.ascontiguousarray(screenshot[::height, ::width][:4, :2].transpose(2, 0, 1))

    def share(self, height: int, width: int) -> float:
        return 1.0


COLOURS = Colours()


def register(patch: pytest.MonkeyPatch) -> None:
    """What a line in `EXTRACTORS` does."""
    patch.setitem(EXTRACTORS, EXTRACTOR, f"{__name__}:COLOURS")
    patch.setattr(COLOURS, "screens", 0)


def recipe(shards: Path, run: Path, **data) -> dict:
    """What a YAML recipe holds. `data`: keys of the section of this name."""
    return {
        "output": str(run),
        "model": {
            "encoder_decoder": {"config": T5},
            "features": {"extractor": EXTRACTOR, "form": "patches"},
            "word_tokenizer": {"vocabulary": 1000},
        },
        "action_language": {"name": "auto_ui"},
        "data": {"shards": str(shards), "sentences": "chain_of_actions", "max_target_tokens": 24} | data,
        "training": {
            "steps": 3,
            "batch_size": 2,
            "optimizer": {"name": "adamw", "learning_rate": 1e-3},
            "log_steps": 1,
        },
    }


def write_run(run: Path, shards: Path = Path("shards"), seed: int = 0, **data) -> Path:
    """A finished run of random weights, large enough that its answers differ from screen to screen.

    Larger ones saturate the attention, and rounding then decides which token is attended to.
    """
    described = Recipe(**recipe(shards, run, **data))
    language = described.action_language.build()
    texts = [*PHRASES, tiny.episode().goal, "world", *(element.name for element in tiny.ELEMENTS)]
    tokenizer = build_tokenizer(described.model, Vocabulary(language.vocabulary(), texts))
    model = build(described.model, tokenizer, language)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(std=0.4, generator=generator)
    trained_on = {"digest": COLOURS.digest(described.model.features), "precision": "float32"}
    model.config.features |= trained_on
    save(model, tokenizer, run)
    (run / RECIPE_FILE).write_text(described.to_yaml(), encoding="utf-8")
    return run


def sentences(tokenizer, **data) -> StepSentences:
    return StepSentences.of(tokenizer, AutoUiLanguage(), Recipe(**recipe(Path("shards"), Path("run"), **data)).data)
