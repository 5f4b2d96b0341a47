"""From what a recipe says to a model and its tokenizer, and from a finished run back to both."""

import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import torch
import yaml
from peft import PeftModel
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.models.adapters import load_adapter, merge_adapter, save_trained_weights
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.embedded import base_folder
from vlm_agent.models.from_scratch import LOGIT_SHARE, initialise
from vlm_agent.models.llama_vit import LlamaViT, LlamaViTConfig
from vlm_agent.models.precision import cast, exact_depthwise
from vlm_agent.models.quantisation import quantise
from vlm_agent.models.qwen_vl import IMAGE_TOKEN
from vlm_agent.models.reading import MAX_PIXELS, MIN_PIXELS
from vlm_agent.models.recipe import ModelRecipe
from vlm_agent.models.sources import (
    CheckpointError,
    gguf,
    language_configuration,
    language_model,
    model_class,
    vision_configuration,
    vision_tower,
    wanted,
    whole_configuration,
    whole_model,
)
from vlm_agent.models.trained import MODEL_FOLDER, TOKENIZER_FOLDER, trained
from vlm_agent.models.word_tokenizer import build_word_tokenizer
from vlm_agent.sentences.frames import CHAT_TURNS


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer from scratch is made of: the action language's phrases and bins, and the data's texts."""

    phrases: tuple[str, ...]
    bins: int
    texts: Iterable[str]


def build(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase, bins: int) -> PreTrainedModel:
    """The base model in the recipe's dtype, before any adapter; `bins` are those of the action language.

    Random weights come from torch's global generator. Raises as `build_model`.
    """
    model = build_model(recipe, tokenizer)
    if recipe.word_tokenizer and isinstance(model, LlamaViT):
        initialise(cast(model, torch.float32), tokenizer, bins)  # its decompositions know no bfloat16
        cast(model, getattr(torch, recipe.dtype))
    return model


def build_model(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model of a checkpoint or base; one with random weights as its library makes it.

    Raises CheckpointError for a checkpoint that cannot be had, FileNotFoundError for a base that is no finished run,
    ValueError for an embedded base that is damaged.
    """
    dtype = getattr(torch, recipe.dtype)
    if recipe.base is not None:
        model, _ = load(base_folder(recipe.base))
        return cast(merge_adapter(model) if isinstance(model, PeftModel) else model, dtype)
    if recipe.vlm is not None:
        model = whole_model(recipe.vlm, tokenizer, dtype)
        _limit_pixels(model.config, recipe)
    else:
        model = cast(_composed(recipe, len(tokenizer), dtype), dtype)
    return _ready(model)


def configuration_of(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """The configuration that `build_model` gives its model, without reading a weight."""
    while recipe.base is not None:
        folder = base_folder(recipe.base)
        base = trained(folder)
        if not base.adapted:  # it needs nothing that it was made from
            return AutoConfig.from_pretrained(base.weights)
        recipe = read_model_recipe(folder)
    if recipe.vlm is not None:
        config = whole_configuration(recipe.vlm, tokenizer)
        model_class(config)
        _limit_pixels(config, recipe)
        return config
    text = language_configuration(recipe.language_model)
    if recipe.language_model.config is not None:
        text.vocab_size = len(tokenizer)
    return _composite(recipe, vision_configuration(recipe.vision), text)


def read_model_recipe(path: Path) -> ModelRecipe:
    """What the recipe of a run (or of a checkpoint's run) says about its model."""
    return ModelRecipe(**yaml.safe_load(trained(path).recipe.read_text(encoding="utf-8"))["model"])


def _composed(recipe: ModelRecipe, vocabulary_size: int, dtype: torch.dtype) -> LlamaViT:
    decoder = language_model(recipe.language_model, vocabulary_size, dtype)
    vision = vision_tower(recipe.vision)
    model = LlamaViT(_composite(recipe, vision.config, decoder.config), vision, decoder)
    _check_parts(model)
    return model


def _check_parts(model: LlamaViT) -> None:
    for path in model.parts.values():
        try:
            model.get_submodule(path)
        except AttributeError:
            raise CheckpointError(
                f"model.language_model is a {model.config.text_config.model_type!r}, which is not built as Llama is: "
                f"there is no {path}. Take a llama, qwen2, qwen3 or mistral"
            ) from None


def _composite(recipe: ModelRecipe, vision: PretrainedConfig, text: PretrainedConfig) -> LlamaViTConfig:
    return LlamaViTConfig(
        vision_config=vision,
        text_config=text,
        **{key: getattr(recipe, key) for key in _SHARED_KEYS},
        logit_scale=LOGIT_SHARE * text.hidden_size**-0.5 if recipe.word_tokenizer else 1.0,
    )


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


def _limit_pixels(config: PretrainedConfig, recipe: ModelRecipe) -> None:
    """In the model's configuration, which is saved with it: nothing that loads it can use other limits."""
    if isinstance(config, LlamaViTConfig):
        if recipe.min_pixels is not None or recipe.max_pixels is not None:
            raise CheckpointError("min_pixels and max_pixels: this model sees every screen at one size; remove them")
        return
    config.min_pixels = MIN_PIXELS if recipe.min_pixels is None else recipe.min_pixels
    config.max_pixels = MAX_PIXELS if recipe.max_pixels is None else recipe.max_pixels


def _ready(model: PreTrainedModel) -> PreTrainedModel:
    choose_attention(model.vision, model.language_model)
    exact_depthwise(model.vision)
    return model


def build_tokenizer(recipe: ModelRecipe, vocabulary: Vocabulary) -> PreTrainedTokenizerBase:
    """The tokenizer alone, without reading weights; CheckpointError where it cannot be had."""
    if recipe.base is not None:
        return AutoTokenizer.from_pretrained(trained(base_folder(recipe.base)).tokenizer)
    if recipe.word_tokenizer:
        words = build_word_tokenizer(
            vocabulary.texts, vocabulary.phrases, vocabulary.bins, recipe.word_tokenizer.vocabulary
        )
        if recipe.vlm is not None:
            marks = re.findall(r"<\|\w+\|>", "".join(astuple(CHAT_TURNS)))
            words.add_special_tokens({"additional_special_tokens": [*dict.fromkeys(marks), IMAGE_TOKEN]})
        return words
    source, part = (recipe.vlm, "vlm") if recipe.vlm is not None else (recipe.language_model, "language_model")
    with wanted(source, part):
        return AutoTokenizer.from_pretrained(source.checkpoint, **gguf(source))


def save(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, run: Path) -> None:
    """What `load` needs, beside the run's recipe; safetensors only."""
    save_trained_weights(model, run / MODEL_FOLDER)
    tokenizer.save_pretrained(run / TOKENIZER_FOLDER)


def load(path: Path, merged: bool = False) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """The trained model of a run folder or of one of its checkpoints, in evaluation mode.

    `merged` folds an adapter into its base where that is float32: decoding token by token is bound by the number of
    kernels. In bfloat16 the sum would be rounded and no longer be what was trained, so there it stays apart.

    An adapter is put upon the base its recipe names, or upon the base saved with the run where that began from random
    weights. Raises FileNotFoundError where there is no model.
    """
    parts = trained(path)
    tokenizer = AutoTokenizer.from_pretrained(parts.tokenizer)
    if not parts.adapted:
        return _saved(parts.weights).eval(), tokenizer
    recipe = read_model_recipe(path)
    base = _saved(parts.base) if parts.base.is_dir() else build_model(recipe, tokenizer)
    base = quantise(base, recipe.quantisation)
    model = load_adapter(base, parts.weights, projector_in_base=recipe.train.projector == "frozen").eval()
    foldable = merged and base.dtype == torch.float32 and recipe.quantisation is None
    return (merge_adapter(model) if foldable else model), tokenizer


def _saved(folder: Path) -> PreTrainedModel:
    return _ready(model_class(AutoConfig.from_pretrained(folder)).from_pretrained(folder))
