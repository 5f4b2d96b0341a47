"""Linear layers in 4 or 8 bits by bitsandbytes, the frozen base of QLoRA.

nf4: QLoRA (Dettmers et al., 2023): 4-bit NormalFloat in blocks of 64 weights, with quantised block scales; 4.1 bits a
weight. It computes in the original dtype, from weights dequantised on the fly.
int8: LLM.int8() (Dettmers et al., 2022): rows of weights and of activations in 8 bits, columns of activations with an
outlier above 6 in 16 bits. These columns are chosen over all tokens of a batch, so the result of a token depends,
within the error of 8 bits, on the rest of its batch.

Only layers of the `language_model` part are quantised; embeddings, norms, head, projector and vision tower are not.
"""

import logging
from functools import partial
from types import ModuleType
from typing import Any

import torch
from peft import import_utils
from peft.utils.integrations import dequantize_module_weight
from torch import nn

from vlm_agent.errors import UserError
from vlm_agent.files.installation import install_line
from vlm_agent.models.weights.precision import is_quantised_layer
from vlm_agent.recipe.model import Quantisation

_INT8_OUTLIER = 6.0  # LLM.int8(), section 3.2: below it, models of several billion weights lose accuracy

# Logged by every int8 layer at every step.
logging.getLogger("bitsandbytes.autograd._functions").addFilter(
    lambda record: not str(record.msg).startswith("MatMul8bitLt: inputs will be cast")
)


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
    for known in (import_utils.is_bnb_available, import_utils.is_bnb_4bit_available):
        known.cache_clear()  # a program hides bitsandbytes from peft until here
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


def dequantise(model: nn.Module) -> nn.Module:
    """Replace quantised layers by linear layers with the dequantised weights, in place.

    Their dtype is the one that nf4 computes in; float32 for int8.
    """
    for name, layer in list(model.named_modules()):
        if not is_quantised_layer(layer):
            continue
        with torch.device("meta"):
            plain = nn.Linear(layer.in_features, layer.out_features, bias=False)
        plain.weight = nn.Parameter(dequantize_module_weight(layer), requires_grad=False)
        plain.bias = layer.bias
        model.set_submodule(name, plain)
    _mark_for_peft(model, None)
    return model


def _mark_for_peft(model: nn.Module, kind: Quantisation | None) -> None:
    """peft adapts quantised layers only of a model with these attributes, which transformers sets when it quantises."""
    vars(model).update(is_loaded_in_4bit=kind == "nf4", is_loaded_in_8bit=kind == "int8")
