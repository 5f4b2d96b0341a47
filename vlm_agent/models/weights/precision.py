"""The dtype of a model, and whether the hardware gains from bfloat16; without support, it is many times slower."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional

from vlm_agent.models.weights.quantisation import dequantised_weight, is_quantised_layer

Model = TypeVar("Model", bound=nn.Module)


def has_bf16() -> bool:
    """Whether the GPU, else the CPU, computes faster in bfloat16 than in float32.

    Of CPUs, those with AMX. AVX512_BF16 alone multiplies as many numbers a cycle as AVX-512 does in float32 on the
    processor measured, and PyTorch's products take twice as long with it: a training step 1.1 to 1.6 times. That
    AMX gains has not been measured here.
    """
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported()  # torch has no public function for it


def exact_depthwise(model: nn.Module) -> None:
    """Make depthwise convolutions compute in the dtype of their weights on a CPU, in place, even under autocast.

    oneDNN's backward pass takes three times as long in bfloat16 as in float32: a third of a small ConvNeXt's step.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1:
            vars(module)["forward"] = MethodType(_in_own_precision, module)


def _in_own_precision(module: nn.Conv2d, pixels: torch.Tensor) -> torch.Tensor:
    if pixels.device.type != "cpu":
        return nn.Conv2d.forward(module, pixels)
    with torch.autocast("cpu", enabled=False):
        weight = module.weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(
            pixels.to(weight.dtype), weight, module.bias, module.stride, module.padding, module.dilation, module.groups
        )


def cast(model: Model, dtype: torch.dtype) -> Model:
    """The model in `dtype`, in place, except its rotary frequencies.

    Rounding them to bfloat16 changes them by up to 0.4 %, more than a radian at a distance of a thousand tokens, and
    breaks the positions of a pretrained model. transformers keeps them float32 when it loads in bfloat16; `Module.to`
    does not.
    """
    exact = {name: buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")}
    model.to(dtype)
    for name, frequencies in exact.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, frequencies)
    return model


@contextmanager
def float32_arithmetic(model: nn.Module) -> Iterator[None]:
    """In the block, the model computes in float32 with the weights that it has, without their rounding of activations.

    Linear layers, nearly all of a large model, convert their weight at each call, dequantised if it is quantised: so
    the block needs the memory of one more layer, not of a second model. All other tensors are converted in place and
    back, which changes no bit.
    """
    linear = [module for module in model.modules() if type(module) is nn.Linear or is_quantised_layer(module)]
    by_call = {id(module) for module in linear}
    others = [module for module in model.modules() if id(module) not in by_call]
    tensors = {id(tensor): tensor for module in others for tensor in _own_tensors(module)}
    dtypes = [(tensor, tensor.dtype) for tensor in tensors.values()]
    forwards = [(module, vars(module).get("forward")) for module in linear]
    try:
        for tensor, _ in dtypes:
            tensor.data = tensor.data.float()
        for module in linear:
            vars(module)["forward"] = MethodType(_linear_in_float32, module)
        yield
    finally:
        for tensor, dtype in dtypes:
            tensor.data = tensor.data.to(dtype)
        for module, forward in forwards:
            del vars(module)["forward"]
            vars(module).update({} if forward is None else {"forward": forward})


def _own_tensors(module: nn.Module) -> list[torch.Tensor]:
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return [tensor for tensor in own if tensor.is_floating_point()]


def _linear_in_float32(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    bias = None if layer.bias is None else layer.bias.float()
    return functional.linear(x.float(), dequantised_weight(layer).float(), bias)
