"""A trained network as a detector."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from vlm_agent.episodes import Widget
from vlm_agent.errors import CheckpointError
from vlm_agent.screens.widgets.tiny.maps import Decoding, decode
from vlm_agent.screens.widgets.tiny.network import Network
from vlm_agent.screens.widgets.tiny.pictures import batch, scaled
from vlm_agent.screens.widgets.tiny.weights import SHA256, Weights, read_weights

SHIPPED = Path(__file__).parent / "weights" / "model.safetensors"


@dataclass(frozen=True)
class PhoneWidgetsTiny:
    """`side`: pixels along the shorter side of a screen for the network. `with_state`: kinds whose state is read."""

    network: Network
    side: int
    with_state: Sequence[str]
    decoding: Decoding = field(default_factory=Decoding)

    @classmethod
    def load(cls, path: Path | None = None) -> "PhoneWidgetsTiny":
        """The shipped detector, or the one in a safetensors file that training wrote.

        Raises CheckpointError where the shipped file is damaged, or the other is not such a file.
        """
        if path is None:
            _check_shipped()
        return cls.of(read_weights(SHIPPED if path is None else path))

    @classmethod
    def of(cls, weights: Weights) -> "PhoneWidgetsTiny":
        return cls(weights.network().eval(), weights.side, weights.with_state)

    def detect(self, pixels: np.ndarray) -> tuple[Widget, ...]:
        if (pixels == pixels[0, 0]).all():
            return ()  # where bars of the system usually are, the network sees empty ones
        picture = scaled(pixels, self.side)
        with torch.inference_mode():
            logits, features = (values[0] for values in self.network(batch([picture])))

            def details(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
                return self.network.details(features[:, rows, columns].T).numpy()

            return decode(logits.numpy(), details, picture.size, self.with_state, self.decoding)


def _check_shipped() -> None:
    if not SHIPPED.is_file():
        raise CheckpointError(f"{SHIPPED} is missing: the installation is damaged; install vlm-agent again")
    found = hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    if found != SHA256:
        raise CheckpointError(
            f"{SHIPPED} is not the phone_widgets_tiny of this version (sha256 {found[:12]}…, expected "
            f"{SHA256[:12]}…): the installation is damaged; install vlm-agent again"
        )
