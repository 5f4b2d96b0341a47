"""Trains `phone_icons_tiny` on icon fonts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn import functional

from shipped_weights.icons.drawn import draw, pick
from shipped_weights.icons.fonts import HELD_OUT, SETS, SIMULATED, Icon, icons_of
from shipped_weights.loop import LoopSettings, train
from vlm_agent.errors import RecipeError
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.icons import tiny as weights
from vlm_agent.screens.icons.crops import normalised
from vlm_agent.screens.icons.tiny import SIDE, Network, channels_last

if TYPE_CHECKING:
    from rich.console import Console

KNOWN = (*SETS, SIMULATED)
KIND = "a training of an icon reader"


class TinyTraining(LoopSettings):
    """`start`: weights to continue from, a folder of a run or a file; None for random ones. `sets`: to train on.

    `label_smoothing`: of the cross entropy.
    """

    reader: str = "phone_icons_tiny"
    start: str | None = None
    sets: Annotated[tuple[str, ...], Field(min_length=1)] = KNOWN
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1

    @model_validator(mode="after")
    def _check(self) -> "TinyTraining":
        check_sets(self.sets)
        return self

    def run(self, console: "Console") -> dict[str, Any]:
        """Trains, or resumes, and writes the weights to `output`."""
        network = self._initial()
        batches = Batches(icons_of(list(self.sets)), self)
        meanings = list(MEANINGS)

        def loss_of(step: int) -> dict[str, torch.Tensor]:
            pictures, wanted = batches.at(step)
            guessed = network(pictures).float()
            return {"loss": functional.cross_entropy(guessed, wanted, label_smoothing=self.label_smoothing)}

        def save(folder: Path) -> None:
            weights.write(network, meanings, folder / weights.WEIGHTS)

        return train(self, network, loss_of, save, console, KIND, {"meanings": meanings, "icons": len(batches.icons)})

    def _initial(self) -> Network:
        """The network before the first step."""
        if self.start is None:
            torch.manual_seed(self.seed)
            return channels_last(Network(len(MEANINGS)))
        path = weights.file_of(self.start)
        network, meanings = weights.read(path)
        if meanings != list(MEANINGS):
            raise RecipeError(f"start: {path} has other meanings than this version; train from random weights")
        return channels_last(network)


def check_sets(sets: Sequence[str]) -> None:
    """Raises ValueError for a set that is unknown, or held out."""
    if HELD_OUT in sets:
        raise ValueError(f"{HELD_OUT} measures accuracy and must not be trained on")
    if unknown := set(sets) - set(KNOWN):
        raise ValueError(f"sets {', '.join(sorted(unknown))} are unknown; choose from {', '.join(KNOWN)}")


class Batches:
    """Drawn icons; the batch of a step depends only on seed and step."""

    def __init__(self, icons: list[Icon], settings: TinyTraining) -> None:
        self.icons, self._settings = icons, settings
        numbers = {name: number for number, name in enumerate(MEANINGS)}
        self._wanted = np.array([numbers[icon.meaning] for icon in icons])
        self._groups = [np.flatnonzero(self._wanted == number) for number in np.unique(self._wanted)]

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures float32 (B, 3, SIDE, SIDE), and the numbers of their meanings int64 (B,)."""
        rng = np.random.default_rng((self._settings.seed, step))
        pairs = [self._one(rng) for _ in range(self._settings.batch_size)]
        pictures = torch.from_numpy(np.stack([picture for picture, _ in pairs])).permute(0, 3, 1, 2)  # channels last
        return pictures, torch.tensor([number for _, number in pairs])

    def _one(self, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Draws until something can be seen."""
        while True:
            number = pick(self._wanted, self._groups, rng)
            picture = normalised(draw(self.icons[number].mask, rng), SIDE)
            if picture is not None:
                return picture, int(self._wanted[number])
