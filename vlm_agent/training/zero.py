"""DeepSpeed's ZeRO-2 and ZeRO-3: gradients, optimiser states and, with ZeRO-3, weights are divided among the ranks."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from torch import nn
from transformers.integrations.deepspeed import HfDeepSpeedConfig

from vlm_agent.errors import RecipeError
from vlm_agent.files.installation import install_line
from vlm_agent.models.weights.adapters import state_for_saving
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.dry_run.memory import SHARDINGS, Sharding
from vlm_agent.training.engine import Engine, Place
from vlm_agent.training.loop import ranks


class ZeroEngine(Engine):
    """A model under DeepSpeed's ZeRO. The clipping belongs to its step."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, place: Place) -> None:
        super().__init__(model, optimizer, place)
        import deepspeed  # takes seconds, and most runs do not need it

        assert place.deepspeed is not None  # noqa: S101 (only `engine_of` builds one)
        config = with_sizes(place.deepspeed.config, model)
        self._engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        self.network, self.step = self._engine, self._engine.step

    def precision(self) -> AbstractContextManager:
        return nullcontext()  # the weights themselves are bfloat16

    def accumulating(self, is_last: bool) -> AbstractContextManager:
        self._engine.set_gradient_accumulation_boundary(is_last)
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        self._engine.backward(loss, scale_wrt_gas=False)

    def has_stepped(self) -> bool:
        return bool(self._engine.was_step_applied())

    def clip(self, greatest: float) -> torch.Tensor | None:
        return None

    def figures(self) -> dict[str, float]:
        self._norm = self._engine.get_global_grad_norm()
        return super().figures()

    def save(self, checkpoint: Path) -> None:
        state = state_for_saving(self.model, ranks.number() == 0)
        if ranks.number() == 0:
            self.save_weights(checkpoint, state)
        self._engine.save_checkpoint(str(checkpoint), exclude_frozen_parameters=isinstance(self.model, PeftModel))

    def load(self, checkpoint: Path) -> None:
        """DeepSpeed's files hold weights and optimiser states. It reads them as pickles."""
        self._engine.load_checkpoint(str(checkpoint), load_module_strict=not isinstance(self.model, PeftModel))


# The file of `training.deepspeed`, and the start of DeepSpeed.

_OFFLOADED = ("offload_param", "offload_optimizer")
_NUMBERS = ("reduce_bucket_size", "stage3_max_live_parameters")


def read_deepspeed(path: Path, recipe: Recipe) -> dict[str, Any]:
    """Raises RecipeError for a file that is no configuration, or one that does not fit the recipe."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        _check_sections(config, config["zero_optimization"])
    except OSError as error:
        raise RecipeError(f"training.deepspeed: {path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise RecipeError(f"training.deepspeed: {path} lacks {error}") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise RecipeError(f"training.deepspeed: {path} is not a DeepSpeed configuration: {error}") from None
    known = {
        "train_micro_batch_size_per_gpu": 1,  # one row
        "gradient_accumulation_steps": recipe.training.accumulation,
        "gradient_clipping": recipe.training.max_grad_norm,
    }
    _refuse_others(path, config, known)
    _refuse_sections(path, config)
    if config["zero_optimization"]["stage"] == 3 and recipe.model.quantisation is not None:
        raise RecipeError(
            f"training.deepspeed: ZeRO-3, which {path} asks for, would partition quantised weights; use zero2, which "
            "keeps them whole on every GPU"
        )
    return config | known


def _check_sections(config: dict[str, Any], zero: dict[str, Any]) -> None:
    """Raises ValueError for a section with other values than this module and DeepSpeed can read."""
    sections = {"zero_optimization": zero} | {name: config.get(name, {}) for name in ("bf16", "fp16")}
    sections |= {part: zero.get(part) or {} for part in _OFFLOADED if isinstance(zero, dict)}
    if unlike := [name for name, section in sections.items() if not isinstance(section, dict)]:
        raise ValueError(f"{unlike[0]} must be an object")
    if zero["stage"] not in (1, 2, 3):
        raise ValueError("zero_optimization.stage is 1, 2 or 3; to divide nothing, remove training.deepspeed")
    for key, value in zero.items():
        if value == "auto" and key not in _SIZES:
            raise ValueError(f"zero_optimization.{key} cannot be auto")
        if key in _NUMBERS and value != "auto" and not isinstance(value, int | float):
            raise ValueError(f"zero_optimization.{key} must be a number")


def _refuse_others(path: Path, config: dict[str, Any], known: dict[str, Any]) -> None:
    """Raises RecipeError for a value that is neither `auto` nor that of the recipe."""
    for key, value in known.items():
        if config.get(key, "auto") not in ("auto", value):
            raise RecipeError(
                f'training.deepspeed: {path} sets {key} to {config[key]}, unlike the recipe; write "auto"'
            )


def _refuse_sections(path: Path, config: dict[str, Any]) -> None:
    """Raises RecipeError for sections that are common in files for other programs: DeepSpeed would ignore or misread
    them here."""
    for section, keys in {"optimizer": "training.optimizer", "scheduler": "training.schedule and warmup_steps"}.items():
        if section in config:
            raise RecipeError(f"training.deepspeed: {path} has a section {section}; remove it, and set {keys}")
    if config.get("fp16", {}).get("enabled") is True:
        raise RecipeError(f"training.deepspeed: {path} enables fp16, which loses small gradients; use training.bf16")


def sharding_of(recipe: Recipe) -> Sharding:
    """How the recipe spreads the model over GPUs, by DeepSpeed's defaults where its file has no value. Raises what
    `read_deepspeed` raises."""
    path = recipe.training.deepspeed_file
    if path is None:
        return SHARDINGS[0]
    zero = read_deepspeed(path, recipe)["zero_optimization"]
    stage, bucket = zero["stage"], zero.get("reduce_bucket_size", 5 * 10**8)
    return Sharding(
        path.stem,
        stage,
        # DeepSpeed's default device is none.
        offload=all(((zero.get(part) or {}).get("device") or "none") != "none" for part in _OFFLOADED),
        bucket=None if bucket == "auto" else int(bucket),
        live=int(zero.get("stage3_max_live_parameters", 10**9)) if stage == 3 else 0,
    )


def start(recipe: Recipe) -> None:
    """Connects the ranks. Raises RecipeError for a file that does not fit the recipe, and without a launcher."""
    assert recipe.training.deepspeed_file is not None  # noqa: S101 (called only with one)
    read_deepspeed(recipe.training.deepspeed_file, recipe)
    if "RANK" not in os.environ:
        raise RecipeError(
            "training.deepspeed needs a launcher, for one GPU too: torchrun --nproc_per_node N -m vlm_agent.cli train …"
        )
    start_deepspeed()


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
    deepspeed.init_distributed("nccl" if on_gpu else "gloo", timeout=ranks.TIMEOUT)


def configuration(recipe: Recipe, bf16: bool) -> HfDeepSpeedConfig:
    """The file with the recipe's values where it has `auto` or none. Raises RecipeError for another value."""
    path = recipe.training.deepspeed_file
    assert path is not None  # noqa: S101 (called only with one)
    config = read_deepspeed(path, recipe)
    rows, half = recipe.training.accumulation * ranks.count(), config.get("bf16", {})
    _refuse_others(path, config, {"train_batch_size": rows})
    _refuse_others(path, {"bf16": half.get("enabled", "auto")}, {"bf16": bf16})
    known = {"train_batch_size": rows, "bf16": half | {"enabled": bf16}}
    return HfDeepSpeedConfig({"steps_per_print": 10**9} | config | known)


_SIZES: dict[str, Callable[[int], int]] = {
    "reduce_bucket_size": lambda width: width**2,
    "stage3_prefetch_bucket_size": lambda width: int(0.9 * width**2),
    "stage3_param_persistence_threshold": lambda width: 10 * width,
}
"""Sizes of buffers that follow from the width of the model where they are `auto`."""


def with_sizes(config: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The configuration with a number in place of each `auto` of `_SIZES`."""
    zero = config["zero_optimization"]
    whole = cast(Any, model).config
    width = getattr(whole, "hidden_size", None) or whole.get_text_config().hidden_size  # of the language model
    return config | {
        "zero_optimization": {key: _SIZES[key](width) if value == "auto" else value for key, value in zero.items()}
    }
