"""The only module that knows how many processes train, and with what: one alone, DDP, or DeepSpeed's ZeRO-2 and ZeRO-3.

`Engine` is a model in one process, or a copy of it on every rank. `ZeroEngine` divides gradients, optimiser states
and, with ZeRO-3, weights among the ranks. The loop (`train.run_steps`) reads the same for all of them: gradients are
averaged over the ranks, and a step updates the weights.
"""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import HfDeepSpeedConfig

from vlm_agent.errors import RecipeError, TrainingError
from vlm_agent.files.installation import install_line
from vlm_agent.models.family import saved_family
from vlm_agent.models.weights.adapters import ADAPTER_WEIGHTS, save_trained_weights, state_for_saving
from vlm_agent.models.weights.precision import has_bf16, model_device
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.optimizers import optimizer_of

OPTIMIZER = "optimizer.pt"


@dataclass(frozen=True)
class Place:
    """Where this rank computes. `deepspeed`: the configuration, which must live as long as a model is loaded and
    trained, because `from_pretrained` partitions weights by it; None without DeepSpeed."""

    device: torch.device
    bf16: bool
    deepspeed: HfDeepSpeedConfig | None = None


def take_place(recipe: Recipe) -> Place:
    """Chooses the device of this rank and connects the ranks. Call it before the model is built.

    Raises RecipeError where DeepSpeed cannot start, TrainingError where the ranks chose unlike precisions.
    """
    training, device = recipe.training, own_device()
    bf16 = has_bf16() if training.bf16 == "auto" else training.bf16
    if training.deepspeed_file is None:
        ranks.join(device)
        refuse_unlike_precisions(bf16)
        return Place(device, bf16)
    config = read_deepspeed(training.deepspeed_file, recipe)
    if "RANK" not in os.environ:
        raise RecipeError(
            "training.deepspeed needs a launcher, for one GPU too: torchrun --nproc_per_node N -m vlm_agent.cli train …"
        )
    start_deepspeed()
    refuse_unlike_precisions(bf16)
    return Place(device, bf16, HfDeepSpeedConfig(completed(config, training.deepspeed_file, recipe, bf16)))


def own_device() -> torch.device:
    """This rank's GPU, which becomes the current one, else the CPU. Without a launcher, the first GPU."""
    device = model_device()
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return device


def refuse_unlike_precisions(bf16: bool) -> None:
    """Raises TrainingError where `training.bf16: auto` chose bfloat16 on some ranks only: they would average gradients
    of unlike models. A collective."""
    if not ranks.agree(int(bf16)):
        raise TrainingError(
            "training.bf16: auto chose bfloat16 on some nodes and float32 on others; set it to true or false"
        )


class Engine:
    """A model that trains in this process, with a copy of it on every other rank (DDP).

    `model`: saved and restored. `network`: called in its place. `step`: updates the weights by the gradients.
    `may_have_unused`: some trained weights may not take part in a loss; DDP then searches the graph of every batch.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, place: Place, may_have_unused: bool = False
    ) -> None:
        self.model, self.optimizer, self.place = model, optimizer, place
        self.rates = [group["lr"] for group in optimizer.param_groups]
        self.network: nn.Module = model
        self.step: Callable[[], Any] = optimizer.step
        self._norm: Any = None
        if ranks.count() > 1 and place.deepspeed is None:
            devices = [place.device] if place.device.type == "cuda" else None
            self.network = DistributedDataParallel(model, devices, find_unused_parameters=may_have_unused)

    def set_rate(self, factor: float) -> None:
        """The learning rates of the next step: `factor` times those of the recipe."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def precision(self) -> AbstractContextManager:
        """The context of a forward pass."""
        return torch.autocast(self.place.device.type, torch.bfloat16) if self.place.bf16 else nullcontext()

    def accumulating(self, is_last: bool) -> AbstractContextManager:
        """The context of the forward and backward pass of one row of a step: ranks meet in that of the last."""
        if is_last or self.network is self.model:
            return nullcontext()
        return cast(DistributedDataParallel, self.network).no_sync()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def clip(self, greatest: float) -> torch.Tensor | None:
        """Scales the gradients to a norm of at most `greatest`. Returns their norm before; None where only the step
        knows it."""
        self._norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), greatest)
        return self._norm

    def figures(self) -> dict[str, float]:
        """The norm of the last step's gradients before clipping, and its learning rate. Waits for the device."""
        return {"grad_norm": float(self._norm), "learning_rate": self.optimizer.param_groups[0]["lr"]}

    def save(self, checkpoint: Path) -> None:
        """Writes trained weights and optimiser states. A collective."""
        if ranks.number() == 0:
            self.save_weights(checkpoint, None)
            torch.save(self.optimizer.state_dict(), checkpoint / OPTIMIZER)

    def save_weights(self, folder: Path, state: dict[str, torch.Tensor] | None) -> None:
        save_trained_weights(cast("PreTrainedModel | PeftModel", self.model), folder, state)

    def load(self, checkpoint: Path) -> None:
        """Restores what `save` wrote. A collective."""
        self.load_weights(checkpoint)
        # The optimiser copies each state to the device of its weight. No code in a pickle is run.
        self.optimizer.load_state_dict(torch.load(checkpoint / OPTIMIZER, map_location="cpu", weights_only=True))

    def load_weights(self, folder: Path) -> None:
        if isinstance(self.model, PeftModel):
            set_peft_model_state_dict(self.model, load_file(folder / ADAPTER_WEIGHTS))
        else:  # the family's loader knows the names under which transformers has saved the weights
            self.model.load_state_dict(saved_family(folder).load(folder).state_dict())


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


def engine_of(model: nn.Module, recipe: Recipe, place: Place) -> Engine:
    """The model on its device, with the optimiser of the recipe."""
    optimizer = recipe.training.optimizer
    if place.deepspeed is not None:
        return ZeroEngine(model, optimizer_of(model, optimizer, place.bf16), place)
    model.to(place.device)  # before the optimiser, which keeps its parameters
    # A vision tower that trains may have layers that its feature map does not depend on, such as a pooler.
    may_have_unused = recipe.model.train.vision != "frozen"
    return Engine(model, optimizer_of(model, optimizer, place.bf16), place, may_have_unused)


# DeepSpeed: its file, and its start.


def read_deepspeed(path: Path, recipe: Recipe) -> dict[str, Any]:
    """Raises RecipeError for a file that is no configuration, or one that does not fit the recipe."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        stage = config.get("zero_optimization", {}).get("stage", 0)
    except OSError as error:
        raise RecipeError(f"training.deepspeed: {path} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError) as error:
        raise RecipeError(f"training.deepspeed: {path} is not a DeepSpeed configuration: {error}") from None
    if stage == 3 and recipe.model.quantisation is not None:
        raise RecipeError(
            f"training.deepspeed: ZeRO-3, which {path} asks for, would partition quantised weights; use zero2, which "
            "keeps them whole on every GPU"
        )
    return config


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


def completed(config: dict[str, Any], path: Path, recipe: Recipe, bf16: bool) -> dict[str, Any]:
    """The configuration with the recipe's values where it has `auto` or none. Raises RecipeError for another value."""
    accumulation = recipe.training.accumulation
    known = {
        "train_micro_batch_size_per_gpu": 1,  # one row
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": accumulation * ranks.count(),
        "gradient_clipping": recipe.training.max_grad_norm,
        "bf16": config.get("bf16", {}) | {"enabled": bf16},
    }
    for key, value in known.items():
        there = config.get(key, "auto")
        named = there.get("enabled", "auto") if isinstance(there, dict) else there
        if named != "auto" and named != (bf16 if key == "bf16" else value):
            raise RecipeError(f'training.deepspeed: {path} sets {key} to {named}, unlike the recipe; write "auto"')
    return config | known | {"steps_per_print": config.get("steps_per_print", 10**9)}


def with_sizes(config: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The configuration with the sizes of buffers that follow from the width of the model where they are `auto`."""
    zero = config["zero_optimization"]
    width = hidden_size(cast(Any, model).config)
    sizes = {
        "reduce_bucket_size": width**2,
        "stage3_prefetch_bucket_size": int(0.9 * width**2),
        "stage3_param_persistence_threshold": 10 * width,
    }
    return config | {
        "zero_optimization": {key: sizes[key] if value == "auto" else value for key, value in zero.items()}
    }


def hidden_size(config: Any) -> int:
    """The width of the language model."""
    return getattr(config, "hidden_size", None) or config.get_text_config().hidden_size
