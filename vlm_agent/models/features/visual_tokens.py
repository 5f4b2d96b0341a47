"""Visual tokens of a Llama+ViT behind its projector, positions added: of `phone_vlm_tiny`, or of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import PretrainedConfig

from vlm_agent.errors import CheckpointError
from vlm_agent.models.build import configuration_of, load, saved_tokenizer
from vlm_agent.models.family import processor_of
from vlm_agent.models.features import Extractor, digest_of
from vlm_agent.models.run_layout import base_folder, checked
from vlm_agent.models.weights.adapters import merge_adapter
from vlm_agent.recipe.model import FeatureSettings, ModelRecipe
from vlm_agent.sentences.image_sizes import ScreenRule

BASE = "phone_vlm_tiny"
MODEL_TYPE = "llama_vit"


@dataclass(frozen=True)
class VisualTokens:
    """`form: patches`: the visual tokens (T, D). `pooled`: their mean (1, D), in float32 before rounding.

    The checkpoint is an embedded base or a run whose model is a Llama+ViT; an adapter is merged.
    """

    def shape(self, settings: FeatureSettings) -> tuple[int, int]:
        config = _configuration(settings)
        return (1 if settings.form == "pooled" else config.tokens_per_screen), config.text_config.hidden_size

    def checkpoint(self, settings: FeatureSettings) -> None:
        return None

    def digest(self, settings: FeatureSettings) -> str:
        return _digest(settings, _model(settings))

    def load(self, settings: FeatureSettings, device: torch.device, precision: str) -> Extractor:
        shape, model = self.shape(settings), _model(settings)
        rule = processor_of(model.config).screens
        digest = _digest(settings, model)
        model.to(device)

        def forward(screens: torch.Tensor) -> torch.Tensor:
            _, tokens = model.see(screens)
            return tokens.float().mean(1, keepdim=True) if settings.form == "pooled" else tokens

        return Extractor(settings, digest, shape, Stretched(rule), forward, device, precision)


PHONE_VLM_TINY = VisualTokens()


@dataclass(frozen=True)
class Stretched:
    """Screens of the model's size, whole."""

    rule: ScreenRule

    def __call__(self, screenshot: np.ndarray) -> np.ndarray:
        return self.rule.prepare(screenshot)

    def share(self, height: int, width: int) -> float:
        return 1.0


def _folder(settings: FeatureSettings) -> Path:
    return base_folder(BASE if settings.checkpoint is None else settings.checkpoint)


def _configuration(settings: FeatureSettings) -> Any:
    """A LlamaViTConfig. Raises CheckpointError for another model, and for a folder without one."""
    try:
        folder = _folder(settings)
        tokenizer = saved_tokenizer(checked(folder))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"checkpoint {settings.checkpoint!r}: {error.strerror}; extractor {BASE} reads {BASE} or a "
            "finished run of a Llama+ViT"
        ) from None
    config: PretrainedConfig = configuration_of(ModelRecipe(base=str(folder)), tokenizer)
    if config.model_type != MODEL_TYPE:
        raise CheckpointError(
            f"checkpoint {settings.checkpoint!r} is a {config.model_type}; extractor {BASE} reads a Llama+ViT "
            f"({MODEL_TYPE})"
        )
    return config


def _model(settings: FeatureSettings) -> Any:
    _configuration(settings)
    model, _ = load(_folder(settings))
    merged: Any = merge_adapter(model) if isinstance(model, PeftModel) else model
    return merged.eval().requires_grad_(False)


_DECISIVE = ("screen_size", "visual_grid", "visual_merge", "visual_norm", "visual_positions", "image_mean", "image_std")


def _digest(settings: FeatureSettings, model: Any) -> str:
    """The language model is left out: it does not affect the features."""
    tensors = [
        (f"{part}.{name}", tensor)
        for part in ("vision", "projector")
        for name, tensor in getattr(model, part).state_dict().items()
    ]
    about = {"extractor": settings.extractor, "form": settings.form}
    return digest_of(tensors, about | {key: getattr(model.config, key) for key in _DECISIVE})
