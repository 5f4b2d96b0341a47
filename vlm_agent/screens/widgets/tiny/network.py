"""The network of `phone_widgets_tiny`: pictures → a map at a quarter of their size, from which boxes are decoded.

A small residual encoder down to 1/32, whose features are added back up to 1/4 (as in feature pyramids), and one head
(as in CenterNet, "Objects as Points"). Only convolutions: pictures may have any size that is a multiple of 32.
"""

import torch
from torch import nn

STRIDE = 4
"""Pixels of the picture per cell of the map, in each direction."""

MULTIPLE = 32
"""Heights and widths must be multiples of it."""

PER_KIND = 4
"""Details per kind: displacement of the centre (y, x) in cells, and (height, width) as in `maps.SIZE_UNIT`."""

_CENTRE_BIAS = -4.0
"""Almost no cell is a centre; with it the first steps do not have to learn that."""


class Network(nn.Module):
    """(B, 3, H, W) float32 → logits (B, kinds, H / 4, W / 4) of centres, and features (B, channels, H / 4, W / 4).

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
