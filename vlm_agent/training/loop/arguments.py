"""A recipe as the `TrainingArguments` of transformers' Trainer."""

import json
import os
from pathlib import Path

import torch
from transformers import TrainingArguments

from vlm_agent.errors import RecipeError
from vlm_agent.files.installation import install_line
from vlm_agent.models.run_layout import CHECKPOINTS
from vlm_agent.models.weights.device import model_device
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.loop.ranks import TIMEOUT
from vlm_agent.training.run_folder.layout import TENSORBOARD


def arguments(recipe: Recipe, run: Path, steps: int) -> TrainingArguments:
    """Call it before the model is built: with DeepSpeed's ZeRO-3, weights are partitioned while they are loaded.

    Raises RecipeError where DeepSpeed cannot start.
    """
    training = recipe.training
    deepspeed = training.deepspeed_file
    if deepspeed is not None:
        check_deepspeed(deepspeed, recipe)
        if "RANK" not in os.environ:
            raise RecipeError(
                "training.deepspeed needs a launcher, for one GPU too: torchrun --nproc_per_node N -m vlm_agent.cli "
                "train …"
            )
        start_deepspeed()
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(run / TENSORBOARD)
    result = TrainingArguments(
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
        logging_nan_inf_filter=False,  # it waits for the GPU after every batch; `FiniteLoss` checks every step
        dataloader_num_workers=recipe.data.workers,
        # Batches lie in pinned memory on their way to a GPU. On a CPU, where none is pinned, Trainer would warn.
        accelerator_config={"non_blocking": model_device().type == "cuda"},
        # A vision tower that trains may have layers that its feature map does not depend on, such as a pooler.
        ddp_find_unused_parameters=recipe.model.train.vision != "frozen",
        ddp_timeout=int(TIMEOUT.total_seconds()),
        use_cpu=model_device().type == "cpu",
        deepspeed=None if deepspeed is None else str(deepspeed),
        report_to=["tensorboard"],
        remove_unused_columns=False,
        disable_tqdm=True,
        seed=recipe.seed,
    )
    if "WORLD_SIZE" not in os.environ and result.device.type == "cuda":
        # With several GPUs in one process Trainer would use DataParallel, which splits screens from sentences. One rank
        # per GPU (torchrun) uses them all.
        result._n_gpu = 1
    return result


def check_deepspeed(path: Path, recipe: Recipe) -> None:
    """Raises RecipeError for a file that is no configuration, or one that does not fit the recipe."""
    try:
        stage = json.loads(path.read_text(encoding="utf-8")).get("zero_optimization", {}).get("stage", 0)
    except OSError as error:
        raise RecipeError(f"training.deepspeed: {path} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError) as error:
        raise RecipeError(f"training.deepspeed: {path} is not a DeepSpeed configuration: {error}") from None
    if stage == 3 and recipe.model.quantisation is not None:
        raise RecipeError(
            f"training.deepspeed: ZeRO-3, which {path} asks for, would partition quantised weights; use zero2, which "
            "keeps them whole on every GPU"
        )


def start_deepspeed() -> None:
    """Connects the ranks before a checkpoint is loaded, because ZeRO-3 partitions it among them.

    On CPUs DeepSpeed would compile an operation that speeds up collectives on one machine. That needs a compiler and
    most of a minute, and a process killed meanwhile leaves a lock on which every later run hangs. gloo works without.
    """
    try:
        import deepspeed  # takes seconds, and most runs do not need it
    except ImportError as error:
        raise RecipeError(f"training.deepspeed needs DeepSpeed ({error}); {install_line('deepspeed')}") from None
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if on_gpu else "gloo", timeout=TIMEOUT)
