"""The training loop: stream of drawn screens → weights. A killed run resumes to the weights of an uninterrupted one."""

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from shipped_weights.widgets.loss import Losses, losses
from shipped_weights.widgets.settings import WidgetTraining
from shipped_weights.widgets.targets import targets
from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.errors import CheckpointError, TrainingError
from vlm_agent.files import atomic_write, write_json
from vlm_agent.files.jobs import Job
from vlm_agent.screens.widgets.tiny import STRIDE, Network, PhoneWidgetsTiny, Picture, batch, scaled

if TYPE_CHECKING:
    from rich.console import Console

Sample = tuple[np.ndarray, tuple[Widget, ...]]
"""Pixels uint8 (height, width, 3), and what they show."""

WITH_STATE = ("check_box", "radio_group", "switch")

WORK = "state"
MODEL_FILE, CHECKPOINT_FILE, SUMMARY_FILE = "model.safetensors", f"{WORK}/checkpoint.safetensors", "summary.json"


@dataclass
class _State:
    """Everything that a checkpoint holds. `step`: steps done; `seconds`: spent on them, in all processes."""

    network: Network
    optimizer: torch.optim.AdamW
    step: int = 0
    seconds: float = 0.0


def train(settings: WidgetTraining, samples: Callable[[int], Sample], console: "Console") -> Path:
    """Trains on `samples(0)`, `samples(1)`, … and returns the path of the weights, in `settings.output`.

    Raises DatasetError where the folder holds a run with other settings, TrainingError where the loss is not a number.
    """
    folder = Path(settings.output)
    job = Job(folder, "a training of a widget detector", f"{WORK}/plan.json", f"{WORK}/lock")
    job.check_folder()
    with job.locked():
        job.write_or_verify_plan({"settings": settings.model_dump(mode="json", exclude={"output"})})
        if (folder / SUMMARY_FILE).is_file():
            console.print(f"{folder} is complete", highlight=False)
            return folder / MODEL_FILE
        return _train(settings, samples, console, folder)


def _train(settings: WidgetTraining, samples: Callable[[int], Sample], console: "Console", folder: Path) -> Path:
    state = _initial(settings)
    if (folder / CHECKPOINT_FILE).is_file():
        _load(folder / CHECKPOINT_FILE, state)
        console.print(f"resuming after step {state.step:,}", highlight=False)
    meter: dict[str, float] = {}
    first, start, before = state.step, time.monotonic(), state.seconds
    while state.step < settings.steps:
        _add(meter, _one_step(state, settings, samples))
        state.step += 1
        state.seconds = before + time.monotonic() - start
        if state.step % settings.log_steps == 0 or state.step == settings.steps:
            _report(console, folder, settings, state, meter, (state.seconds - before) / (state.step - first))
            meter = {}
        if state.step % settings.save_steps == 0 and state.step < settings.steps:
            _save(folder / CHECKPOINT_FILE, state)
    PhoneWidgetsTiny(state.network, settings.side, WITH_STATE).write(folder / MODEL_FILE)
    screens = settings.steps * settings.batch_size
    write_json(folder / SUMMARY_FILE, {"steps": settings.steps, "screens": screens, "seconds": round(state.seconds)})
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    console.print(
        f"{screens:,} screens in {state.seconds / 60:,.1f} minutes; weights: {folder / MODEL_FILE}",
        highlight=False,
        soft_wrap=True,
    )
    return folder / MODEL_FILE


def _initial(settings: WidgetTraining) -> _State:
    torch.manual_seed(settings.seed)
    start = None if settings.start is None else PhoneWidgetsTiny.load(Path(settings.start))
    network = Network(len(WIDGET_KINDS)) if start is None else start.network.train()
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    decayed = [value for value in network.parameters() if value.dim() > 1]
    others = [value for value in network.parameters() if value.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return _State(network, torch.optim.AdamW(groups, lr=settings.learning_rate))


def _one_step(state: _State, settings: WidgetTraining, samples: Callable[[int], Sample]) -> dict[str, float]:
    """One optimizer step on the samples of this step; a function of state, settings and step number alone."""
    pictures, widgets = zip(*_batch(settings, samples, state.step), strict=True)
    values = batch(pictures)
    grid = (values.shape[2] // STRIDE, values.shape[3] // STRIDE)
    wanted = [targets(each, picture.size, grid) for picture, each in zip(pictures, widgets, strict=True)]
    for group in state.optimizer.param_groups:
        group["lr"] = settings.learning_rate * _schedule(settings, state.step)
    state.network.train()
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.bf16):
        logits, features = state.network(values)

    def details(cells: torch.Tensor) -> torch.Tensor:
        samples, rows, columns = cells.unbind(1)
        return state.network.details(features[samples, :, rows, columns])

    result = losses(logits.float(), details, wanted)
    total = result.centres + settings.box_weight * result.boxes + settings.state_weight * result.states
    if not torch.isfinite(total):
        raise TrainingError(f"the loss of step {state.step + 1} is {total.item()}; lower learning_rate")
    state.optimizer.zero_grad()
    total.backward()
    torch.nn.utils.clip_grad_norm_(state.network.parameters(), settings.max_grad_norm)
    state.optimizer.step()
    return _numbers(result)


def _batch(
    settings: WidgetTraining, samples: Callable[[int], Sample], step: int
) -> Iterator[tuple[Picture, tuple[Widget, ...]]]:
    side = random.Random(f"side {settings.seed} {step}").choice(settings.sides)
    first = settings.first_sample + step * settings.batch_size
    for number in range(first, first + settings.batch_size):
        pixels, widgets = samples(number)
        yield scaled(pixels, side), widgets


def _schedule(settings: WidgetTraining, step: int) -> float:
    """Linear warm-up, a constant, then linear decay to 0 over the last `decay_steps`."""
    return min(1.0, (step + 1) / max(1, settings.warmup_steps), (settings.steps - step) / settings.decay_steps)


def _numbers(result: Losses) -> dict[str, float]:
    return {name: float(getattr(result, name).detach()) for name in ("centres", "boxes", "states")}


def _add(meter: dict[str, float], numbers: dict[str, float]) -> None:
    for name, value in {**numbers, "steps": 1.0}.items():
        meter[name] = meter.get(name, 0.0) + value


def _report(
    console: "Console",
    folder: Path,
    settings: WidgetTraining,
    state: _State,
    meter: dict[str, float],
    seconds_a_step: float,
) -> None:
    means = {name: meter[name] / meter["steps"] for name in ("centres", "boxes", "states")}
    numbers = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    minutes = (settings.steps - state.step) * seconds_a_step / 60
    speed = settings.batch_size / max(seconds_a_step, 1e-9)
    line = f"step {state.step:,} of {settings.steps:,}: {numbers}, {speed:.1f} screens/s, ETA {minutes:.0f} min"
    console.print(line, highlight=False, soft_wrap=True)
    with (folder / "progress.jsonl").open("a", encoding="utf-8") as file:
        rounded = {name: round(value, 5) for name, value in means.items()}
        file.write(json.dumps({"step": state.step, **rounded, "seconds": round(state.seconds)}) + "\n")


# Checkpoints: network, optimizer, and the step, which is also the position in the stream of samples.


def _save(path: Path, state: _State) -> None:
    tensors = {f"network.{name}": value.contiguous() for name, value in state.network.state_dict().items()}
    for index, values in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value.contiguous() for name, value in values.items()}
    with atomic_write(path) as temporary:
        save_file(tensors, temporary, {"step": str(state.step), "seconds": str(state.seconds)})


def _load(path: Path, state: _State) -> None:
    """Raises CheckpointError where the file is damaged."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        state.network.load_state_dict(
            {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
        )
        by_index: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                by_index.setdefault(int(index), {})[key] = value
        state.optimizer.load_state_dict({**state.optimizer.state_dict(), "state": by_index})
        state.step, state.seconds = int(metadata["step"]), float(metadata["seconds"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); remove it to start again") from None
