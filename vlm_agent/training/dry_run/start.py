"""Checks of a run before it has its GPUs: with its data, or before its data exist."""

from collections.abc import Callable
from pathlib import Path

from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset
from vlm_agent.errors import DatasetError, RecipeError
from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.family import processor_of
from vlm_agent.models.features import check_extractor
from vlm_agent.models.features.store import extraction_remedy
from vlm_agent.models.hub import check_files
from vlm_agent.models.run_layout import base_folder, trained
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.data.shard_data import check_sentences
from vlm_agent.training.data.stream import chosen_episodes
from vlm_agent.training.journal import check_tracker
from vlm_agent.training.run_folder.layout import is_finished, refuse_other_runs, with_absolute_paths, with_precision
from vlm_agent.training.zero import read_deepspeed


def check_start(data: DataModule) -> None:
    """Raises RecipeError for a DeepSpeed file, a tracker or a validation with which the run could not start once it has
    its GPUs."""
    _check_training(data.recipe)
    if (validation := data.recipe.training.validation) is not None:
        data.validation_rows(validation)


def check_recipe(recipe: Recipe, is_written_before: Callable[[Path], bool]) -> None:
    """Raises the errors that a run of the recipe would raise at its start, as far as they are known without reading
    weights and episodes; RecipeError also where the run folder holds a finished run, or one of another recipe.

    `is_written_before`: whether an earlier command writes a file or folder of the data, or the base.
    """
    run = Path(recipe.output)
    if is_finished(run):
        raise RecipeError(f"{run} holds a finished run; choose another output, or leave this command out")
    if run.exists():
        refuse_other_runs(run, with_absolute_paths(with_precision(recipe, run)))
    _check_training(recipe)
    _check_model(recipe, is_written_before)
    _check_data(recipe, is_written_before)


def _check_training(recipe: Recipe) -> None:
    check_tracker(recipe)
    if recipe.training.deepspeed_file is not None:
        read_deepspeed(recipe.training.deepspeed_file, recipe)


def _check_model(recipe: Recipe, is_written_before: Callable[[Path], bool]) -> None:
    model = recipe.model
    bases = [base for base in (model.base, model.word_embeddings) if base is not None]
    known = [base for base in bases if not is_written_before(Path(base))]
    for base in known:
        trained(base_folder(base))
    for key, source in model.sources.items():
        check_files(source, f"model.{key}.checkpoint")
    if model.features is not None:
        check_extractor(model.features)
    if known != bases:
        return  # neither tokenizer nor configuration is known before the base
    tokenizer = build_tokenizer(model, Vocabulary(recipe.action_language.build().vocabulary(), ()))
    config = configuration_of(model, tokenizer)
    check_sentences(recipe, config, processor_of(config))


def _check_data(recipe: Recipe, is_written_before: Callable[[Path], bool]) -> None:
    data, features = recipe.data, recipe.model.features
    if data.chats is not None and not Path(data.chats).exists() and not is_written_before(Path(data.chats)):
        raise DatasetError(f"data.chats: {data.chats} does not exist")
    if data.shards is not None and not is_written_before(folder := Path(data.shards)):
        chosen_episodes(ShardDataset(folder, split=data.split), data)
        validation = recipe.training.validation
        if validation is not None and not len(ShardDataset(folder, split=validation.split)):
            raise RecipeError(f"{folder} has no episode in split {validation.split} to validate on")
    if data.features is None:
        if features is not None:
            raise RecipeError(f"data.features is missing; {extraction_remedy(features, data.shards)}")
        return
    if not (Path(data.features) / MANIFEST).is_file() and not is_written_before(Path(data.features)):
        raise DatasetError(f"data.features: {data.features} has no {MANIFEST}: it is no finished folder of features")
