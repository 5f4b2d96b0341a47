"""The Qwen-VL family: Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.models.attention import choose_attention
from vlm_agent.models.family import ModelFamily, Processor, source_of
from vlm_agent.models.pretrained import source_configuration
from vlm_agent.models.qwen_vl.cost import QwenVLCost, TowerShape, qwen2_5_tower, qwen2_tower, qwen3_tower
from vlm_agent.models.qwen_vl.decoder import QwenVLDecoder
from vlm_agent.models.qwen_vl.model import (
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
    ReadsScreens,
)
from vlm_agent.models.qwen_vl.processor import CHAT_TURNS, IMAGE_TOKEN, SPECIAL_TOKENS, QwenVLCollator
from vlm_agent.models.qwen_vl.serving import save_for_serving
from vlm_agent.models.qwen_vl.vision_kernels import use_fast_kernels
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.sentences.image_sizes import FittedScreens

MIN_PIXELS, MAX_PIXELS = 56 * 56, 1280 * 28 * 28
"""The pixels of a screen, unless a recipe says otherwise: the authors' own range, at most 1,280 tokens a screen."""


@dataclass(frozen=True)
class QwenVLFamily(ModelFamily):
    model: type[PreTrainedModel]
    tower: Callable[[PretrainedConfig], TowerShape]
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        """The limits of a screen's pixels are part of the configuration and saved with it, so that nothing that loads
        the model can use others."""
        config = source_configuration(source_of(recipe), **_from_tokenizer(recipe, tokenizer))
        config.min_pixels = MIN_PIXELS if recipe.min_pixels is None else recipe.min_pixels
        config.max_pixels = MAX_PIXELS if recipe.max_pixels is None else recipe.max_pixels
        return config

    def prepare(self, model: PreTrainedModel) -> PreTrainedModel:
        vision = _rows(model).vision
        choose_attention(vision, _rows(model).language_model)
        use_fast_kernels(vision)
        return model

    def save_for_serving(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        save_for_serving(_rows(model), tokenizer, _pixel_limits(model.config), folder)

    def processor(self, config: PretrainedConfig) -> Processor:
        vision = config.vision_config
        screens = FittedScreens(*_pixel_limits(config), vision.patch_size * vision.spatial_merge_size)
        return Processor(screens, CHAT_TURNS, QwenVLCollator(config))

    def decoder(self, model: PreTrainedModel) -> QwenVLDecoder:
        return QwenVLDecoder(_rows(model))

    def cost(self, config: PretrainedConfig) -> QwenVLCost:
        return QwenVLCost(config, self.tower)


def _rows(model: PreTrainedModel) -> ReadsScreens:
    return cast("ReadsScreens", model)


def _pixel_limits(config: PretrainedConfig) -> tuple[int, int]:
    return getattr(config, "min_pixels", MIN_PIXELS), getattr(config, "max_pixels", MAX_PIXELS)


def _from_tokenizer(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> dict:
    """Configuration keys of a model with random weights that follow from its tokenizer."""
    if recipe.vlm is None or recipe.vlm.config is None:
        return {}
    marks = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = recipe.vlm.config.get("text_config", {}) | {"vocab_size": len(tokenizer)} | marks
    return {"text_config": text, "image_token_id": tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)}


QWEN2_VL = QwenVLFamily(Qwen2VLForConditionalGeneration, qwen2_tower)
QWEN2_5_VL = QwenVLFamily(Qwen2_5_VLForConditionalGeneration, qwen2_5_tower)
QWEN3_VL = QwenVLFamily(Qwen3VLForConditionalGeneration, qwen3_tower)
