"""`phone_widgets_tiny`: the widget detector that comes with the package. Its card is `weights/README.md`.

`shipped_weights.widgets` trains it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from scipy import ndimage
from torch import nn

from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_write
from vlm_agent.files.weight_files import check_digest, digest_of
from vlm_agent.screens.network_files import check_shipped, halved, load_tensors, read_tensors
from vlm_agent.screens.widgets.boxes import fraction_box, in_reading_order, suppressed

STRIDE = 4
"""Pixels of the picture per cell of the map, in each direction."""

MULTIPLE = 32
"""Heights and widths must be multiples of it."""

PER_KIND = 4
"""Details per kind: displacement of the centre (y, x) in cells, and (height, width) as in `SIZE_UNIT`."""

_CENTRE_BIAS = -4.0
"""Almost no cell is a centre; with it the first steps do not have to learn that."""


class Network(nn.Module):
    """(B, 3, H, W) float32 → logits (B, kinds, H / 4, W / 4) of centres, and features (B, channels, H / 4, W / 4).

    A small residual encoder down to 1/32, whose features are added back up to 1/4 (as in feature pyramids), and one
    head (as in CenterNet, "Objects as Points"). Only convolutions: H and W are any multiples of 32.

    `details` reads boxes and states from the features of single cells: few cells are centres.
    """

    def __init__(self, kinds: int) -> None:
        super().__init__()
        self.kinds = kinds
        self.to_4 = nn.Sequential(_convolution(3, 16, 2), _convolution(16, 32, 2))
        self.to_8 = nn.Sequential(_convolution(32, 48, 2), Residual(48))
        self.to_16 = nn.Sequential(_convolution(48, 64, 2), Residual(64), Residual(64))
        self.to_32 = nn.Sequential(_convolution(64, 96, 2), Residual(96))
        self.from_32, self.from_16, self.from_8 = nn.Conv2d(96, 64, 1), nn.Conv2d(64, 48, 1), nn.Conv2d(48, 32, 1)
        self.at_16, self.at_8, self.at_4 = _convolution(64, 64), _convolution(48, 48), _convolution(32, 32)
        self.head = _convolution(32, 48)
        self.centres = nn.Conv2d(48, kinds, 1)
        self.read = nn.Linear(48, kinds * PER_KIND + 1)
        nn.init.normal_(self.centres.weight, std=0.01)
        self.centres.bias = nn.Parameter(torch.full((kinds,), _CENTRE_BIAS))

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        quarter = self.to_4(pictures)
        eighth = self.to_8(quarter)
        sixteenth = self.to_16(eighth)
        sixteenth = self.at_16(sixteenth + _twice(self.from_32(self.to_32(sixteenth))))
        eighth = self.at_8(eighth + _twice(self.from_16(sixteenth)))
        features = self.head(self.at_4(quarter + _twice(self.from_8(eighth))))
        return self.centres(features), features

    def details(self, features: torch.Tensor) -> torch.Tensor:
        """(N, channels) features of cells → (N, kinds · `PER_KIND` + 1) float32.

        Grouped by meaning: displacements y of all kinds, then x, heights, widths, and the logit of "on" at the end.
        """
        return self.read(features.float())


class Residual(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.relu(values + self.second(self.first(values)))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def _twice(values: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(values, scale_factor=2.0, mode="nearest")


LONGEST = 8192
"""The most pixels of a side that the network reads; longer pictures are reduced further."""


def scaled(pixels: np.ndarray, side: int) -> np.ndarray:
    """The screen, uint8 (height, width, 3), with `side` pixels along its shorter side, or fewer where the longer one
    would exceed `LONGEST`."""
    high, wide = pixels.shape[:2]
    scale = min(side / min(high, wide), LONGEST / max(high, wide))
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    if size == (wide, high):
        return pixels
    return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def batch(pictures: Sequence[np.ndarray]) -> torch.Tensor:
    """(B, 3, H, W) float32, about -2 to 2, padded with 0 at the bottom and on the right to a common size.

    `pictures`: B arrays of uint8 (height, width, 3), at the network's scale.
    """
    longest = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    high, wide = (-(-length // MULTIPLE) * MULTIPLE for length in longest)
    result = torch.zeros((len(pictures), 3, high, wide)).contiguous(memory_format=torch.channels_last)
    for at, picture in enumerate(pictures):
        values = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1).float()
        result[at, :, : picture.shape[0], : picture.shape[1]] = (values - 127.5) / 64
    return result


SIZE_UNIT = 16.0
"""Sides of boxes are learned as log(pixels / `SIZE_UNIT`), so that an error is relative to the side."""

_LARGEST_LOG = 7.0

Size = tuple[int, int]
"""(height, width)"""


LEAST_SCORE = 0.3
"""The least confidence of a widget."""

OVERLAP, OVERLAP_ACROSS = 0.2, 0.5
"""IoU above which the weaker of two boxes is dropped: two of one kind, and two of different kinds."""

MOST = 300
"""The largest number of widgets of a picture."""


def decode(
    logits: np.ndarray, details: Callable[[np.ndarray, np.ndarray], np.ndarray], size: Size, with_state: Sequence[str]
) -> tuple[Widget, ...]:
    """Widgets of one picture of `size` pixels at the network's scale.

    `logits`: float32 (kinds, rows, columns) of centres. `details`: (N,) rows and columns → (N, kinds · 4 + 1), as
    `Network.details`. `with_state`: the kinds whose state is read.
    """
    rows, columns = (-(-side // STRIDE) for side in size)
    heat = 1 / (1 + np.exp(-np.clip(logits[:, :rows, :columns], -30, 30)))
    is_peak = (heat >= LEAST_SCORE) & (heat == ndimage.maximum_filter(heat, (1, 3, 3), mode="constant"))
    kinds, at_row, at_column = np.nonzero(is_peak)
    scores = heat[kinds, at_row, at_column]
    best = np.argsort(-scores, kind="stable")[:MOST]
    kinds, at_row, at_column, scores = kinds[best], at_row[best], at_column[best], scores[best]
    found = details(at_row, at_column)
    numbers = np.arange(len(kinds))
    y, x, high, wide = (found[numbers, len(logits) * part + kinds] for part in range(4))
    centre_y, centre_x = (at_row + y + 0.5) * STRIDE, (at_column + x + 0.5) * STRIDE
    high, wide = (SIZE_UNIT * np.exp(np.clip(side, -_LARGEST_LOG, _LARGEST_LOG)) / 2 for side in (high, wide))
    boxes = np.stack([centre_y - high, centre_x - wide, centre_y + high, centre_x + wide], 1)
    names = [WIDGET_KINDS[kind] for kind in kinds]
    return in_reading_order(
        Widget(
            names[index],
            fraction_box(boxes[index], *size),
            bool(found[index, -1] > 0) if names[index] in with_state else None,
            float(scores[index]),
        )
        for index in suppressed(boxes, scores, kinds, OVERLAP, OVERLAP_ACROSS)
    )


SHIPPED = Path(__file__).parent / "weights" / "model.safetensors"
SHA256 = "4972150f2e1bed90d9a09e8bfb08030b8684ca73aea9945d93f14df3704d83ed"
"""SHA-256 of the package's file, which the card in its folder and all published results refer to."""

_DIGEST = "sha256"
_KEY = "phone_widgets_tiny"
"""The only key of the metadata: safetensors writes several in random order."""

_COUNTER = "num_batches_tracked"
"""The end of the names of tensors that files lack."""


@dataclass(frozen=True)
class PhoneWidgetsTiny:
    """`side`: pixels along the shorter side of a screen for the network. `with_state`: kinds whose state is read."""

    network: Network
    side: int
    with_state: tuple[str, ...]

    @classmethod
    def load(cls, path: Path | None = None) -> "PhoneWidgetsTiny":
        """The shipped detector, or the one in a file of `write`.

        Raises CheckpointError, one line that names the file, where it is damaged or not such a file.
        """
        if path is None:
            check_shipped(SHIPPED, _KEY, SHA256)
        path = SHIPPED if path is None else path
        metadata, tensors = read_tensors(path)
        try:
            described = json.loads(metadata[_KEY])
            recorded = described.pop(_DIGEST, None)
            kinds, side, state = described["kinds"], int(described["side"]), described["with_state"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} has no weights of {_KEY}: {error} in its metadata") from None
        if tuple(kinds) != WIDGET_KINDS:
            raise CheckpointError(f"{path} detects other kinds of widgets ({', '.join(kinds)}); train it again")
        check_digest(path, tensors, described, recorded, SHA256)
        network = Network(len(WIDGET_KINDS))
        counters = {name: one for name, one in network.state_dict().items() if name.endswith(_COUNTER)}
        load_tensors(path, {**counters, **tensors}, network)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return cls(network.eval(), side, tuple(state))

    def write(self, path: Path) -> None:
        """Writes float16: half the bytes, and differences in the fourth digit of scores."""
        described = {"kinds": WIDGET_KINDS, "side": self.side, "with_state": self.with_state}
        state = self.network.state_dict()
        tensors = halved({name: tensor for name, tensor in state.items() if not name.endswith(_COUNTER)})
        with atomic_write(path) as temporary:
            digest = digest_of(tensors, described)
            save_file(tensors, temporary, {_KEY: json.dumps({**described, _DIGEST: digest})})

    def detect(self, pixels: np.ndarray) -> tuple[Widget, ...]:
        if (pixels == pixels[0, 0]).all():
            return ()  # where bars of the system usually are, the network sees empty ones
        picture = scaled(pixels, self.side)
        with torch.inference_mode():
            logits, features = (values[0] for values in self.network(batch([picture])))

            def details(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
                return self.network.details(features[:, rows, columns].T).numpy()

            return decode(logits.numpy(), details, picture.shape[:2], self.with_state)
