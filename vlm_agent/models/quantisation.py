"""A language model's linear layers in 4 or 8 bits, by bitsandbytes: the frozen base of QLoRA.

nf4: QLoRA (Dettmers et al., 2023): 4-bit NormalFloat in blocks of 64 weights, block scales quantised too; 4.1 bits a
weight. It computes in the dtype that the weights had, from weights dequantised on the fly.
int8: LLM.int8() (Dettmers et al., 2022): rows of weights and of activations in 8 bits, columns of activations with an
outlier above 6 in 16 bits. Which columns these are is decided over all tokens of a batch, so a token's result depends,
within the noise of 8 bits, on what is computed beside it.

Only layers of the `language_model` part are touched, never embeddings, norms, head, projector or vision tower.
"""

import logging
from functools import partial

import torch
from torch import nn

from vlm_agent.models.recipe import Quantisation
from vlm_agent.models.zero3 import size

_INT8_OUTLIER = 6.0  # LLM.int8(), section 3.2: below it, models of several billion weights lose accuracy

# Said by every int8 layer at every step.
logging.getLogger("bitsandbytes.autograd._functions").addFilter(
    lambda record: not str(record.msg).startswith("MatMul8bitLt: inputs will be cast")
)


class QuantisationError(ValueError):
    """A model that cannot be quantised, with what to do."""


def quantise(model: nn.Module, kind: Quantisation | None) -> nn.Module:
    """The model with its language model's linear layers quantised, in place; untouched where `kind` is None.

    Each layer is quantised on the device that holds it, from the weights as they are: the same weights give the same
    bits again on the same kind of device. Afterwards the model may change device, not dtype. Raises QuantisationError
    where bitsandbytes is missing.
    """
    if kind is None:
        return model
    bitsandbytes = _bitsandbytes(kind)
    layers = model.get_submodule(model.parts["language_model"])
    for name, layer in list(layers.named_modules()):
        if type(layer) is nn.Linear:
            quantised = _nf4(layer, bitsandbytes) if kind == "nf4" else _int8(layer, bitsandbytes)
            quantised.bias = layer.bias
            layers.set_submodule(name, quantised)
    _tell_peft(model, kind)
    return model


def _bitsandbytes(kind: Quantisation):
    try:
        import bitsandbytes
    except ImportError as error:
        raise QuantisationError(
            f"model.quantisation {kind} needs bitsandbytes ({error}); install it as requirements.txt says, or remove "
            "model.quantisation"
        ) from None
    return bitsandbytes


def _nf4(layer: nn.Linear, bitsandbytes) -> nn.Linear:
    with torch.device("meta"):
        quantised = bitsandbytes.nn.LinearNF4(
            layer.in_features, layer.out_features, bias=False, compute_dtype=layer.weight.dtype
        )
    # On some CPUs bitsandbytes would otherwise repack the weights for evaluation, and then compute in bfloat16.
    quantised.support_avx512bf16_for_cpu = False
    weight = bitsandbytes.nn.Params4bit(
        layer.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True, module=quantised
    )
    quantised.weight = weight.to(layer.weight.device)
    return quantised


def _int8(layer: nn.Linear, bitsandbytes) -> nn.Linear:
    with torch.device("meta"):
        quantised = bitsandbytes.nn.Linear8bitLt(
            layer.in_features, layer.out_features, bias=False, has_fp16_weights=False, threshold=_INT8_OUTLIER
        )
    # Its `to` quantises only what comes from the CPU.
    weight = bitsandbytes.nn.Int8Params(layer.weight.data.cpu(), requires_grad=False, has_fp16_weights=False)
    quantised.weight = weight.to(layer.weight.device)
    quantised.init_8bit_state = partial(_begin_int8, quantised)
    return quantised


def _begin_int8(layer: nn.Linear) -> None:
    """As bitsandbytes begins, but the weight keeps its scales: it is moved, and peft dequantises it for DoRA, later."""
    layer.state.CB, layer.state.SCB = layer.weight.CB, layer.weight.SCB
    layer.weight.CB = None


def is_quantised(model: nn.Module) -> bool:
    return any(_bits(layer) is not None for layer in model.modules())


def dequantise(model: nn.Module) -> nn.Module:
    """The model with ordinary linear layers in place of quantised ones, of the weights that those compute with.

    They are in the dtype that nf4 computes in, float32 for int8.
    """
    from peft.utils.integrations import dequantize_module_weight

    for name, layer in list(model.named_modules()):
        if _bits(layer) is None:
            continue
        with torch.device("meta"):
            plain = nn.Linear(layer.in_features, layer.out_features, bias=False)
        plain.weight = nn.Parameter(dequantize_module_weight(layer), requires_grad=False)
        plain.bias = layer.bias
        model.set_submodule(name, plain)
    _tell_peft(model, None)
    return model


def weight_count(parameter: nn.Parameter) -> int:
    """How many weights a parameter stands for: nf4 stores two in a byte, and ZeRO-3 leaves each rank a part."""
    state = getattr(parameter, "quant_state", None)
    return size(parameter) if state is None else state.shape.numel()


_BITS = {"Params4bit": "nf4", "Int8Params": "int8"}


def _bits(layer: nn.Module) -> Quantisation | None:
    # By name: where nothing is quantised, bitsandbytes need not be there.
    return _BITS.get(type(getattr(layer, "weight", None)).__name__)


def _tell_peft(model: nn.Module, kind: Quantisation | None) -> None:
    """peft adapts quantised layers only of a model that carries these marks of transformers' own loading."""
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = kind == "nf4", kind == "int8"
