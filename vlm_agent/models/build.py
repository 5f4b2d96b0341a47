"""From what a recipe says to a model and its tokenizer, and from a finished run back to both."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from peft import PeftModel
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

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


class CheckpointError(ValueError):
    """A checkpoint that cannot be had, with what to do."""


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer from scratch is made of: the action language's phrases and bins, and the data's texts."""

    phrases: tuple[str, ...]
    bins: int
    texts: Iterable[str]


def build(recipe: ModelRecipe, vocabulary: Vocabulary) -> tuple[LlamaViT, PreTrainedTokenizerBase]:
    """The base model in the recipe's dtype, before any adapter. Random weights come from torch's global generator.

    Raises CheckpointError for a checkpoint that cannot be had, FileNotFoundError for a base that is no finished run.
    """
    tokenizer = build_tokenizer(recipe, vocabulary)
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


def build_tokenizer(recipe: ModelRecipe, vocabulary: Vocabulary) -> PreTrainedTokenizerBase:
    """The tokenizer alone, without reading weights; CheckpointError where it cannot be had."""
    if recipe.base is not None:
        _check_finished(Path(recipe.base))
        return AutoTokenizer.from_pretrained(Path(recipe.base) / TOKENIZER_FOLDER)
    if recipe.word_tokenizer:
        return build_word_tokenizer(
            vocabulary.texts, vocabulary.phrases, vocabulary.bins, recipe.word_tokenizer.vocabulary
        )
    with _wanted(recipe.language_model, "language_model"):
        return AutoTokenizer.from_pretrained(recipe.language_model.checkpoint, **_gguf(recipe.language_model))


def language_configuration(source: Source) -> PretrainedConfig:
    """What a language model's configuration says, without reading weights; CheckpointError where it cannot be had."""
    if source.config is not None:
        return _config(source, "language_model")
    with _wanted(source, "language_model"):
        return AutoConfig.from_pretrained(source.checkpoint, **_gguf(source))


def _language_model(source: Source, vocabulary: int):
    if source.config is not None:
        return AutoModelForCausalLM.from_config(_config(source, "language_model", vocab_size=vocabulary))
    with _wanted(source, "language_model"):
        loaded = AutoModelForCausalLM.from_pretrained(
            source.checkpoint, dtype=torch.float32, use_safetensors=source.gguf_file is None, **_gguf(source)
        )
    if source.gguf_file is None:
        return loaded
    # A model read from GGUF refuses to be cast or saved; its weights in a fresh model of the same config do not.
    config = AutoConfig.for_model(**{k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"})
    fresh = AutoModelForCausalLM.from_config(config)
    fresh.load_state_dict(loaded.state_dict())
    return fresh


def _config(source: Source, part: str, **known_here):
    """transformers' configuration of a part; it would take a misspelt key, keep the default and say nothing."""
    model_type = source.config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        nearest = difflib.get_close_matches(str(model_type), list(CONFIG_MAPPING), n=1, cutoff=0)[0]
        raise CheckpointError(f"model.{part}.config: model_type {model_type!r} is unknown; did you mean {nearest!r}?")
    defaults = AutoConfig.for_model(model_type)
    known = {*defaults.to_dict(), *defaults.attribute_map, *_LEGACY_KEYS}
    for key in source.config.keys() - known:
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
        raise CheckpointError(f"model.{part}.config: {model_type} has no key {key!r}; did you mean {nearest!r}?")
    return AutoConfig.for_model(**source.config | known_here)


_LEGACY_KEYS = {"rope_theta"}
"""Keys that transformers still reads and no longer lists."""


def _gguf(source: Source) -> dict[str, str]:
    return {} if source.gguf_file is None else {"gguf_file": source.gguf_file}


def _vision(source: Source):
    if source.config is not None:
        return AutoModel.from_config(_config(source, "vision"))
    with _wanted(source, "vision"):
        model = AutoModel.from_pretrained(source.checkpoint, dtype=torch.float32, use_safetensors=True)
    return getattr(model, "vision_model", model)  # CLIP and SigLIP bring a text tower too


@contextmanager
def _wanted(source: Source, key: str) -> Iterator[None]:
    """transformers raises OSError for a missing folder, an unknown or gated name, a lost connection, and for a folder
    without safetensors."""
    try:
        yield
    except OSError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"model.{key}.checkpoint {source.checkpoint!r} cannot be loaded: {reason}\n"
            "Give the path of a folder that holds it, or a name on huggingface.co. A gated one, such as Llama 2, also "
            "needs its licence accepted on its page there and `hf auth login` here."
        ) from error


def save(model: LlamaViT | PeftModel, tokenizer: PreTrainedTokenizerBase, run: Path) -> None:
    """What `load` needs, beside the run's recipe; safetensors only."""
    save_trained_weights(model, run / MODEL_FOLDER)
    tokenizer.save_pretrained(run / TOKENIZER_FOLDER)


def load(run: Path, merged: bool = False) -> tuple[LlamaViT | PeftModel, PreTrainedTokenizerBase]:
    """The trained model of a run folder, in evaluation mode.

    `merged` folds an adapter into its base where that is float32: decoding token by token is bound by the number of
    kernels. In bfloat16 the sum would be rounded and no longer be what was trained, so there it stays apart.

    An adapter is put upon the base its recipe names, or upon the base saved with the run where that began from random
    weights. Raises FileNotFoundError for an unfinished run.
    """
    folder = run / MODEL_FOLDER
    adapted = _check_finished(run)
    tokenizer = AutoTokenizer.from_pretrained(run / TOKENIZER_FOLDER)
    if not adapted:
        return choose_attention(LlamaViT.from_pretrained(folder)).eval(), tokenizer
    recipe = ModelRecipe(**yaml.safe_load((run / RECIPE_FILE).read_text())["model"])
    if (run / BASE_FOLDER).is_dir():
        base = choose_attention(LlamaViT.from_pretrained(run / BASE_FOLDER))
    else:
        base = build_model(recipe, len(tokenizer))
    projector_in_base = recipe.base is not None and recipe.train.projector == "frozen"
    model = load_adapter(base, folder, projector_in_base).eval()
    return (model.merge_and_unload() if merged and base.dtype == torch.float32 else model), tokenizer


def _check_finished(run: Path) -> bool:
    """Whether the run's weights are an adapter; FileNotFoundError where it has none."""
    folder = run / MODEL_FOLDER
    adapted = (folder / ADAPTER_WEIGHTS).is_file()
    if not adapted and not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no model: {run} is not a finished run")
    return adapted
