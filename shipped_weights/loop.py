"""A small training loop for models of seconds to hours on one processor: exact resume, progress, safetensors only.

What a step trains on depends only on its number, so a run that was killed and resumes ends with the weights of one that
was not.
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from vlm_agent.errors import CheckpointError, TrainingError
from vlm_agent.files import atomic_write, read_checked, sha256_of, write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.jobs import Job
from vlm_agent.settings import Section

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINT, FINISHED, LOG = "checkpoint.safetensors", "finished.json", "log.jsonl"


class LoopSettings(Section):
    """Keys of every recipe of this loop. `output`: the run's folder.

    `bf16`: forward passes in bfloat16, which is faster on processors with such arithmetic and slower on others.

    The learning rate rises over `warmup_steps` and falls to zero: along a half cosine, or over the last `decay_steps`.
    `max_grad_norm` clips gradients.
    """

    output: str
    seed: int = 0
    steps: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=2)]
    learning_rate: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    decay_steps: Annotated[int, Field(ge=1)] | None = None
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    bf16: bool = False
    save_steps: Annotated[int, Field(ge=1)] = 100
    log_steps: Annotated[int, Field(ge=1)] = 50

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        rise = min(1.0, (step + 1) / max(1, self.warmup_steps))
        if self.decay_steps is not None:
            return self.learning_rate * min(rise, (self.steps - step) / self.decay_steps)
        if step < self.warmup_steps:
            return self.learning_rate * rise
        rest = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * rest))


@dataclass
class _State:
    """Everything that a checkpoint holds. `step`: steps done; `seconds`: spent on them, in all processes."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0


LossOf = Callable[[int], Mapping[str, torch.Tensor]]
"""Number of a step → the parts of its loss by name, scalars with a gradient. The loss is their sum."""


def train(
    settings: LoopSettings,
    model: nn.Module,
    loss_of: LossOf,
    save: Callable[[Path], None],
    console: "Console",
    kind: str,
    identity: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains all parameters of `model` that require a gradient, or resumes; `save(folder)` writes the result.

    `kind`: of the training, for messages. `identity`: what decides the result besides the settings. Returns the record
    of the run (`finished.json`). Raises DatasetError where the folder holds another run, TrainingError where the loss
    is not a number, CheckpointError where the checkpoint is damaged.
    """
    folder = Path(settings.output)
    job = Job(folder, kind, "job/plan.json", "job/lock")
    job.check_folder()
    with job.locked():
        plan = {"settings": settings.model_dump(mode="json", exclude={"output"}), **(identity or {})}
        job.write_or_verify_plan(plan | _start_digest(getattr(settings, "start", None)))
        if (folder / FINISHED).is_file():
            console.print(f"{folder} is complete", highlight=False, soft_wrap=True)
            return read_checked(folder / FINISHED, "remove the folder and train again")
        state = _train(settings, model, loss_of, console, folder)
        save(folder)
        record = {"steps": state.step, "seconds": round(state.seconds, 1), "torch": torch.__version__}
        write_checked(folder / FINISHED, record)
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return record


def _start_digest(start: str | None) -> dict[str, str]:
    """SHA-256 of the weights that a training continues from: a file, or those of a folder."""
    if start is None:
        return {}
    path = Path(start)
    files = [path] if path.is_file() else sorted(path.rglob("*.safetensors"))
    return {"start_sha256": sha256_of(files)}


def _train(settings: LoopSettings, model: nn.Module, loss_of: LossOf, console: "Console", folder: Path) -> _State:
    state = _State(model, _optimizer(settings, model))
    if (folder / CHECKPOINT).is_file():
        _load(folder / CHECKPOINT, state)
        console.print(f"resuming after step {state.step:,} of {settings.steps:,}", highlight=False)
    _cut_log(folder / LOG, state.step)
    model.train()
    first, before, start = state.step, state.seconds, time.monotonic()
    losses: deque[dict[str, float]] = deque(maxlen=settings.log_steps)
    with Progress(console, settings.steps - first).shown() as progress:
        while state.step < settings.steps:
            losses.append(_one_step(settings, state, loss_of))
            state.step += 1
            state.seconds = before + time.monotonic() - start
            means = {name: sum(loss[name] for loss in losses) / len(losses) for name in losses[0]}
            numbers = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
            progress.update(state.step - first, f"step {state.step:,} of {settings.steps:,}: {numbers}")
            if state.step % settings.log_steps == 0:
                rounded = {name: round(mean, 5) for name, mean in means.items()}
                _log(folder / LOG, {"step": state.step, **rounded, "seconds": round(state.seconds, 1)})
            if state.step % settings.save_steps == 0 and state.step < settings.steps:
                _save(folder / CHECKPOINT, state)
    return state


def _one_step(settings: LoopSettings, state: _State, loss_of: LossOf) -> dict[str, float]:
    for group in state.optimizer.param_groups:
        group["lr"] = settings.rate(state.step)
    torch.manual_seed(settings.seed * 1_000_003 + state.step)  # for dropout
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.bf16):
        parts = loss_of(state.step)
        loss = reduce(torch.add, parts.values())
    if not math.isfinite(loss.item()):
        raise TrainingError(f"the loss of step {state.step + 1} is {loss.item()}; lower learning_rate")
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(_trained(state.model), settings.max_grad_norm)
    state.optimizer.step()
    return {name: part.item() for name, part in parts.items()}


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _optimizer(settings: LoopSettings, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; norms and biases without weight decay."""
    decayed = [parameter for parameter in _trained(model) if parameter.ndim > 1]
    others = [parameter for parameter in _trained(model) if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.learning_rate)


def _log(path: Path, line: dict[str, float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _cut_log(path: Path, step: int) -> None:
    """Removes the lines after `step`, which the resumed run writes again."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        with atomic_write(path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")


def _save(path: Path, state: _State) -> None:
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in state.model.state_dict().items()}
    for number, parts in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{key}": torch.as_tensor(part).contiguous() for key, part in parts.items()}
    with atomic_write(path) as temporary:
        # Tensors that share memory, such as tied embeddings, are saved once each.
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        save_file(copies, temporary, {"step": str(state.step), "seconds": repr(state.seconds)})


def _load(path: Path, state: _State) -> None:
    try:
        with safe_open(path, "pt") as file:
            notes, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        of_model = {
            name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")
        }
        state.model.load_state_dict(of_model)
        optimizer = state.optimizer.state_dict()
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, number, key = name.split(".")
                optimizer["state"].setdefault(int(number), {})[key] = tensor
        state.optimizer.load_state_dict(optimizer)
        state.step, state.seconds = int(notes["step"]), float(notes["seconds"])
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); remove it to train from the start") from None
