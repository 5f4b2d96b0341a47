"""A training run, from a recipe to a run folder (`run_folder/layout.py` lists its files): read `_train` first."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from rich.console import Console
from torch import nn
from transformers import PreTrainedModel, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from vlm_agent.errors import Stopped, TrainingError
from vlm_agent.models.build import build, record_features, save
from vlm_agent.models.cost import TrainingFlops, UnknownCostError
from vlm_agent.models.family import family_of
from vlm_agent.models.run_layout import BASE_FOLDER, CHECKPOINTS, TOKENIZER_FOLDER
from vlm_agent.models.weights.adapters import choose_trained_weights, count_parameters
from vlm_agent.models.weights.device import describe_device, model_device
from vlm_agent.models.weights.origin import record_learned, record_sources
from vlm_agent.models.weights.precision import quantise
from vlm_agent.models.weights.zero3 import state_for_saving, without_zero3_partitioning
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.data_module import DataModule, unwritable_report
from vlm_agent.training.data.shard_data import data_module_of
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.arguments import arguments
from vlm_agent.training.loop.preemption import Preemption, forget_stop
from vlm_agent.training.loop.trainer import AgentTrainer, ConsoleProgress, ProgressFile
from vlm_agent.training.loop.validation import Validation
from vlm_agent.training.run_folder.checkpoints import Checkpoints, identity_of, resume_point
from vlm_agent.training.run_folder.layout import (
    claim,
    is_finished,
    mark_finished,
    refuse_other_runs,
    with_absolute_paths,
    with_precision,
)
from vlm_agent.training.run_folder.progress import PROGRESS
from vlm_agent.training.run_folder.room import explained_full_disk
from vlm_agent.training.run_folder.run_lock import run_lock
from vlm_agent.training.tracking import tracking_of


def train(recipe: Recipe, console: Console, data_of: Callable[[Recipe], DataModule] = data_module_of) -> Path:
    """Trains `recipe` and returns its run folder. An interrupted run resumes from its newest complete checkpoint; of a
    finished one nothing changes. `data_of`: makes the data module of the recipe.

    Under torchrun every rank calls this. Raises RecipeError where the folder holds a run of another recipe,
    DatasetError where another process trains into it, TrainingError where the loss or a gradient is not finite or the
    disk is full, Stopped after SIGTERM or SIGUSR1 and a checkpoint.
    """
    run = Path(recipe.output)
    recipe = with_absolute_paths(with_precision(recipe, run))
    if is_finished(run):
        refuse_other_runs(run, recipe)
        if is_first_rank():
            console.print(f"{run} is finished; nothing to do", highlight=False, markup=False, soft_wrap=True)
        return run
    lock = run_lock(run, console.print) if is_first_rank() else nullcontext()
    with Preemption() as preemption, lock, explained_full_disk(run):
        _train(recipe, data_of, run, console, preemption)
        stopped = None if preemption.stopped_after is None else Stopped(preemption.report(run))
        ranks.leave()  # here, where nothing refers to the Trainer any more
        if stopped is not None:
            raise stopped
    return run


def _train(
    recipe: Recipe, data_of: Callable[[Recipe], DataModule], run: Path, console: Console, preemption: Preemption
) -> None:
    hardware = f"{describe_device(model_device())}, {os.environ.get('WORLD_SIZE', '1')} rank(s)"
    if is_first_rank():
        console.print(hardware, highlight=False)
        refuse_other_runs(run, recipe)
    tracking = tracking_of(recipe) if is_first_rank() else None

    # The data: which rows every step reads, known before any weight is loaded.
    data = data_of(recipe)
    stream, validation = data.stream(), make_validation(data)
    training_args = arguments(recipe, run, data.steps)
    refuse_unlike_precisions(training_args.bf16)

    # The model: base weights, then adapters on the parts that train.
    set_seed(recipe.seed)
    base = load_base(recipe, data, run)
    model = adapt(base, recipe, training_args)
    parameters = total_parameters(model)  # before ZeRO-3 divides them
    if is_first_rank():
        for note in family_of(base.config).notes(base):
            console.print(note, highlight=False, markup=False, soft_wrap=True)
        describe(console, model, data)
        prepare_run_folder(run, recipe, data)

    # The loop: all ranks have equal weights here. Their dropout may differ; a resumed run restores its random state.
    identity = identity_of(recipe, data.data_digest, training_args.world_size)
    checkpoints = Checkpoints(
        run / CHECKPOINTS,
        identity,
        data.rows_per_step,
        console.print,
        recipe.training.keep_checkpoints,
        recipe.training.save_seconds,
    )
    progress = ProgressFile(run / PROGRESS)
    trainer = AgentTrainer(
        model=model,
        args=training_args,
        train_dataset=stream,
        validation=validation,
        callbacks=[ConsoleProgress(console), progress, preemption, checkpoints],
        optimizer_recipe=recipe.training.optimizer,
        flops=known_flops(data),
    )
    if tracking is not None:
        trainer.add_callback(tracking)
    trainer.remove_callback(PrinterCallback)
    torch.manual_seed(recipe.seed + ranks.number())
    newest = resume_point(run / CHECKPOINTS, identity, console.print, recipe)
    if is_first_rank():
        record_features(model, run)  # after the checkpoints are known to be of the same features
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
    if preemption.stopped_after is None:
        finish(run, recipe, data, trainer, progress.total_seconds(), parameters, hardware, console)


def is_first_rank() -> bool:
    """Whether this process writes the run folder. Known from the launcher, before the ranks are connected."""
    return os.environ.get("RANK", "0") == "0"


def refuse_unlike_precisions(bf16: bool) -> None:
    """Raises TrainingError where `training.bf16: auto` chose bfloat16 on some ranks only: they would average gradients
    of unlike models. A collective."""
    if not ranks.agree(int(bf16)):
        raise TrainingError(
            "training.bf16: auto chose bfloat16 on some nodes and float32 on others; set it to true or false"
        )


def make_validation(data: DataModule) -> Validation | None:
    settings = data.recipe.training.validation
    return None if settings is None else Validation(data.validation_rows(settings), data.recipe.data.workers)


def known_flops(data: DataModule) -> TrainingFlops | None:
    """None for a model whose cost is unknown: its log lines have no FLOPs."""
    try:
        return data.flops
    except UnknownCostError:
        return None


def load_base(recipe: Recipe, data: DataModule, run: Path) -> PreTrainedModel:
    """The model before training. Random weights under an adapter are saved to RUN/base: no checkpoint holds them."""
    with without_zero3_partitioning(recipe.model.starts_random):
        base = build(recipe.model, data.tokenizer, recipe.action_language.build())
    data.complete(base.config)
    has_adapter = "lora" in recipe.model.train.model_dump().values()
    if is_first_rank() and recipe.model.starts_random and has_adapter:
        base.save_pretrained(run / BASE_FOLDER)
    return base


def adapt(base: PreTrainedModel, recipe: Recipe, training_args: TrainingArguments) -> PreTrainedModel | PeftModel:
    """The base, quantised where the recipe asks for it, with adapters; each part trains as `model.train` states.

    DeepSpeed has no autocast: what trains has the dtype of what it reads.
    """
    if recipe.model.quantisation is not None:
        on_device = cast(nn.Module, base).to(training_args.device)  # quantising 7 B weights on a CPU would take minutes
        base = cast(PreTrainedModel, quantise(on_device, recipe.model.quantisation))
    in_bf16 = recipe.training.deepspeed is not None and training_args.bf16
    dtype = torch.bfloat16 if in_bf16 else torch.float32
    return choose_trained_weights(base, recipe.model.train, recipe.model.lora, dtype)


def describe(console: Console, model: nn.Module, data: DataModule) -> None:
    """Prints the size of the run, and of each part of the model."""
    console.print(f"{data.recipe.output}: {data.reads}; {data.steps} steps of {data.rows_per_step} rows")
    if (unwritable := data.unwritable_actions).count:
        console.print(unwritable_report(unwritable), highlight=False, markup=False, soft_wrap=True)
    for note in data.notes:
        console.print(note.text, highlight=False, markup=False, soft_wrap=True)
    for part, counts in count_parameters(model).items():
        console.print(f"  {part:15} {counts['trained']:>13,} trained  {counts['frozen']:>13,} frozen", highlight=False)


def prepare_run_folder(run: Path, recipe: Recipe, data: DataModule) -> None:
    """Writes what agents need beside the weights, so that checkpoints can be evaluated while the run continues."""
    record_sources(run, recipe.model)
    record_learned(run, data.learned_ids, recipe.model.base)
    data.record(run)
    claim(run, recipe)
    data.tokenizer.save_pretrained(run / TOKENIZER_FOLDER)
    forget_stop(run)


def total_parameters(model: nn.Module) -> dict[str, int]:
    """{"trained", "frozen"}: of all parts."""
    parts = count_parameters(model).values()
    return {state: sum(counts[state] for counts in parts) for state in ("trained", "frozen")}


def finish(
    run: Path,
    recipe: Recipe,
    data: DataModule,
    trainer: AgentTrainer,
    seconds: float,
    parameters: dict[str, int],
    hardware: str,
    console: Console,
) -> None:
    """Writes the trained weights and their card, then run.json. `seconds`: of training, over all starts.

    Every rank calls it: ZeRO-3 gathers the weights from all of them.
    """
    model, steps = cast(PreTrainedModel, trainer.model), trainer.state.global_step
    state = state_for_saving(model, is_first_rank())
    if is_first_rank():
        save(model, data.tokenizer, run, state, recipe.model.published_base)
        figures: dict[str, Any] = {
            "parameters": parameters,
            "reads": data.reads,
            "hardware": hardware,
            "steps": steps,
            "seconds": seconds,
            "last_losses": last_losses(trainer),
        }
        if (unwritable := data.unwritable_actions).count:
            figures["unwritable_actions"] = asdict(unwritable)
        figures |= {note.name: note.figures for note in data.notes}
        mark_finished(run, recipe, data.manifest, figures)
        console.print(f"{run}: {steps} steps, {seconds:,.0f} s of training over all starts")


def last_losses(trainer: AgentTrainer) -> dict[str, float]:
    """The losses of the last log step, by name."""
    last = next((line for line in reversed(trainer.state.log_history) if "loss" in line), {})
    return {name: value for name, value in last.items() if name.endswith("loss")}
