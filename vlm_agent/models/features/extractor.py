"""The extractor, and the protocol of its kinds."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from vlm_agent.errors import UserError
from vlm_agent.recipe.model import FeatureSettings


class NonFiniteFeaturesError(UserError):
    """Features that are NaN, or infinite in float16. `screen`: the index of the first such screen in the batch."""

    def __init__(self, screen: int, message: str) -> None:
        super().__init__(message)
        self.screen = screen


class Preprocess(Protocol):
    """Makes of a screen what the model takes. Used from several threads."""

    def __call__(self, screenshot: np.ndarray) -> np.ndarray:
        """uint8 (height, width, 3) → uint8 (3, height', width') of a fixed size."""
        ...

    def share(self, height: int, width: int) -> float:
        """The share of a screen of `height` x `width` pixels that the model sees; below 1 where it is cropped."""
        ...


@dataclass(frozen=True)
class Extractor:
    """A frozen vision model on its device.

    `digest`: sha256 of the weights that are used, the preprocessing and the form; the same digest and `precision` mean
    the same features. `shape`: (T, D). `forward`: uint8 (N, 3, height', width') on `device` → (N, T, D). `precision`:
    float32, or bfloat16 (autocast).
    """

    settings: FeatureSettings
    digest: str
    shape: tuple[int, int]
    preprocess: Preprocess
    forward: Callable[[torch.Tensor], torch.Tensor]
    device: torch.device
    precision: str = "float32"

    def extract(self, pixels: Sequence[np.ndarray]) -> np.ndarray:
        """uint8 screens (height, width, 3) of any sizes → float16 (N, T, D). Raises what `extract_prepared` raises."""
        return self.extract_prepared([self.preprocess(screen) for screen in pixels])

    @torch.inference_mode()
    def extract_prepared(self, screens: Sequence[np.ndarray]) -> np.ndarray:
        """uint8 screens (3, height', width') as `preprocess` returns them → float16 (N, T, D).

        On a CPU, screens are processed one by one, which is as fast there, so that the features of a screen do not
        depend on the others to the last bit. Raises NonFiniteFeaturesError.
        """
        if not len(screens):
            return np.zeros((0, *self.shape), np.float16)
        batch = torch.from_numpy(np.stack(screens))
        parts = batch.split(1) if self.device.type == "cpu" else [batch]
        mixed = torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()
        with mixed:
            features = torch.cat([self.forward(part.to(self.device)).float() for part in parts])
        halves = features.half()
        finite = halves.isfinite().flatten(1).all(1)
        if not finite.all():
            first = int((~finite).nonzero()[0])
            largest = features[first].abs().max().item()
            raise NonFiniteFeaturesError(
                first,
                f"the features of {self.settings.extractor} are not finite in float16 (largest magnitude {largest:g}, "
                "float16 holds up to 65504); the checkpoint is damaged, or does not fit this extractor",
            )
        return halves.cpu().numpy()


class ExtractorKind(Protocol):
    """What an entry of `EXTRACTORS` provides."""

    def shape(self, settings: FeatureSettings) -> tuple[int, int]:
        """(T, D), without reading weights."""
        ...

    def checkpoint(self, settings: FeatureSettings) -> str | None:
        """The folder or name on the hub of the weights; None for weights of this package."""
        ...

    def digest(self, settings: FeatureSettings) -> str:
        """`Extractor.digest`, without building the model."""
        ...

    def load(self, settings: FeatureSettings, device: torch.device, precision: str) -> Extractor: ...


def digest_of(tensors: Iterable[tuple[str, torch.Tensor]], about: Any) -> str:
    """The sha256, in hexadecimal, of named tensors in any order (names, dtypes, shapes, bytes) and a JSON value."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
