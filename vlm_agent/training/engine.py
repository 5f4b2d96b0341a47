"""The model of a run on this rank: where it computes, what of it trains, how a step updates it.

`Engine` is a model in one process, or a copy of it on every rank (DDP); `zero.ZeroEngine` divides it among the ranks.
The loop (`train.run_steps`) reads the same for all of them: gradients are averaged over the ranks, and a step updates
the weights.
"""

import atexit
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from accelerate.utils import send_to_device
from peft import PeftModel, set_peft_model_state_dict
from rich.console import Console
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel
from transformers.integrations.deepspeed import HfDeepSpeedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from vlm_agent.errors import RecipeError, TrainingError, UserError
from vlm_agent.models.build import build
from vlm_agent.models.cost import UnknownCostError
from vlm_agent.models.family import family_of, saved_family
from vlm_agent.models.run_layout import ADAPTER_WEIGHTS, BASE_FOLDER
from vlm_agent.models.weights.adapters import (
    choose_trained_weights,
    count_parameters,
    save_trained_weights,
    without_zero3_partitioning,
)
from vlm_agent.models.weights.precision import has_bf16, model_device
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.dry_run.memory import demand_of, empty_model, layers_in_words, part_of
from vlm_agent.training.loop import ranks
from vlm_agent.training.loop.optimizers import optimizer_of
from vlm_agent.training.loop.preemption import leave_stopping_to_parent

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
    from vlm_agent.training import zero  # it builds on this module

    training, device = recipe.training, model_device()
    if device.type == "cuda":  # without a launcher, the first GPU
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    bf16 = has_bf16() if training.bf16 == "auto" else training.bf16
    if training.deepspeed_file is None:
        ranks.join(device)
    else:
        zero.start(recipe)
    refuse_unlike_precisions(bf16)
    return Place(device, bf16, None if training.deepspeed_file is None else zero.configuration(recipe, bf16))


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

    def has_stepped(self) -> bool:
        """Whether the last `step` updated the weights: DeepSpeed leaves out one whose gradients are not finite."""
        return True

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
            # In float32, because trained weights are saved so where frozen ones are bfloat16. This doubles the memory
            # that frozen weights take on the host while a run resumes.
            self.model.load_state_dict(saved_family(folder).load(folder, torch.float32).state_dict())


def engine_of(model: nn.Module, recipe: Recipe, place: Place) -> Engine:
    """The model on its device, with the optimiser of the recipe."""
    optimizer = recipe.training.optimizer
    if place.deepspeed is not None:
        from vlm_agent.training.zero import ZeroEngine  # it builds on this module

        return ZeroEngine(model, optimizer_of(model, optimizer, place.bf16), place)
    model.to(place.device)  # before the optimiser, which keeps its parameters
    # A vision tower that trains may have layers that its feature map does not depend on, such as a pooler.
    may_have_unused = recipe.model.train.vision != "frozen"
    return Engine(model, optimizer_of(model, optimizer, place.bf16), place, may_have_unused)


# The model before its first step, and batches on their way to it.


def load_base(recipe: Recipe, data: DataModule, run: Path) -> PreTrainedModel:
    """The model before training. Random weights under an adapter are saved to RUN/base: no checkpoint holds them."""
    with without_zero3_partitioning(recipe.model.starts_random):
        base = build(recipe.model, data.tokenizer, recipe.action_language.build())
    data.complete(base.config)
    if ranks.number() == 0 and recipe.model.starts_random and recipe.model.train.has_adapter:
        base.save_pretrained(run / BASE_FOLDER)
    return base


def adapt(base: PreTrainedModel, recipe: Recipe, place: Place) -> PreTrainedModel | PeftModel:
    """The base, quantised where the recipe asks for it, with adapters; each part trains as `model.train` states.

    DeepSpeed has no autocast: what trains has the dtype of what it reads. Raises RecipeError where nothing trains.
    """
    if recipe.model.quantisation is not None:
        on_device = cast(nn.Module, base).to(place.device)  # quantising 7 B weights on a CPU would take minutes
        base = cast(PreTrainedModel, quantise(on_device, recipe.model.quantisation))
    dtype = torch.bfloat16 if recipe.training.deepspeed is not None and place.bf16 else torch.float32
    model = choose_trained_weights(base, recipe.model.train, recipe.model.lora, dtype)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RecipeError("model.train freezes every part; set language_model to lora, or another part to full")
    model.config.use_cache = False
    return model


def checkpoint_activations(model: PreTrainedModel | PeftModel, data: DataModule, place: Place, console: Console) -> int:
    """Gradient checkpointing as the recipe asks for it; returns how many layers of the language model it takes. A
    collective. Raises what `fewest_layers` raises."""
    if not (wanted := data.recipe.training.gradient_checkpointing):
        return 0
    if wanted == "auto":
        checkpoint_layers(model, count := fewest_layers(data, place, console))
        return count
    model.activation_checkpointing_enable()
    return len(decoder_layers(model))


def gpu_memory(device: torch.device) -> int | None:
    """Bytes, those in use included; None for a CPU, whose memory is not estimated."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None


def fewest_layers(data: DataModule, place: Place, console: Console) -> int:
    """The layers that the memory of the GPUs demands to checkpoint: the greatest number of all ranks; 0 on CPUs. Rank 0
    prints it. Raises RecipeError where the memory of the run cannot be estimated."""
    from vlm_agent.training.zero import sharding_of  # it builds on this module

    memory = gpu_memory(place.device)
    if memory is None:
        return 0
    recipe, gpus = data.recipe, ranks.count()
    try:
        demand = demand_of(empty_model(data.config, recipe.model), recipe, data.largest_row(), place.bf16)
    except (RecipeError, UnknownCostError) as error:
        raise RecipeError(
            f"training.gradient_checkpointing: auto needs an estimate of the memory; set it to true or false: {error}"
        ) from None
    sharding = sharding_of(recipe)
    count = ranks.highest(demand.layers(sharding, gpus, memory))
    needed = demand.total(sharding, gpus, count)
    if ranks.number() == 0:
        line = layers_in_words(count, demand.cost.layers, needed, memory)
        console.print(f"gradient checkpointing: {line}", highlight=False)
    return count


def checkpoint_layers(model: PreTrainedModel | PeftModel, count: int) -> None:
    """Gradient checkpointing of the lowest `count` layers of the language model; with any of them, of all layers of
    the other parts."""
    if count:
        model.activation_checkpointing_enable()
    for layer in decoder_layers(model)[count:]:
        layer.gradient_checkpointing = False


def decoder_layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    """The layers of the language model, lowest first."""
    decoder = part_of(model, family_of(cast(Any, model).config).parts["language_model"])
    return [layer for layer in decoder.modules() if isinstance(layer, GradientCheckpointingLayer)]


def total_parameters(model: nn.Module) -> dict[str, int]:
    """{"trained", "frozen"}: of all parts."""
    parts = count_parameters(model).values()
    return {state: sum(counts[state] for counts in parts) for state in ("trained", "frozen")}


def describe(console: Console, model: nn.Module, data: DataModule) -> None:
    """Prints the size of the run, and of each part of the model."""
    console.print(f"{data.recipe.output}: {data.reads}; {data.steps} steps of {data.rows_per_step} rows")
    for note in data.notes:
        console.print(note.text, highlight=False, markup=False, soft_wrap=True)
    for part, counts in count_parameters(model).items():
        console.print(f"  {part:15} {counts['trained']:>13,} trained  {counts['frozen']:>13,} frozen", highlight=False)


class Rows(Protocol):
    """Collated batches by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> dict: ...


def load(rows: Rows, numbers: Sequence[int], workers: int, device: torch.device) -> Iterator[dict]:
    """The batches of these numbers, in their order, on the device. The call itself draws from PyTorch's generator,
    which seeds the workers."""
    loader = DataLoader(
        cast("Dataset", numbers),
        batch_size=None,
        collate_fn=partial(_row, rows),
        num_workers=workers,
        worker_init_fn=leave_stopping_to_parent,
        pin_memory=device.type == "cuda",
    )
    batches = iter(loader)
    _WORKERS.update(getattr(batches, "_workers", ()))
    return _received(batches, device)


def _row(rows: Rows, number: int) -> dict | Exception:
    """A batch, or the error in its place: to the message of one that is raised in a worker, a DataLoader adds the
    worker's traceback. As a `collate_fn`, this also leaves NumPy arrays on the host (`models.family.Processor`)."""
    try:
        return rows[number]
    except (UserError, OSError) as error:
        return error


def _received(batches: Iterator[dict | Exception], device: torch.device) -> Iterator[dict]:
    for batch in batches:
        if isinstance(batch, Exception):
            raise batch
        yield on_device(batch, device)


_WORKERS: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Processes of DataLoaders; multiprocessing refers to those that run."""
os.register_at_fork(after_in_child=_WORKERS.clear)


@atexit.register
def _end_workers() -> None:
    """Ends the workers of a process that an error ends, also those of an iterator in a cycle of garbage, whose queue is
    closed before it can end them. Python itself would send SIGTERM, which they ignore, and wait: a rank that failed
    would never exit."""
    for worker in list(_WORKERS):
        worker.kill()


def on_device(batch: dict, device: torch.device) -> dict:
    """The batch with its tensors on the device; a copy to a GPU is asynchronous from pinned memory."""
    return send_to_device(batch, device=device, non_blocking=device.type == "cuda")
