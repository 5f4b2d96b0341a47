"""From what a recipe says to a model and its tokenizer, and from a finished run back to both."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from peft import PeftModel
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from vlm_agent.models.adapters import ADAPTER_WEIGHTS, load_adapter, save_trained_weights
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.from_scratch import LOGIT_SHARE, initialise
from vlm_agent.models.llama_vit import LlamaViT, LlamaViTConfig
from vlm_agent.models.recipe import ModelRecipe, Source
from vlm_agent.models.word_tokenizer import build_word_tokenizer

MODEL_FOLDER = "model"
BASE_FOLDER = "base"
TOKENIZER_FOLDER = "tokenizer"
RECIPE_FILE = "recipe.yaml"


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer from scratch is made of: the action language's phrases and bins, and the data's texts."""

    phrases: tuple[str, ...]
    bins: int
    texts: Iterable[str]


def build(recipe: ModelRecipe, vocabulary: Vocabulary) -> tuple[LlamaViT, PreTrainedTokenizerBase]:
    """The base model in the recipe's dtype, before any adapter. Random weights come from torch's global generator."""
    tokenizer = _tokenizer(recipe, vocabulary)
    model = build_model(recipe, len(tokenizer))
    if recipe.word_tokenizer:
        initialise(model, tokenizer, vocabulary.bins)
    return model, tokenizer


def build_model(recipe: ModelRecipe, vocabulary_size: int) -> LlamaViT:
    """The base model in the recipe's dtype. `vocabulary_size` is for a language model with random weights."""
    dtype = getattr(torch, recipe.dtype)
    if recipe.base is not None:
        model, _ = load(Path(recipe.base))
        return (model.merge_and_unload() if isinstance(model, PeftModel) else model).to(dtype)
    language_model = _language_model(recipe.language_model, vocabulary_size)
    vision = _vision(recipe.vision)
    config = LlamaViTConfig(
        vision_config=vision.config,
        text_config=language_model.config,
        **{key: getattr(recipe, key) for key in _SHARED_KEYS},
        logit_scale=LOGIT_SHARE * language_model.config.hidden_size**-0.5 if recipe.word_tokenizer else 1.0,
    )
    return choose_attention(LlamaViT(config, vision, language_model).to(dtype))


_SHARED_KEYS = (
    "screen_size",
    "visual_grid",
    "image_mean",
    "image_std",
    "visual_norm",
    "visual_positions",
    "element_loss",
)


def _tokenizer(recipe: ModelRecipe, vocabulary: Vocabulary) -> PreTrainedTokenizerBase:
    if recipe.base is not None:
        return AutoTokenizer.from_pretrained(Path(recipe.base) / TOKENIZER_FOLDER)
    if recipe.word_tokenizer:
        return build_word_tokenizer(
            vocabulary.texts, vocabulary.phrases, vocabulary.bins, recipe.word_tokenizer.vocabulary
        )
    source = recipe.language_model
    if source.checkpoint is None:
        raise ValueError("model.language_model.config has random weights and brings no tokenizer; add word_tokenizer")
    return AutoTokenizer.from_pretrained(source.checkpoint, **_gguf(source))


def _language_model(source: Source, vocabulary: int):
    if source.config is not None:
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**source.config, vocab_size=vocabulary))
    loaded = AutoModelForCausalLM.from_pretrained(source.checkpoint, dtype=torch.float32, **_gguf(source))
    if source.gguf_file is None:
        return loaded
    # A model read from GGUF refuses to be cast or saved; its weights in a fresh model of the same config do not.
    config = AutoConfig.for_model(**{k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"})
    fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(loaded.state_dict())
    return fresh


def _gguf(source: Source) -> dict[str, str]:
    return {} if source.gguf_file is None else {"gguf_file": source.gguf_file}


def _vision(source: Source):
    if source.config is not None:
        return AutoModel.from_config(AutoConfig.for_model(**source.config))
    model = AutoModel.from_pretrained(source.checkpoint, dtype=torch.float32)
    return getattr(model, "vision_model", model)  # CLIP and SigLIP bring a text tower too


def save(model: LlamaViT | PeftModel, tokenizer: PreTrainedTokenizerBase, run: Path) -> None:
    """What `load` needs, beside the run's recipe; safetensors only."""
    save_trained_weights(model, run / MODEL_FOLDER)
    tokenizer.save_pretrained(run / TOKENIZER_FOLDER)


def load(run: Path) -> tuple[LlamaViT | PeftModel, PreTrainedTokenizerBase]:
    """The trained model of a run folder, in evaluation mode.

    An adapter is put upon the base its recipe names, or upon the base saved with the run where that began from random
    weights. Raises FileNotFoundError for an unfinished run.
    """
    folder = run / MODEL_FOLDER
    adapted = (folder / ADAPTER_WEIGHTS).is_file()
    if not adapted and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: {run} is not a finished run")
    tokenizer = AutoTokenizer.from_pretrained(run / TOKENIZER_FOLDER)
    if not adapted:
        return choose_attention(LlamaViT.from_pretrained(folder)).eval(), tokenizer
    if (run / BASE_FOLDER).is_dir():
        base = choose_attention(LlamaViT.from_pretrained(run / BASE_FOLDER))
    else:
        recipe = ModelRecipe(**yaml.safe_load((run / RECIPE_FILE).read_text())["model"])
        base = build_model(recipe, len(tokenizer))
    return load_adapter(base, folder).eval(), tokenizer
