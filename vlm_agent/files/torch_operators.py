"""Declares the operators that torchvision's import looks up. Import this module before what imports torchvision."""

import torch

# The package index holds torchvision only as built for CUDA. Beside a CPU build of PyTorch its compiled operators do
# not load and its import fails, and with it the imports of peft and timm. Declaring the two operators that the import
# looks up is enough: the package calls neither.
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_FRAGMENTS = []
"""The declarations live as long as this list."""

if torch.version.cuda is None:
    _FRAGMENTS.append(torch.library.Library("torchvision", "FRAGMENT"))
    for operator in _OPERATORS:
        _FRAGMENTS[0].define(operator)
