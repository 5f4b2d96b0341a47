"""The Llama+ViT family: composed of a language model and a vision tower, or loaded whole."""

from typing import cast as cast_type

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.family import ModelFamily, Processor
from vlm_agent.models.llama_vit.cost import LlamaViTCost
from vlm_agent.models.llama_vit.decoder import LlamaViTDecoder
from vlm_agent.models.llama_vit.from_scratch import initialise
from vlm_agent.models.llama_vit.model import LlamaViT, LlamaViTConfig
from vlm_agent.models.llama_vit.projectors import projector_kind
from vlm_agent.models.pretrained import language_model, source_configuration, vision_configuration, vision_tower
from vlm_agent.models.starting_heads import LOGIT_SHARE
from vlm_agent.models.weights.precision import cast, exact_depthwise
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.image_sizes import FixedScreens
from vlm_agent.sentences.packing import pack, places

_SHARED_KEYS = (
    "screen_size",
    "visual_grid",
    "image_mean",
    "image_std",
    "visual_merge",
    "visual_norm",
    "visual_positions",
    "element_loss",
)
"""Keys of a composed model that recipe and configuration have in common."""


class LlamaViTFamily(ModelFamily):
    model = LlamaViT

    def configure(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        if recipe.language_model is None or recipe.vision is None:
            if recipe.min_pixels is not None or recipe.max_pixels is not None:
                raise CheckpointError(
                    "min_pixels and max_pixels: this model sees every screen at one size; remove them"
                )
            return super().configure(recipe, tokenizer)
        text = source_configuration(recipe.language_model, "language_model")
        if recipe.language_model.config is not None:
            text.vocab_size = len(tokenizer)
        return _composite(recipe, vision_configuration(recipe.vision), text)

    def build(self, recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        if recipe.language_model is None or recipe.vision is None:
            return super().build(recipe, tokenizer)
        dtype = getattr(torch, recipe.dtype)
        decoder = language_model(recipe.language_model, len(tokenizer), dtype)
        vision = vision_tower(recipe.vision)
        model = LlamaViT(_composite(recipe, vision.config, decoder.config), vision, decoder)
        _check_parts(model)
        return self.prepare(cast(model, dtype))

    def initialise(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
    ) -> PreTrainedModel:
        dtype = model.dtype
        initialise(cast(_own(model), torch.float32), tokenizer, language)  # its decompositions do not support bfloat16
        return cast(model, dtype)

    def prepare(self, model: PreTrainedModel) -> PreTrainedModel:
        choose_attention(_own(model).vision, _own(model).language_model)
        exact_depthwise(_own(model).vision)
        return model

    def processor(self, config: PretrainedConfig) -> Processor:
        kind = projector_kind(config.projector)
        screens = FixedScreens(config.screen_size, config.tokens_per_screen, bicubic=kind.bicubic)
        return Processor(screens, kind.template, collate, config.visual_grid if config.element_loss else None)

    def decoder(self, model: PreTrainedModel) -> LlamaViTDecoder:
        return LlamaViTDecoder(_own(model))

    def cost(self, config: PretrainedConfig) -> LlamaViTCost:
        return LlamaViTCost(cast_type("LlamaViTConfig", config))


LLAMA_VIT = LlamaViTFamily()


def _own(model: PreTrainedModel) -> LlamaViT:
    return cast_type("LlamaViT", model)


def collate(sentences: list[Sentence]) -> dict:
    """A packed row for `LlamaViT.forward`: `pack`, `screens` uint8 (N, 3, height, width) and, where there are any,
    `element_labels` int64 (N, tokens a screen) with `element_places`."""
    row = pack(sentences)
    row["screens"] = torch.from_numpy(np.stack([screen for sentence in sentences for screen in sentence.screens]))
    if sentences[0].element_labels:
        labels = [labels for sentence in sentences for labels in sentence.element_labels]
        row["element_labels"] = element_labels = torch.from_numpy(np.stack(labels))
        row["element_places"] = places(torch.ne(element_labels, IGNORED))
    return row


def _composite(recipe: ModelRecipe, vision: PretrainedConfig, text: PretrainedConfig) -> LlamaViTConfig:
    return LlamaViTConfig(
        vision_config=vision,
        text_config=text,
        **{key: getattr(recipe, key) for key in _SHARED_KEYS},
        logit_scale=LOGIT_SHARE * text.hidden_size**-0.5 if recipe.word_tokenizer else 1.0,
    )


def _check_parts(model: LlamaViT) -> None:
    for path in model.parts.values():
        try:
            model.get_submodule(path)
        except AttributeError:
            raise CheckpointError(
                f"model.language_model is a {model.config.text_config.model_type!r}, which is not built as Llama is: "
                f"it has no {path}. Take a llama, qwen2, qwen3 or mistral"
            ) from None
