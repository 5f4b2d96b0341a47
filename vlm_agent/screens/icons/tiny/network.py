"""The network of `phone_icons_tiny`: seven convolutions, 0.24 M parameters."""

import torch
from torch import nn

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
