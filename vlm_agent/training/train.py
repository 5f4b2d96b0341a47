"""A training run, from recipe to run folder (`run_folder.py` says what is in it)."""

import os
import time
from pathlib import Path

import torch
from rich.console import Console
from transformers import set_seed
from transformers.trainer_callback import PrinterCallback

from vlm_agent.models.adapters import choose_trained_weights, count_parameters
from vlm_agent.models.build import build, save
from vlm_agent.models.quantisation import quantise
from vlm_agent.models.trained import BASE_FOLDER, CHECKPOINTS, TOKENIZER_FOLDER
from vlm_agent.models.zero3 import made_whole, saved_weights_whole
from vlm_agent.training import ranks
from vlm_agent.training.arguments import arguments
from vlm_agent.training.checkpoints import Checkpoints, identity_of, resume_point
from vlm_agent.training.errors import Stopped
from vlm_agent.training.plan import plan_of
from vlm_agent.training.preemption import Preemption, forget_stop
from vlm_agent.training.recipe import Recipe
from vlm_agent.training.run_folder import claim, finish, refuse_other_runs
from vlm_agent.training.run_plan import RunPlan
from vlm_agent.training.trainer import AgentTrainer, ConsoleProgress
from vlm_agent.training.validation import Validation


def train(recipe: Recipe, console: Console) -> Path:
    """Runs the recipe and returns its run folder; goes on from the newest whole checkpoint of an interrupted run.

    Raises RecipeError when the folder holds a finished run or one of another recipe, TrainingError when the loss is no
    longer a number, Stopped when SIGTERM or SIGUSR1 came: everything is saved then.
    """
    with Preemption() as preemption:
        return _train(recipe, console, preemption)


def _train(recipe: Recipe, console: Console, preemption: Preemption) -> Path:
    run, is_first = Path(recipe.output), os.environ.get("RANK", "0") == "0"
    if is_first:
        refuse_other_runs(run, recipe)
    plan = plan_of(recipe)
    validation = recipe.training.validation
    stream, sample = plan.stream(), None if validation is None else plan.validation_rows(validation)
    made = arguments(recipe, run, plan.steps)
    set_seed(recipe.seed)
    with made_whole(recipe.model.starts_random):
        base = build(recipe.model, plan.tokenizer, recipe.action_language.bins)
    if recipe.model.starts_random and "lora" in recipe.model.train.model_dump().values() and is_first:
        base.save_pretrained(run / BASE_FOLDER)
    if recipe.model.quantisation is not None:
        base = quantise(base.to(made.device), recipe.model.quantisation)  # minutes for 7 B weights on a CPU
    model = choose_trained_weights(base, recipe.model.train, recipe.model.lora)
    if is_first:
        _describe(console, model, plan)
        claim(run, recipe)
        plan.tokenizer.save_pretrained(run / TOKENIZER_FOLDER)  # now, so that checkpoints can be tried while it goes on
        forget_stop(run)
    identity = identity_of(recipe, plan.data_digest, made.world_size)
    checkpoints = Checkpoints(
        run / CHECKPOINTS, identity, plan.rows_per_step, console.print, recipe.training.keep_checkpoints
    )
    trainer = AgentTrainer(
        model=model,
        args=made,
        train_dataset=stream,
        validation=None if sample is None else Validation(sample, recipe.data.workers),
        callbacks=[ConsoleProgress(console), preemption, checkpoints],
        optimizer_recipe=recipe.training.optimizer,
    )
    trainer.remove_callback(PrinterCallback)
    # The weights are alike on all ranks by now. What dropout leaves out need not be; a checkpoint brings its own state.
    torch.manual_seed(recipe.seed + ranks.number())
    started = time.monotonic()
    newest = resume_point(run / CHECKPOINTS, identity, console.print)
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
    if preemption.stopped_after is not None:
        raise Stopped(preemption.report(run))
    figures = {"steps": trainer.state.global_step, "seconds_since_last_start": time.monotonic() - started}
    with saved_weights_whole(model):
        if is_first:
            save(model, plan.tokenizer, run)
    if is_first:
        finish(run, recipe, plan.manifest, figures | {"last_losses": _last_losses(trainer)})
        seconds = figures["seconds_since_last_start"]
        console.print(f"{run}: {figures['steps']} steps, {seconds:.0f} s since the last start")
    return run


def _last_losses(trainer: AgentTrainer) -> dict[str, float]:
    """The losses of the last log line, by name."""
    last = next((line for line in reversed(trainer.state.log_history) if "loss" in line), {})
    return {name: value for name, value in last.items() if name.endswith("loss")}


def _describe(console: Console, model, plan: RunPlan) -> None:
    console.print(f"{plan.recipe.output}: {plan.reads}; {plan.steps} steps of {plan.rows_per_step} rows")
    for part, counts in count_parameters(model).items():
        console.print(f"  {part:15} {counts['trained']:>13,} trained  {counts['frozen']:>13,} frozen", highlight=False)
