"""Lets torchvision be imported beside a CPU build of PyTorch.

The package index has torchvision only as built for CUDA; upon a CPU torch its compiled operators do not load and its
import fails, and the imports of peft, timm and qwen-vl-utils with it. Declaring the two operators that the import looks
up is enough: none of our code calls them, and calling them still fails.
"""

import torch

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_fragments = []


def declare_operators() -> None:
    """Does nothing for CUDA builds, and nothing the second time."""
    if torch.version.cuda is not None or _fragments:
        return
    fragment = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        fragment.define(operator)
    _fragments.append(fragment)  # a fragment's declarations live as long as it does
