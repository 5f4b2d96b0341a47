"""`phone_icons_tiny`, with the weights of the package, or `phone_icons_tiny:FILE` with others."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from vlm_agent.errors import CheckpointError
from vlm_agent.screens.icons.crops import normalised
from vlm_agent.screens.icons.guesses import guesses
from vlm_agent.screens.icons.tiny.network import SIDE, Network, channels_last
from vlm_agent.screens.icons.tiny.weights import SHA256, WEIGHTS, file_of, read
from vlm_agent.screens.seen import IconReader, Meaning

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
        check_shipped(SHIPPED)
        return cls(*read(SHIPPED))

    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        return guesses(crops, partial(normalised, side=SIDE), self._logits, self._names)

    def _logits(self, pictures: torch.Tensor) -> torch.Tensor:
        return self._network(pictures.permute(0, 3, 1, 2))


def check_shipped(path: Path) -> None:
    """Raises CheckpointError where the package's weights are missing or are not those of this version."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); reinstall vlm-agent") from None
    if found != SHA256:
        raise CheckpointError(
            f"{path} is not the phone_icons_tiny of this version (sha256 {found[:12]}…, expected {SHA256[:12]}…); "
            "reinstall vlm-agent"
        )
