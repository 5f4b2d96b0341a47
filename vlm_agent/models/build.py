"""Builds models and tokenizers from recipes, saves them into run folders and loads them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import yaml
from peft import PeftModel
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.action_languages import ActionLanguage, LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.files import read_checked, write_checked
from vlm_agent.models.family import family_of, family_of_recipe, processor_of, saved_family
from vlm_agent.models.pretrained import explain_load_errors, hub_options, load_configuration, load_tokenizer
from vlm_agent.models.run_layout import FEATURES_FILE, MODEL_FOLDER, TOKENIZER_FOLDER, Trained, base_folder, checked
from vlm_agent.models.weights.adapters import load_adapter, merge_adapter, save_trained_weights, without_adapter
from vlm_agent.models.weights.origin import check_sources, with_bases_elsewhere
from vlm_agent.models.weights.precision import to_dtype
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.models.word_tokenizer import build_word_tokenizer
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.model import ModelRecipe, WeightsSource
from vlm_agent.sentences.trajectory import TrajectorySentences

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Vocabulary:
    """What a word tokenizer is built from: the action language's vocabulary, and the texts of the data."""

    language: LanguageVocabulary
    texts: Iterable[str]


def build(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase, language: ActionLanguage) -> PreTrainedModel:
    """The base model in the recipe's dtype, without adapters.

    Random weights come from torch's global generator. Raises what `build_model` raises.
    """
    model = build_model(recipe, tokenizer)
    if not recipe.word_tokenizer:
        return model
    return family_of(model.config).initialise(model, tokenizer, language.vocabulary())


def build_model(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model of a checkpoint, a base or a configuration; random weights as transformers initialises them.

    Raises CheckpointError for a checkpoint that cannot be loaded and for a damaged embedded base, FileNotFoundError for
    a base that is not a finished run.
    """
    if recipe.base is None:
        return family_of_recipe(recipe).build(recipe, tokenizer)
    model, _ = load(base_folder(recipe.base))
    return to_dtype(merge_adapter(model) if isinstance(model, PeftModel) else model, getattr(torch, recipe.dtype))


def configuration_of(recipe: ModelRecipe, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """The configuration of `build_model`'s model, without its weights. Too few embeddings: CheckpointError."""
    if recipe.base is None:
        return _with_embeddings(recipe, family_of_recipe(recipe).configure(recipe, tokenizer), tokenizer)
    folder = base_folder(recipe.base)
    base = checked(folder)
    if not base.adapted:  # the sources of its recipe may no longer exist
        saved_family(base.weights)  # importing it registers its classes
        return load_configuration(base.weights, str(base.weights))
    return _with_features(configuration_of(read_model_recipe(folder), tokenizer), base)


def _with_embeddings(
    recipe: ModelRecipe, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> PretrainedConfig:
    """`config`. Raises CheckpointError for tokens without an embedding, which end a run at the first text that has one.
    Padding may be one: some published tokenizers have a token for it that their model lacks, and packed rows have none.
    """
    embeddings = getattr(config.get_text_config(), "vocab_size", len(tokenizer))
    beyond = [token for token, id_ in tokenizer.get_vocab().items() if id_ >= embeddings and "pad" not in token.lower()]
    if beyond:
        raise CheckpointError(
            f"model.{recipe.origin}: its tokenizer has {len(tokenizer)} tokens and its model {embeddings} embeddings "
            f"(none for {beyond[0]!r}): they are not of one checkpoint; copy the model's own tokenizer"
        )
    return config


def read_model_recipe(path: Path) -> ModelRecipe:
    """The model section of the recipe of a run or of a checkpoint in it, with the places of its bases here."""
    parts = checked(path)
    recipe = ModelRecipe(**yaml.safe_load(parts.recipe.read_text(encoding="utf-8"))["model"])
    return with_bases_elsewhere(parts.run, recipe)


def load_sentences(
    path: Path,
    language: ActionLanguage,
    data: DataRecipe = DataRecipe(),  # noqa: B008 (frozen)
) -> TrajectorySentences:
    """The sentences of a run or of a checkpoint in it, as its training built them, without reading weights. `data`: as
    for `Processor.sentences`."""
    tokenizer = saved_tokenizer(checked(path))
    config = configuration_of(ModelRecipe(base=str(path)), tokenizer)
    return processor_of(config).sentences(tokenizer, language, data)


def saved_tokenizer(parts: Trained) -> PreTrainedTokenizerBase:
    """The tokenizer of a run. Raises CheckpointError where its files are damaged."""
    return load_tokenizer(parts.tokenizer, str(parts.tokenizer))


def build_tokenizer(recipe: ModelRecipe, vocabulary: Vocabulary) -> PreTrainedTokenizerBase:
    """The tokenizer, without reading weights. Raises CheckpointError if it cannot be loaded."""
    if recipe.base is not None:
        return saved_tokenizer(checked(base_folder(recipe.base)))
    if recipe.word_tokenizer:
        size, leading_spaces = recipe.word_tokenizer.vocabulary, recipe.word_tokenizer.leading_spaces
        words = build_word_tokenizer(vocabulary.texts, vocabulary.language, size, leading_spaces)
        words.add_special_tokens({"additional_special_tokens": [*family_of_recipe(recipe).special_tokens]})
        return words
    source = recipe.sources[recipe.origin]
    with explain_load_errors(source, recipe.origin):
        _check_tokenizer_files(source, recipe.origin)
        name = f"model.{recipe.origin}.checkpoint {source.checkpoint!r}"
        tokenizer = load_tokenizer(source.location, name, **hub_options(source))
    if tokenizer.eos_token_id is None:
        raise CheckpointError(f"{name}: its tokenizer has no eos_token, which ends an answer; set it in a copy")
    return tokenizer


def _check_tokenizer_files(source: WeightsSource, key: str) -> None:
    """Raises CheckpointError for a folder without a tokenizer, for which transformers may build an empty one."""
    folder = Path(source.location)
    if source.gguf_file is not None or not folder.is_dir():
        return
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise CheckpointError(
            f"model.{key}.checkpoint {source.checkpoint!r} holds no tokenizer; copy the tokenizer's files of the model "
            "that it was trained from (tokenizer.json or spiece.model, for example) into it"
        )


_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model"),
    *("vocab.json", "vocab.txt"),
)
"""A tokenizer has at least one of these files."""


def save(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    run: Path,
    state: dict[str, torch.Tensor] | None = None,
    base: str | None = None,
) -> None:
    """Writes the weights, as safetensors, and the tokenizer; with the run's recipe, all that `load` reads.

    Beside the weights also what other programs read (`ModelFamily.save_for_serving`). `state`: weights in place of the
    model's own. `base`: the name on the hub of the model under an adapter.
    """
    save_trained_weights(model, run / MODEL_FOLDER, state, base)
    tokenizer.save_pretrained(run / TOKENIZER_FOLDER)
    whole = without_adapter(model)
    family_of(whole.config).save_for_serving(whole, tokenizer, run / MODEL_FOLDER)


def record_features(model: PreTrainedModel | PeftModel, run: Path) -> None:
    """Writes RUN/features.json, for `load`, if the model is an adapter and reads screen features."""
    features = getattr(model.config, "features", None)
    if isinstance(model, PeftModel) and features is not None:
        write_checked(run / FEATURES_FILE, features)


def _with_features(config: PretrainedConfig, adapted: Trained) -> PretrainedConfig:
    """The configuration with the features that the adapter was trained on, in place. Raises DatasetError where their
    file is damaged."""
    if adapted.features.is_file():
        remedy = "restore it from a copy of the run"
        vars(config)["features"] = read_checked(adapted.features, remedy, dict[str, object])
    return config


def load(
    path: Path, merged: bool = False, device: torch.device | None = None
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """The trained model of a run folder or of one of its checkpoints, in evaluation mode.

    `device`: where the model runs, None for the CPU. A base is quantised there, as in training; on a CPU it takes
    minutes.

    `merged` folds an adapter into its base, unless that is quantised: the speed of decoding is bound by the number of
    kernels. The sums are float32 and are rounded once to the recipe's dtype, on the CPU: the weights of `merge`.

    An adapter is loaded onto the base that its recipe names, or, for a run that started from random weights, onto the
    base saved with the run. Raises FileNotFoundError if the folder holds no model, CheckpointError if the base has
    changed since the run was started, or a file of the run since it was written.
    """
    parts = checked(path, weights=True)
    tokenizer = saved_tokenizer(parts)
    device = torch.device("cpu") if device is None else device
    if not parts.adapted:
        return _on(saved_family(parts.weights).load(parts.weights).eval().requires_grad_(False), device), tokenizer
    recipe = read_model_recipe(path)
    saved_with_run = parts.base.is_dir()
    base = saved_family(parts.base).load(parts.base) if saved_with_run else build_model(recipe, tokenizer)
    if not saved_with_run:
        check_sources(parts.run, recipe)
    _with_features(base.config, parts)
    if recipe.quantisation is not None:
        quantise(_on(base, device), recipe.quantisation)
    model = load_adapter(base, parts.weights, projector_in_base=recipe.train.projector == "frozen").eval()
    if merged and recipe.quantisation is None:
        return _on(to_dtype(merge_adapter(model), getattr(torch, recipe.dtype)), device), tokenizer
    return _on(model, device), tokenizer


def _on(model: Model, device: torch.device) -> Model:
    model.to(device)
    return model
