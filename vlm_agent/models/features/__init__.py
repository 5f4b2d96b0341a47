"""Frozen screen features: extractors, and the store of the features of all screens in a folder of shards.

An extractor turns a screen into T vectors of D numbers: `patches` (a vector for each place of the screen) or `pooled`
(T = 1). An attention from text to one pooled vector has a softmax over one element, which is always 1: every word then
receives the same vector, and nothing on the screen can be located. Patches need positions in them to be located: the
visual tokens of `phone_vlm_tiny` have positions added behind the projector, a vision transformer adds its own at its
input.

| extractor      | default checkpoint                | pooled                                     | patches            |
|----------------|-----------------------------------|--------------------------------------------|--------------------|
| blip2          | Salesforce/blip2-opt-2.7b         | class token, normalised again (1, 1408)    | (256, 1408)        |
| clip           | openai/clip-vit-base-patch32      | class token, normalised (1, 768)           | (49, 768)          |
| vit            | google/vit-base-patch16-224-in21k | class token (1, 768)                       | (196, 768)         |
| dinov2         | facebook/dinov2-small             | class token (1, 384)                       | (256, 384)         |
| phone_vlm_tiny | the embedded base                 | mean of the visual tokens (1, 192)         | (196, 192)         |

Each of the first four resizes screens as the checkpoint's preprocessor_config.json says; without that file, as the
published processor of its default checkpoint does. CLIP and DINOv2 crop the centre: with a phone's aspect ratio, more
than half of a screen is outside. A preprocessor_config.json with `"do_center_crop": false` and the size as height and
width shows them the whole screen.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np
import torch

from vlm_agent.errors import CheckpointError, RecipeError, UserError
from vlm_agent.models.hub import check_files
from vlm_agent.recipe.model import FeatureSettings, WeightsSource


class NonFiniteFeaturesError(UserError):
    """Features that are NaN, or infinite in float16. `screen`: the index of the first such screen in the batch."""

    def __init__(self, screen: int, message: str) -> None:
        super().__init__(message)
        self.screen = screen


class Preprocess(Protocol):
    """Makes of a screen what the model takes. Used from several threads."""

    def __call__(self, screenshot: np.ndarray) -> np.ndarray:
        """uint8 (height, width, 3) → uint8 (3, height', width') of a fixed size."""

    def share(self, height: int, width: int) -> float:
        """The share of a screen of `height` x `width` pixels that the model sees; below 1 where it is cropped."""


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

    def checkpoint(self, settings: FeatureSettings) -> str | None:
        """The folder or name on the hub of the weights; None for weights of this package."""

    def digest(self, settings: FeatureSettings) -> str:
        """`Extractor.digest`, without building the model."""

    def load(self, settings: FeatureSettings, device: torch.device, precision: str) -> Extractor: ...


def digest_of(tensors: Iterable[tuple[str, torch.Tensor]], about: Any) -> str:
    """The sha256, in hexadecimal, of named tensors in any order (names, dtypes, shapes, bytes) and a JSON value."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


EXTRACTORS = {
    "blip2": "vlm_agent.models.features.towers:BLIP2",
    "clip": "vlm_agent.models.features.towers:CLIP",
    "vit": "vlm_agent.models.features.towers:VIT",
    "dinov2": "vlm_agent.models.features.towers:DINOV2",
    "phone_vlm_tiny": "vlm_agent.models.features.visual_tokens:PHONE_VLM_TINY",
}
"""Name → module:object of an `ExtractorKind`. A kind is imported at its first use."""


def extractor_kind(settings: FeatureSettings) -> ExtractorKind:
    """Raises RecipeError for a name that is not in the registry."""
    if settings.extractor not in EXTRACTORS:
        raise RecipeError(f"extractor {settings.extractor!r} is unknown; choose one of {', '.join(sorted(EXTRACTORS))}")
    return resolve_name(EXTRACTORS[settings.extractor])


def feature_shape(settings: FeatureSettings) -> tuple[int, int]:
    """(T, D): the number of vectors of a screen and the size of each, without reading weights.

    The default checkpoints need no files. Raises RecipeError for an unknown extractor, CheckpointError for a checkpoint
    whose configuration cannot be read or is of another model.
    """
    return extractor_kind(settings).shape(settings)


def check_extractor(settings: FeatureSettings) -> None:
    """Raises what `feature_shape` raises, and CheckpointError where the weights are missing (`hub.check_files`)."""
    feature_shape(settings)
    if (checkpoint := extractor_kind(settings).checkpoint(settings)) is not None:
        check_files(WeightsSource(checkpoint=checkpoint), f"extractor {settings.extractor}: checkpoint")


def load_extractor(
    settings: FeatureSettings, device: torch.device | None = None, precision: str = "float32"
) -> Extractor:
    """The extractor in evaluation mode on `device`, None for the CPU.

    `precision`: `float32`, or `bfloat16` for mixed precision. Raises RecipeError for an unknown extractor,
    CheckpointError for a checkpoint that cannot be loaded.
    """
    return extractor_kind(settings).load(settings, device or torch.device("cpu"), precision)


def load_trained_extractor(
    settings: FeatureSettings, digest: str, precision: str, device: torch.device | None = None
) -> Extractor:
    """The extractor that computed the features of a model's training. Raises CheckpointError for other weights, and
    what `load_extractor` raises."""
    extractor = load_extractor(settings, device, precision)
    if extractor.digest != digest:
        raise CheckpointError(
            f"the weights of {settings.extractor} ({settings.checkpoint or 'default'}) are not those that computed the "
            "features of this model's training; restore them"
        )
    return extractor
