"""A training run, from recipe to run folder.

RUN/recipe.yaml       the resolved recipe
RUN/checkpoints/      what a killed run resumes from
RUN/tensorboard/
RUN/model/            the trained weights (an adapter where LoRA was used), RUN/tokenizer/ beside them
RUN/base/             the random base under an adapter, where no checkpoint could give it back
RUN/run.json          versions, commit, data, figures; written last: it means finished
"""

import json
import math
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from transformers import TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback

from vlm_agent.action_languages.binned import PHRASES
from vlm_agent.datasets import written_whole
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.models.adapters import choose_trained_weights, count_parameters
from vlm_agent.models.build import BASE_FOLDER, RECIPE_FILE, Vocabulary, build, save
from vlm_agent.models.precision import has_bf16
from vlm_agent.sentences.elements import ElementSentences, element_name
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data import ElementStream, SentenceStream, TrajectoryStream, chosen_episodes, collate
from vlm_agent.training.recipe import Recipe, RecipeError, TrainingRecipe
from vlm_agent.training.trainer import AgentTrainer, ConsoleProgress

FINISHED = "run.json"
CHECKPOINTS = "checkpoints"
_RECORDED = ("torch", "transformers", "peft", "accelerate", "deepspeed")


def train(recipe: Recipe, console: Console) -> Path:
    """Runs the recipe and returns its run folder; resumes from the newest checkpoint of an interrupted run.

    Raises RecipeError when the folder holds a finished run or one of another recipe, TrainingError when the loss is no
    longer a number.
    """
    run = Path(recipe.output)
    if _is_first_rank():
        _refuse_other_runs(run, recipe)
    set_seed(recipe.seed)
    shards = ShardDataset(Path(recipe.data.shards), split=recipe.data.split)
    indices = chosen_episodes(shards, recipe.data)
    base, tokenizer = build(recipe.model, vocabulary_of(recipe, shards, indices))
    if recipe.model.starts_random and "lora" in recipe.model.train.model_dump().values() and _is_first_rank():
        base.save_pretrained(run / BASE_FOLDER)
    model = choose_trained_weights(base, recipe.model.train, recipe.model.lora)
    stream = _stream(recipe, shards, indices, base.config, tokenizer)
    _describe(console, model, stream, indices, recipe)
    _claim(run, recipe)
    trainer = AgentTrainer(
        model=model,
        args=_arguments(recipe, run, len(stream)),
        train_dataset=stream,
        data_collator=collate,
        callbacks=[ConsoleProgress(console)],
        optimizer_recipe=recipe.training.optimizer,
        end_of_action=tokenizer.eos_token_id,
    )
    trainer.remove_callback(PrinterCallback)
    started = time.monotonic()
    trainer.train(resume_from_checkpoint=_newest_checkpoint(run))
    figures = {"steps": trainer.state.global_step, "seconds_since_last_start": time.monotonic() - started}
    if _is_first_rank():
        save(model, tokenizer, run)
        _finish(run, recipe, shards, figures | {"last_losses": _last_losses(trainer)})
    console.print(f"{run}: {figures['steps']} steps, {figures['seconds_since_last_start']:.0f} s since the last start")
    return run


def _last_losses(trainer: AgentTrainer) -> dict[str, float]:
    """The losses of the last log line, by name."""
    last = next((line for line in reversed(trainer.state.log_history) if "loss" in line), {})
    return {name: value for name, value in last.items() if name.endswith("loss")}


def _refuse_other_runs(run: Path, recipe: Recipe) -> None:
    if (run / FINISHED).exists():
        raise RecipeError(f"{run} holds a finished run; choose another output, or remove it")
    path = run / RECIPE_FILE
    if path.exists() and path.read_text(encoding="utf-8") != recipe.to_yaml():
        raise RecipeError(f"{run} was begun with another recipe ({path}); choose another output, or remove it")


def _claim(run: Path, recipe: Recipe) -> None:
    """Done when data and model are there: a path mistyped must not make the folder refuse the corrected recipe."""
    if _is_first_rank():
        with written_whole(run / RECIPE_FILE) as temporary:
            temporary.write_text(recipe.to_yaml(), encoding="utf-8")


def _newest_checkpoint(run: Path) -> str | None:
    """The newest whole checkpoint. Trainer writes its state last; without it, the writing was interrupted."""
    whole = [path.parent for path in (run / CHECKPOINTS).glob(f"checkpoint-*/{TRAINER_STATE_NAME}")]
    return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]))) if whole else None


def _is_first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


def vocabulary_of(recipe: Recipe, shards: ShardDataset, indices: list[int]) -> Vocabulary:
    """What a word tokenizer is made of: the language's phrases, and every text of these episodes."""
    episodes = (shards.without_pixels(index) for index in indices)
    return Vocabulary(PHRASES, recipe.action_language.bins, (text for episode in episodes for text in _texts(episode)))


def _texts(episode):
    yield episode.goal
    for step in episode.steps:
        yield step.action.text
        yield from (element_name(element) for element in step.elements)


def _stream(recipe: Recipe, shards: ShardDataset, indices: list[int], config, tokenizer) -> SentenceStream:
    trajectory = TrajectorySentences(
        tokenizer, recipe.action_language.build(), config.screen_size, config.tokens_per_screen
    )
    training = recipe.training
    per_step = training.batch_size * training.accumulation * int(os.environ.get("WORLD_SIZE", "1"))
    total = per_step * _steps(training, len(indices), per_step)
    grid = config.visual_grid if config.element_loss else None
    stream = (shards, indices, total, training.batch_size, recipe.seed)
    if recipe.data.sentences == "elements":
        return ElementStream(*stream, sentences=ElementSentences(trajectory, recipe.data.items), grid=grid)
    return TrajectoryStream(*stream, sentences=trajectory, grid=grid)


def _steps(training: TrainingRecipe, episodes: int, per_step: int) -> int:
    return training.steps if training.steps is not None else math.ceil(training.epochs * episodes / per_step)


def _arguments(recipe: Recipe, run: Path, total: int) -> TrainingArguments:
    training = recipe.training
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(run / "tensorboard")
    arguments = TrainingArguments(
        output_dir=str(run / CHECKPOINTS),
        num_train_epochs=1,  # the stream holds the passes
        per_device_train_batch_size=training.batch_size,
        gradient_accumulation_steps=training.accumulation,
        lr_scheduler_type={"constant": "constant_with_warmup"}.get(training.schedule, training.schedule),
        warmup_steps=training.warmup_steps,
        max_grad_norm=training.max_grad_norm,
        bf16=has_bf16() if training.bf16 == "auto" else training.bf16,
        activation_checkpointing=training.gradient_checkpointing,
        save_strategy="no" if training.save_steps is None else "steps",
        save_steps=training.save_steps or 1,
        save_total_limit=2,
        logging_steps=training.log_steps,
        logging_first_step=True,
        dataloader_num_workers=recipe.data.workers,
        use_cpu=not torch.cuda.is_available(),
        report_to=["tensorboard"],
        remove_unused_columns=False,
        disable_tqdm=True,
        seed=recipe.seed,
    )
    if "WORLD_SIZE" not in os.environ and arguments.device.type == "cuda":
        # Several GPUs in one process would mean DataParallel, which cuts screens and sentences apart. One rank a GPU
        # (torchrun) is how to use them all.
        arguments._n_gpu = 1
    return arguments


def _describe(console: Console, model, stream: SentenceStream, indices: list[int], recipe: Recipe) -> None:
    console.print(f"{recipe.output}: {len(indices)} episodes, {len(stream)} sentences to read")
    for part, counts in count_parameters(model).items():
        console.print(f"  {part:15} {counts['trained']:>13,} trained  {counts['frozen']:>13,} frozen", highlight=False)


def _finish(run: Path, recipe: Recipe, shards: ShardDataset, figures: dict) -> None:
    record = {
        "figures": figures,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _RECORDED},
        "commit": _commit(),
        "command": sys.argv,
        "shards": recipe.data.shards,
        "manifest": shards.manifest,
    }
    with written_whole(run / FINISHED) as temporary:
        temporary.write_text(json.dumps(record, indent=2), encoding="utf-8")


def _commit() -> str | None:
    """The commit of the code that runs, None where it was installed without its repository."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (fixed words, no input)
    return result.stdout.strip() if result.returncode == 0 else None
