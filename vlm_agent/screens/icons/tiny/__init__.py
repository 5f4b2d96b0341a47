"""`phone_icons_tiny`, with the weights of the package, or `phone_icons_tiny:FILE` with others."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_write
from vlm_agent.files.weight_files import check_digest, digest_of
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.icons.crops import guesses, normalised
from vlm_agent.screens.network_files import check_shipped, halved, load_tensors, read_tensors
from vlm_agent.screens.seen import IconReader, Meaning

SIDE = 48
"""Height and width of its input, pixels."""

_WIDTHS = ((24, 2), (32, 1), (48, 2), (48, 1), (80, 2), (80, 1), (112, 2))
"""(channels, stride) of each convolution."""


class Network(nn.Module):
    """float32 (B, 3, SIDE, SIDE) of `crops.normalised` → logits float32 (B, `outputs`)."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels, stride in _WIDTHS:
            layers += [nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
            before = channels
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, outputs)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(pictures).mean((2, 3)))


def channels_last(network: Network) -> Network:
    """The same network with its weights in the order in which convolutions are fastest on processors."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


WEIGHTS = "model.safetensors"
_FORMAT, _DIGEST = "phone_icons_tiny 1", "sha256"
SHA256 = "e52ffee6057d6f6d737063f819585b23c598cc7e4c62825f61558402ae249615"
"""SHA-256 of the package's file, which the card in its folder and all published results refer to."""


def file_of(path: str) -> Path:
    """The file of weights that a path names: itself, or that in a run's folder."""
    return Path(path) / WEIGHTS if Path(path).is_dir() else Path(path)


def write(network: Network, meanings: list[str], path: Path) -> None:
    tensors = halved(network.state_dict())
    with atomic_write(path) as temporary:
        notes = {"format": _FORMAT, "meanings": json.dumps(meanings)}
        save_file(tensors, temporary, notes | {_DIGEST: digest_of(tensors, notes)})


def read(path: Path) -> tuple[Network, list[str]]:
    """The network, in float32 for inference, and the meanings of its outputs.

    Raises CheckpointError where the file is missing, damaged, of another format or network, or names an
    unknown meaning.
    """
    notes, tensors = read_tensors(path)
    if notes.get("format") != _FORMAT:
        raise CheckpointError(f"{path} does not hold weights of phone_icons_tiny")
    recorded = notes.pop(_DIGEST, None)
    try:
        meanings = list(json.loads(notes["meanings"]))
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} has no meanings in its metadata: {error}") from None
    if unknown := [name for name in meanings if name not in MEANINGS]:
        raise CheckpointError(f"{path} has meanings that this version lacks: {', '.join(unknown)}")
    check_digest(path, tensors, notes, recorded, SHA256)
    network = Network(len(meanings))
    load_tensors(path, tensors, network)
    return network.eval(), meanings


SHIPPED = Path(__file__).with_name("phone_icons_tiny") / WEIGHTS


class TinyIcons(IconReader):
    def __init__(self, network: Network, names: Sequence[str]) -> None:
        self._network, self._names = channels_last(network), list(names)

    @classmethod
    def open(cls, path: str) -> "TinyIcons":
        """From a file of weights, or a run's folder; those of the package for "".

        Raises CheckpointError where the file cannot be used, or where the package's own differs from its sha256.
        """
        if path:
            return cls(*read(file_of(path)))
        check_shipped(SHIPPED, "phone_icons_tiny", SHA256)
        return cls(*read(SHIPPED))

    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        return guesses(crops, partial(normalised, side=SIDE), self._logits, self._names)

    def _logits(self, pictures: torch.Tensor) -> torch.Tensor:
        return self._network(pictures.permute(0, 3, 1, 2))
