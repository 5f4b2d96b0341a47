"""How weights are stored and computed with: their dtype, and 4 or 8 bits by bitsandbytes, the frozen base of QLoRA.

nf4: QLoRA (Dettmers et al., 2023): 4-bit NormalFloat in blocks of 64 weights, with quantised block scales; 4.1 bits a
weight. It computes in the original dtype, from weights dequantised on the fly.
int8: LLM.int8() (Dettmers et al., 2022): rows of weights and of activations in 8 bits, columns of activations with an
outlier above 6 in 16 bits. These columns are chosen over all tokens of a batch, so the result of a token depends,
within the error of 8 bits, on the rest of its batch.

Only layers of the `language_model` part are quantised; embeddings, norms, head, projector and vision tower are not.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType, ModuleType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional

from vlm_agent.errors import UserError
from vlm_agent.files.installation import install_line
from vlm_agent.recipe.model import Quantisation

Model = TypeVar("Model", bound=nn.Module)

_INT8_OUTLIER = 6.0  # LLM.int8(), section 3.2: below it, models of several billion weights lose accuracy

# Logged by every int8 layer at every step.
logging.getLogger("bitsandbytes.autograd._functions").addFilter(
    lambda record: not str(record.msg).startswith("MatMul8bitLt: inputs will be cast")
)


def has_bf16() -> bool:
    """Whether the GPU, else the CPU, computes faster in bfloat16 than in float32.

    Of CPUs, those with AMX. AVX512_BF16 alone multiplies as many numbers a cycle as AVX-512 does in float32 on the
    processor measured, and PyTorch's products take twice as long with it: a training step 1.1 to 1.6 times. That
    AMX gains has not been measured here.
    """
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported()  # torch has no public function for it


def seen_dtype(parameter: nn.Parameter) -> torch.dtype:
    """The dtype in which a module sees its weight. Under ZeRO-3 and bfloat16, a partitioned weight of a float32
    checkpoint is float32 between the passes of its module, and bfloat16 within."""
    return getattr(parameter, "ds_tensor", parameter).dtype


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


def to_dtype(model: Model, dtype: torch.dtype) -> Model:
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


class QuantisationError(UserError):
    """A model that cannot be quantised; the message names a remedy."""


def quantise(model: Any, kind: Quantisation | None) -> nn.Module:
    """Quantise the linear layers of the language model of a family's model, in place; None leaves it unchanged.

    Each layer is quantised on its device: the same weights give the same bits on the same kind of device. Afterwards
    the model may change its device, but not its dtype. Raises QuantisationError if bitsandbytes is missing,
    and for a model whose `is_quantisable` is False.
    """
    if kind is None:
        return model
    if not getattr(model, "is_quantisable", True):
        raise QuantisationError(f"{type(model).__name__} cannot be quantised; remove model.quantisation")
    bitsandbytes = _bitsandbytes(kind)
    layers = model.get_submodule(model.parts["language_model"])
    for name, layer in list(layers.named_modules()):
        if type(layer) is nn.Linear:
            quantised = _nf4(layer, bitsandbytes) if kind == "nf4" else _int8(layer, bitsandbytes)
            quantised.bias = layer.bias
            layers.set_submodule(name, quantised)
    _mark_for_peft(model, kind)
    return model


def _bitsandbytes(kind: Quantisation) -> ModuleType:
    try:
        import bitsandbytes
    except ImportError as error:
        raise QuantisationError(
            f"model.quantisation {kind} needs bitsandbytes ({error}); {install_line('quantisation')}, or remove "
            "model.quantisation"
        ) from None
    return bitsandbytes


def _nf4(layer: nn.Linear, bitsandbytes: ModuleType) -> nn.Linear:
    with torch.device("meta"):
        quantised = bitsandbytes.nn.LinearNF4(
            layer.in_features, layer.out_features, bias=False, compute_dtype=layer.weight.dtype
        )
    # Otherwise bitsandbytes repacks the weights on some CPUs in evaluation mode, and computes in bfloat16.
    quantised.support_avx512bf16_for_cpu = False
    weight = bitsandbytes.nn.Params4bit(
        layer.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True, module=quantised
    )
    quantised.weight = weight.to(layer.weight.device)
    return quantised


def _int8(layer: nn.Linear, bitsandbytes: ModuleType) -> nn.Linear:
    with torch.device("meta"):
        quantised = bitsandbytes.nn.Linear8bitLt(
            layer.in_features, layer.out_features, bias=False, has_fp16_weights=False, threshold=_INT8_OUTLIER
        )
    # Its `to` quantises only weights that come from the CPU.
    weight = bitsandbytes.nn.Int8Params(layer.weight.data.cpu(), requires_grad=False, has_fp16_weights=False)
    quantised.weight = weight.to(layer.weight.device)
    quantised.init_8bit_state = partial(_begin_int8, quantised)
    return quantised


def _begin_int8(layer: Any) -> None:
    """bitsandbytes' initialisation, except that the weight keeps its scales, for later moves and for peft's DoRA."""
    layer.state.CB, layer.state.SCB = layer.weight.CB, layer.weight.SCB
    layer.weight.CB = None


def is_quantised(model: nn.Module) -> bool:
    return any(map(is_quantised_layer, model.modules()))


def is_quantised_layer(layer: nn.Module) -> bool:
    return _bits(layer) is not None


def dequantised_weight(layer: nn.Module) -> torch.Tensor:
    """The weight of a linear layer, dequantised if it is quantised: in the dtype that nf4 computes in, float32 for
    int8."""
    from peft.utils.integrations import dequantize_module_weight

    return dequantize_module_weight(layer)


def dequantise(model: nn.Module) -> nn.Module:
    """Replace quantised layers by linear layers with the dequantised weights, in place.

    Their dtype is the one that nf4 computes in; float32 for int8.
    """
    for name, layer in list(model.named_modules()):
        if not is_quantised_layer(layer):
            continue
        with torch.device("meta"):
            plain = nn.Linear(layer.in_features, layer.out_features, bias=False)
        plain.weight = nn.Parameter(dequantised_weight(layer), requires_grad=False)
        plain.bias = layer.bias
        model.set_submodule(name, plain)
    _mark_for_peft(model, None)
    return model


def weight_count(parameter: nn.Parameter) -> int:
    """The number of weights in a parameter before nf4 packed two into a byte and ZeRO-3 partitioned it."""
    state = getattr(parameter, "quant_state", None)
    return getattr(parameter, "ds_numel", parameter.numel()) if state is None else state.shape.numel()


_BITS: dict[str, Quantisation] = {"Params4bit": "nf4", "Int8Params": "int8"}


def _bits(layer: nn.Module) -> Quantisation | None:
    # By name, so that bitsandbytes is needed only for quantised models. peft's layers show the weight of their base.
    return _BITS.get(type(layer._parameters.get("weight")).__name__)


def _mark_for_peft(model: nn.Module, kind: Quantisation | None) -> None:
    """peft adapts quantised layers only of a model with these attributes, which transformers sets when it quantises."""
    vars(model).update(is_loaded_in_4bit=kind == "nf4", is_loaded_in_8bit=kind == "int8")
