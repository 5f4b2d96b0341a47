"""What a recipe means in the words of transformers' Trainer."""

import json
import os
from pathlib import Path

import torch
from transformers import TrainingArguments

from vlm_agent.models.precision import has_bf16
from vlm_agent.models.trained import CHECKPOINTS
from vlm_agent.training.recipe import Recipe, RecipeError
from vlm_agent.training.run_folder import TENSORBOARD


def arguments(recipe: Recipe, run: Path, steps: int) -> TrainingArguments:
    """Made before the model: with DeepSpeed's ZeRO-3, weights are cut among the ranks while they are loaded.

    Raises RecipeError where DeepSpeed cannot begin.
    """
    training = recipe.training
    if training.deepspeed is not None:
        _check_deepspeed(recipe)
        _begin_deepspeed()
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(run / TENSORBOARD)
    made = TrainingArguments(
        output_dir=str(run / CHECKPOINTS),
        max_steps=steps,
        per_device_train_batch_size=1,  # one row
        gradient_accumulation_steps=training.accumulation,
        lr_scheduler_type={"constant": "constant_with_warmup"}.get(training.schedule, training.schedule),
        warmup_steps=training.warmup_steps,
        max_grad_norm=training.max_grad_norm,
        bf16=has_bf16() if training.bf16 == "auto" else training.bf16,
        activation_checkpointing=training.gradient_checkpointing,
        save_strategy="no" if training.save_steps is None else "steps",
        save_steps=training.save_steps or 1,
        eval_strategy="no" if training.validation is None else "steps",
        eval_steps=None if training.validation is None else training.validation.steps,
        logging_steps=training.log_steps,
        logging_first_step=True,
        dataloader_num_workers=recipe.data.workers,
        use_cpu=not torch.cuda.is_available(),
        deepspeed=training.deepspeed,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        disable_tqdm=True,
        seed=recipe.seed,
    )
    if "WORLD_SIZE" not in os.environ and made.device.type == "cuda":
        # Several GPUs in one process would mean DataParallel, which cuts screens and sentences apart. One rank a GPU
        # (torchrun) is how to use them all.
        made._n_gpu = 1
    return made


def _check_deepspeed(recipe: Recipe) -> None:
    path = Path(recipe.training.deepspeed)
    try:
        stage = json.loads(path.read_text(encoding="utf-8")).get("zero_optimization", {}).get("stage", 0)
    except OSError as error:
        raise RecipeError(f"training.deepspeed: {path} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError) as error:
        raise RecipeError(f"training.deepspeed: {path} is no DeepSpeed configuration: {error}") from None
    if stage == 3 and recipe.model.quantisation is not None:
        raise RecipeError(
            f"training.deepspeed: ZeRO-3, which {path} asks for, would cut quantised weights apart; use zero2, which "
            "leaves them whole on every GPU"
        )
    if "RANK" not in os.environ:
        raise RecipeError(
            "training.deepspeed needs a launcher, for one GPU too: torchrun --nproc_per_node N -m vlm_agent.cli train …"
        )


def _begin_deepspeed() -> None:
    """The ranks have to know each other when a checkpoint is loaded: ZeRO-3 gives each its part then.

    On CPUs DeepSpeed would compile an operation that speeds up the talk of ranks on one machine. It takes a compiler
    and most of a minute, and one that is killed meanwhile leaves a lock on which every later run waits for ever. gloo
    does without.
    """
    import deepspeed  # takes seconds, and is only wanted here

    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if on_gpu else "gloo")
