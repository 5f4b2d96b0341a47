"""In what numbers a model is kept, and whether the processor computes in bfloat16: one that does not gives the same
results, many times slower.
"""

from types import MethodType

import torch
from torch import nn
from torch.nn import functional


def has_bf16() -> bool:
    """Whether a GPU, or else this machine's CPU, has bfloat16 arithmetic of its own."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch has no public word for it; measured without: a training step of the tiny recipe takes five times as long.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def exact_depthwise(model: nn.Module) -> None:
    """Depthwise convolutions, in place, compute in their weights' own precision on a CPU, mixed precision or not.

    oneDNN's backward of these takes three times as long in bfloat16 as in float32: a third of the training step of a
    small ConvNeXt.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1:
            module.forward = MethodType(_in_own_precision, module)


def _in_own_precision(module: nn.Conv2d, pixels: torch.Tensor) -> torch.Tensor:
    if pixels.device.type != "cpu":
        return nn.Conv2d.forward(module, pixels)
    with torch.autocast("cpu", enabled=False):
        weight = module.weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(
            pixels.to(weight.dtype), weight, module.bias, module.stride, module.padding, module.dilation, module.groups
        )


def cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The model in `dtype`, in place, but for its rotary frequencies.

    Rounded to bfloat16 these are up to 0.4 % off, which at a distance of a thousand tokens is more than a radian: a
    pretrained model would no longer know how far apart its tokens are. transformers keeps them float32 where it loads
    in bfloat16; `Module.to` does not.
    """
    exact = {name: buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")}
    model.to(dtype)
    for name, frequencies in exact.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, frequencies)
    return model
