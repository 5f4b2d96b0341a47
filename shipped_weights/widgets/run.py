"""Trains `phone_widgets_tiny` on a stream of drawn screens."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from shipped_weights import loop
from shipped_weights.widgets.loss import losses
from shipped_weights.widgets.settings import WidgetTraining
from shipped_weights.widgets.targets import targets
from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.screens.widgets.tiny import STRIDE, Network, PhoneWidgetsTiny, batch, scaled

if TYPE_CHECKING:
    from rich.console import Console

Sample = tuple[np.ndarray, tuple[Widget, ...]]
"""Pixels uint8 (height, width, 3), and what they show."""

WITH_STATE = ("check_box", "radio_group", "switch")

MODEL_FILE = "model.safetensors"


def train(settings: WidgetTraining, samples: Callable[[int], Sample], console: "Console") -> Path:
    """Trains on `samples(0)`, `samples(1)`, … and returns the path of the weights, in `settings.output`.

    Raises DatasetError where the folder holds a run with other settings, TrainingError where the loss is not a number.
    """
    torch.manual_seed(settings.seed)
    start = None if settings.start is None else PhoneWidgetsTiny.load(Path(settings.start))
    network = Network(len(WIDGET_KINDS)) if start is None else start.network
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def loss_of(step: int) -> dict[str, torch.Tensor]:
        pictures, widgets = zip(*_batch(settings, samples, step), strict=True)
        values = batch(pictures)
        grid = (values.shape[2] // STRIDE, values.shape[3] // STRIDE)
        wanted = [targets(each, picture.shape[:2], grid) for picture, each in zip(pictures, widgets, strict=True)]
        logits, features = network(values)

        def details(cells: torch.Tensor) -> torch.Tensor:
            samples, rows, columns = cells.unbind(1)
            return network.details(features[samples, :, rows, columns])

        with torch.autocast("cpu", enabled=False):
            parts = losses(logits.float(), details, wanted)
        weights = {"centres": 1.0, "boxes": settings.box_weight, "states": settings.state_weight}
        return {name: weight * getattr(parts, name) for name, weight in weights.items()}

    def save(folder: Path) -> None:
        PhoneWidgetsTiny(network, settings.side, WITH_STATE).write(folder / MODEL_FILE)

    record = loop.train(settings, network, loss_of, save, console, "a training of a widget detector")
    path, screens = Path(settings.output) / MODEL_FILE, record["steps"] * settings.batch_size
    line = f"{screens:,} screens in {record['seconds'] / 60:,.1f} minutes; weights: {path}"
    console.print(line, highlight=False, soft_wrap=True)
    return path


def _batch(
    settings: WidgetTraining, samples: Callable[[int], Sample], step: int
) -> Iterator[tuple[np.ndarray, tuple[Widget, ...]]]:
    side = random.Random(f"side {settings.seed} {step}").choice(settings.sides)
    first = settings.first_sample + step * settings.batch_size
    for number in range(first, first + settings.batch_size):
        pixels, widgets = samples(number)
        yield scaled(pixels, side), widgets
