"""A training run, from a recipe to a run folder (`run_folder/layout.py` lists its files): `_train` prepares it, and
`run_steps` is the loop."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from rich.console import Console
from transformers import PreTrainedModel, set_seed

from vlm_agent.errors import Stopped
from vlm_agent.models.build import record_features, save
from vlm_agent.models.cost import UnknownCostError
from vlm_agent.models.family import family_of
from vlm_agent.models.loss import NOT_FOR_MODELS, Targets
from vlm_agent.models.run_layout import CHECKPOINTS, TOKENIZER_FOLDER
from vlm_agent.models.weights.adapters import state_for_saving
from vlm_agent.models.weights.origin import record_learned, record_sources
from vlm_agent.models.weights.precision import describe_device, model_device
from vlm_agent.recipe.run import Recipe, TrainingRecipe
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.data.shard_data import data_module_of
from vlm_agent.training.data.stream import Batches
from vlm_agent.training.engine import (
    Engine,
    adapt,
    checkpoint_activations,
    describe,
    engine_of,
    load_base,
    take_place,
    total_parameters,
)
from vlm_agent.training.journal import PROGRESS, Journal, check_tracker, read_progress, trackers
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.finite_loss import check_finite
from vlm_agent.training.loop.meter import Meter, peak_flops
from vlm_agent.training.loop.optimizers import rate
from vlm_agent.training.loop.preemption import Preemption, forget_stop
from vlm_agent.training.loop.validation import Validation
from vlm_agent.training.run_folder.checkpoints import Checkpoints, identity_of, resume_point, step_of
from vlm_agent.training.run_folder.layout import (
    claim,
    explained,
    is_finished,
    mark_finished,
    refuse_other_runs,
    run_lock,
    with_absolute_paths,
    with_precision,
)


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
    lock = run_lock(run) if is_first_rank() else nullcontext()
    with Preemption() as preemption, lock, explained(run):
        _train(recipe, data_of, run, console, preemption)
        stopped = None if preemption.stopped_after is None else Stopped(preemption.report(run))
        ranks.leave()  # here, where nothing refers to the engine any more
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
        check_tracker(recipe)

    # The data: which rows every step reads, known before any weight is loaded.
    data = data_of(recipe)
    stream, validated = data.stream(), recipe.training.validation
    validation = None if validated is None else Validation(data.validation_rows(validated), recipe.data.workers)
    place = take_place(recipe)
    identity = identity_of(recipe, data.data_digest, ranks.count())
    newest = resume_point(run / CHECKPOINTS, identity, console.print, recipe)  # ranks; before anything is written

    # The model: base weights, then adapters on the parts that train.
    set_seed(recipe.seed)
    base = load_base(recipe, data, run)
    model = adapt(base, recipe, place)
    checkpointed = checkpoint_activations(model, data, place, console)  # ranks
    parameters = total_parameters(model)  # before ZeRO-3 divides them
    if is_first_rank():
        for note in family_of(base.config).notes(base):
            console.print(note, highlight=False, markup=False, soft_wrap=True)
        describe(console, model, data)
        prepare_run_folder(run, recipe, data)

    # The loop: all ranks have equal weights here. Their dropout may differ; a resumed run restores its random state.
    checkpoints = Checkpoints(run / CHECKPOINTS, identity, data.rows_per_step, console.print, recipe.training)
    engine = engine_of(model, recipe, place)
    torch.manual_seed(recipe.seed + ranks.number())
    if is_first_rank():
        record_features(model, run)  # after the checkpoints are known to be of the same features
    first = 0 if newest is None else step_of(newest)
    rows = rows_of(stream, first, data.steps, recipe, engine)  # draws a number, so before the random state is restored
    if newest is not None:
        checkpoints.resume(newest, engine)
    flops = None
    with suppress(UnknownCostError):  # the log lines of such a model have no FLOPs
        flops = data.flops(checkpointed)
    meter = Meter(place.device, flops, peak_flops(place.device, place.bf16))
    with trackers(recipe) as logs:
        journal = Journal(run, first, data.steps, console, logs)
        parts = Parts(engine, rows, meter, validation, checkpoints, journal, preemption, stream.figures)
        run_steps(parts, recipe.training, first, data.steps)
    if preemption.stopped_after is None:
        finish(run, recipe, data, model, journal, parameters, hardware, console)


@dataclass(frozen=True)
class Parts:
    """What the loop works with. `rows`: this rank's batches of the next steps. `figures`: the data's, for log lines."""

    engine: Engine
    rows: Iterator[dict]
    meter: Meter
    validation: Validation | None
    checkpoints: Checkpoints
    journal: Journal
    preemption: Preemption
    figures: Callable[[], dict[str, float]] = dict


def run_steps(parts: Parts, training: TrainingRecipe, first: int, steps: int) -> None:
    """The steps after `first`, up to `steps` or a stop signal. All ranks meet in the lines marked with ranks: in a
    step twice, and in the mean of the gradients."""
    engine, meter, step = parts.engine, parts.meter, first
    engine.network.train()
    if parts.checkpoints.lacks_validation(first):  # ranks
        parts.checkpoints.add_validation(first, validate(parts, first))  # ranks
    for step in range(first + 1, steps + 1):
        engine.set_rate(rate(training, step - 1, steps))
        batches = meter.fetch(parts.rows, training.accumulation)
        weight = ranks.summed(torch.stack([Targets.of(batch).total_weight for batch in batches]).sum()).float()  # ranks
        losses = []
        for batch in batches:
            inputs = {name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}
            with engine.accumulating(is_last=batch is batches[-1]):
                with engine.precision():
                    output = engine.network(**inputs, num_items_in_batch=weight)
                # The loss is this rank's part of the mean over all ranks; gradients are averaged, not summed.
                engine.backward(output.loss * ranks.count())  # ranks, in the last batch: mean of the gradients
            losses.append((output.loss.detach(), batch["about"]))
            meter.count(batch, output)
        numbers = (parts.preemption.number, parts.checkpoints.is_old)
        signal, is_old = check_finite(losses, step - 1, engine.clip(training.max_grad_norm), numbers)  # ranks; waits
        engine.step()  # ranks, under DeepSpeed
        if not engine.has_stepped():
            check_finite(losses, step - 1, torch.tensor(math.inf))  # ranks; raises
        engine.model.zero_grad()

        stops = parts.preemption.stops(step, steps, signal)
        if step in (1, steps) or step % training.log_steps == 0:
            counted = meter.read()  # ranks; waits for the device
            parts.journal.log(step, counted | engine.figures() | parts.figures())
        is_due = training.validation is not None and (step % training.validation.steps == 0 or step == steps)
        # The sender of a signal may not wait for a validation; the resumed run begins with it.
        figures = validate(parts, step) if is_due and not stops else None  # ranks
        if parts.checkpoints.is_due(step, steps, figures, bool(is_old)) or stops:  # ranks, after a validation
            parts.checkpoints.save(step, engine)  # ranks
        if stops:
            break
    parts.journal.close(step)


def validate(parts: Parts, step: int) -> dict[str, float]:
    """The figures of a validation after `step`, which are logged. A collective."""
    assert parts.validation is not None  # noqa: S101 (it is due only with one)
    with parts.engine.precision():
        figures = parts.validation.run(parts.engine.network, parts.engine.place.device)
    parts.journal.log(step, figures)
    return figures


def rows_of(stream: Batches, first: int, steps: int, recipe: Recipe, engine: Engine) -> Iterator[dict]:
    """This rank's batches of the steps after `first`, on its device: rows are dealt to the ranks in turn."""
    in_step = recipe.training.accumulation * ranks.count()
    numbers = range(first * in_step + ranks.number(), steps * in_step, ranks.count())
    return stream.batches(numbers, engine, recipe.data.workers)


def is_first_rank() -> bool:
    """Whether this process writes the run folder. Known from the launcher, before the ranks are connected."""
    return os.environ.get("RANK", "0") == "0"


def prepare_run_folder(run: Path, recipe: Recipe, data: DataModule) -> None:
    """Writes what agents need beside the weights, so that checkpoints can be evaluated while the run continues."""
    record_sources(run, recipe.model)
    record_learned(run, data.learned_ids, recipe.model.base)
    data.record(run)
    claim(run, recipe)
    data.tokenizer.save_pretrained(run / TOKENIZER_FOLDER)
    forget_stop(run)


def finish(
    run: Path,
    recipe: Recipe,
    data: DataModule,
    model: PreTrainedModel | PeftModel,
    journal: Journal,
    parameters: dict[str, int],
    hardware: str,
    console: Console,
) -> None:
    """Writes the trained weights and their card, then run.json. Every rank calls it: ZeRO-3 gathers the weights from
    all of them."""
    state = state_for_saving(model, is_first_rank())
    if not is_first_rank():
        return
    seconds = journal.total_seconds()
    last_line: dict = next((line for line in reversed(read_progress(run / PROGRESS)) if "loss" in line), {})
    save(model, data.tokenizer, run, state, recipe.model.published_base)
    figures: dict[str, Any] = {
        "parameters": parameters,
        "reads": data.reads,
        "hardware": hardware,
        "steps": data.steps,
        "seconds": seconds,
        "last_losses": {name: value for name, value in last_line.items() if name.endswith("loss")},
    }
    figures |= {note.name: note.figures for note in data.notes}
    mark_finished(run, recipe, data.manifest, figures)
    console.print(f"{run}: {data.steps} steps, {seconds:,.0f} s of training over all starts")
