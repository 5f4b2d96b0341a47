"""A faster forward pass of peft's LoRA layers; their weights, names and files stay.

peft runs every adapted layer by itself: a dropout mask, a product with A, a product with B, a scaling and a sum. Here
layers of one module that read one input (`ONE_INPUT`) share a mask and one product with their A matrices, and the
product with B adds to the base layer's result in place, scaling included. Under autocast the input is not copied to
float32. Values and gradients equal peft's within rounding; with dropout, layers that share an input drop the same
numbers of it.

Under ZeRO-3 a layer's weights are whole only while that layer runs: layers share the mask, and each has its own
products. Layers with DoRA, several adapters, an adapter that is disabled or merged, or a bias run peft's own forward.
"""

from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import nn
from torch.nn import functional

ONE_INPUT = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("gate_proj", "up_proj"), ("wi_0", "wi_1"))
"""Names of layers that read the same tensor in the modules of transformers that contain them. Where they do not, as in
a cross attention, values are the same, and products are computed twice."""

IN_PLACE_FLOPS = {torch.ops.aten.addmm_: lambda total, one, other, **_: 2 * one[0] * one[1] * other[1]}
"""The FLOPs of the product with B, from shapes, for torch's FlopCounterMode, which knows the other form alone."""

_FIRST = {name: names[0] for names in ONE_INPUT for name in names}


def fuse_lora(model: nn.Module) -> None:
    """Replaces the forward pass of every LoRA layer around a linear layer, in place. A second call changes nothing."""
    for parent in model.modules():
        groups: dict[str, list[Any]] = {}
        for name, layer in parent.named_children():
            is_adapted_linear = isinstance(layer, LoraLayer) and isinstance(layer.base_layer, nn.Linear)
            if is_adapted_linear and "forward" not in vars(layer):  # else it is fused already
                groups.setdefault(_FIRST.get(name, name), []).append(layer)
        for layers in groups.values():
            siblings = _Siblings(layers)
            for layer in layers:
                vars(layer)["forward"] = partial(adapt, layer, siblings)
            if len(layers) > 1:
                parent.register_forward_hook(siblings.clear, always_call=True)


class _Siblings:
    """LoRA layers that read one input. `waiting`: what layers that have not run yet will read in place of `input`."""

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers
        self.clear()

    def clear(self, *_: Any) -> None:
        """Drops all tensors. A forward hook of the parent, for passes that end early: by an exception, or in the
        recomputation of gradient checkpointing."""
        self.input: torch.Tensor | None = None
        self.waiting: dict[Any, torch.Tensor] = {}

    def take(self, layer: Any, adapter: str, x: torch.Tensor) -> torch.Tensor:
        """The input of the layer's B, (tokens, rank); under ZeRO-3 of its A, (tokens, width)."""
        if self.input is not x or layer not in self.waiting:
            self.input, self.waiting = x, _reduce([one for one in self.layers if _adapter(one) == adapter], adapter, x)
        taken = self.waiting.pop(layer)
        if not self.waiting:
            self.clear()
        return taken


def _reduce(layers: list[Any], adapter: str, x: torch.Tensor) -> dict[Any, torch.Tensor]:
    weights = [layer.lora_A[adapter].weight for layer in layers]
    device = x.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else weights[0].dtype
    dropped = layers[0].lora_dropout[adapter](x.reshape(-1, x.shape[-1]).to(dtype))
    if _is_partitioned(layers[0], adapter):
        return dict.fromkeys(layers, dropped)
    hidden = functional.linear(dropped, torch.cat(weights) if len(weights) > 1 else weights[0])
    return dict(zip(layers, hidden.split([len(weight) for weight in weights], dim=-1), strict=True))


def adapt(layer: Any, siblings: _Siblings, x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """The forward pass of a LoRA layer around a linear layer."""
    adapter = _adapter(layer)
    if adapter is None or args or options:
        return type(layer).forward(layer, x, *args, **options)
    # Two dimensions: the result of a linear layer is then no view, and autograd changes it in place without a copy.
    result = layer.base_layer(x.reshape(-1, x.shape[-1]))
    hidden, up, scaling = siblings.take(layer, adapter, x), layer.lora_B[adapter], layer.scaling[adapter]
    if _is_partitioned(layer, adapter):
        result = result.add(up(layer.lora_A[adapter](hidden)), alpha=scaling).to(result.dtype)
    elif hidden.dtype != result.dtype:
        result = result.add(functional.linear(hidden, up.weight), alpha=scaling).to(result.dtype)
    else:
        weight = up.weight.to(hidden.dtype).t()  # autocast leaves operations in place alone
        in_place = type(layer.base_layer) is nn.Linear  # results of quantised layers may be views
        result = (result.addmm_ if in_place else result.addmm)(hidden, weight, alpha=scaling)
    return result.view(*x.shape[:-1], result.shape[-1])


def _adapter(layer: Any) -> str | None:
    """The one adapter that adds to the base layer's result; None where peft's own forward is needed."""
    if layer.disable_adapters or layer.merged or len(layer.active_adapters) != 1:
        return None
    (name,) = layer.active_adapters
    plain = name in layer.lora_A and name not in layer.lora_variant and layer.lora_B[name].bias is None
    return name if plain else None


def _is_partitioned(layer: Any, adapter: str) -> bool:
    return hasattr(layer.lora_A[adapter].weight, "ds_id")
