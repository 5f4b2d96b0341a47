"""Faster equivalents of operations of transformers' Qwen-VL vision towers; weights and their names stay.

Sizes: what a tower computes from the sizes of screens alone is computed where rows are collated (`tower_inputs`);
transformers would read the sizes back from the GPU. Its towers accept each of these under its own name instead
(`transformers.vision_utils`).
Patch embedding: a Conv3d whose stride is its kernel is a matrix product of flattened patches, and cuDNN runs it many
times slower than that product (pytorch/pytorch#174051).
Attention: without flash-attn, transformers calls SDPA once per segment (a screen, or a window of Qwen2.5-VL) and reads
the segment bounds back from the GPU in every layer. Here a layer is one call of torch's variable-length kernel
(`models/attention.py`); where that cannot run, all segments of equal length share one SDPA call. The bounds come
from the host (`tower_inputs`), else they are read back once per forward pass. A CPU keeps the loop: a call costs
little there, and sorting tokens by the length of their segment takes longer than it saves.
Deepstack (Qwen3-VL): transformers adds features to the visual tokens under a mask, and waits for the GPU to count it;
here they are added by index.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from vlm_agent.models import attention
from vlm_agent.models.attention import Bounds, to_device

LOOP_DEVICES = {"cpu"}

BATCHED_SEGMENTS = "batched_segments"
"""Attention implementation of a vision tower whose attention layers `batch_segments` has wrapped."""


def use_fast_kernels(vision: PreTrainedModel) -> None:
    """Both replacements, in place. Flash attention reads all segments in one call already and stays."""
    flatten_patch_embedding(vision)
    if vision.config._attn_implementation == "sdpa" and batch_segments(vision):
        vision.set_attn_implementation(BATCHED_SEGMENTS)


def flatten_patch_embedding(vision: nn.Module) -> None:
    """Replace, in place, the forward pass of every non-overlapping Conv3d by a matrix product over the same weights."""
    for module in vision.modules():
        if isinstance(module, nn.Conv3d) and _is_patch_embedding(module):
            vars(module)["forward"] = MethodType(_embed_patches, module)


def _is_patch_embedding(conv: nn.Conv3d) -> bool:
    return (
        conv.stride == conv.kernel_size and conv.groups == 1 and set(conv.dilation) == {1} and set(conv.padding) == {0}
    )


def _embed_patches(conv: nn.Conv3d, pixels: torch.Tensor) -> torch.Tensor:
    """`pixels` (P, channels, *kernel): one patch each. Returns (P, width, 1, 1, 1), as the convolution does."""
    if pixels.shape[2:] != conv.kernel_size:
        return nn.Conv3d.forward(conv, pixels)
    embedded = functional.linear(pixels.flatten(1), conv.weight.flatten(1), conv.bias)
    return embedded[:, :, None, None, None]


@dataclass(frozen=True)
class Segments:
    """Segments of a packed sequence, grouped by length when that is needed first.

    `groups`: (number of segments, their length). `order` int64 (L,): tokens sorted by the length of their segment,
    `inverse` back to the sequence; both None if all segments are equally long.
    """

    bounds: Bounds

    @classmethod
    def from_bounds(cls, cu_seqlens: torch.Tensor) -> "Segments":
        """`cu_seqlens` (segments + 1,), on any device; its values are read back."""
        return cls(Bounds.of(cu_seqlens))

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        return tuple((len(list(group)), length) for length, group in groupby(self._sorted, key=_length))

    @cached_property
    def order(self) -> torch.Tensor | None:
        if len(self.groups) == 1:
            return None
        return to_device(torch.cat([torch.arange(*bound) for bound in self._sorted]), self.bounds.device.device)

    @cached_property
    def inverse(self) -> torch.Tensor | None:
        return None if self.order is None else self.order.argsort()

    @property
    def _sorted(self) -> list[tuple[int, int]]:
        """(begin, end) of every segment, shortest first, else in the order of the sequence."""
        return sorted(pairwise(self.bounds.host), key=_length)


def _length(bound: tuple[int, int]) -> int:
    begin, end = bound
    return end - begin


_SEGMENTS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Bounds tensor -> its Segments: all layers of a forward pass share the same tensors."""


_LONGEST = {"cu_seqlens": "max_seqlen", "cu_window_seqlens": "max_window_seqlen"}
"""The argument for the bounds of segments → the argument for the longest segment."""


def tower_inputs(grids: torch.Tensor, vision: PretrainedConfig) -> dict[str, Any]:
    """The inputs that follow from `grids`, int64 (screens, 3) on the CPU: time, rows and columns of patches.

    `position_ids` int64 (patches, 2); `cu_seqlens` int32 (screens + 1,). Qwen2.5-VL: `window_index` int64 (visual
    tokens,), `cu_window_seqlens` int32 (windows + 1,). Qwen3-VL: `interp_indices` int64 and `interp_weights` float32
    (patches, 4). Bounds are NumPy arrays and stay on the host.
    """
    merge = vision.spatial_merge_size
    inputs: dict[str, Any] = {
        "position_ids": get_vision_position_ids(grids, merge),
        "cu_seqlens": get_vision_cu_seqlens(grids).numpy(),
    }
    if hasattr(vision, "window_size"):
        inputs["window_index"], windows = get_vision_window_index(grids, merge, vision.window_size, vision.patch_size)
        inputs["cu_window_seqlens"] = windows.numpy()
    if hasattr(vision, "num_position_embeddings"):
        side = int(vision.num_position_embeddings**0.5)
        inputs["interp_indices"], inputs["interp_weights"] = get_vision_interpolation_indices_and_weights(
            grids, side, align_corners=True, spatial_merge_size=merge
        )
    return inputs


def tower_options(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The keyword arguments of a tower for `tower_inputs`, whose tensors are on the device already."""
    options = dict(inputs)
    for name, longest in _LONGEST.items():
        if name in inputs:
            bounds = Bounds.on(device, inputs[name])
            _SEGMENTS[bounds.device] = Segments(bounds)  # where attention layers find the values on the host
            options |= {name: bounds.device, longest: bounds.longest}
    return options


def batch_segments(vision: nn.Module) -> bool:
    """Let every attention layer of a Qwen-VL tower read equal segments in one SDPA call.

    Returns False, and changes nothing, for a tower whose attention takes no segment bounds. Takes effect while the
    tower's attention implementation is `BATCHED_SEGMENTS`; every other implementation runs as in transformers.
    """
    layers = [module for module in vision.modules() if _takes_bounds(module)]
    for layer in layers:
        vars(layer)["forward"] = MethodType(_attend, layer)
    return bool(layers)


def _takes_bounds(module: nn.Module) -> bool:
    return hasattr(module, "qkv") and "cu_seqlens" in inspect.signature(type(module).forward).parameters


def _attend(layer: Any, hidden_states: torch.Tensor, cu_seqlens: torch.Tensor, **options) -> torch.Tensor:
    """transformers' forward pass, which passes the whole sequence to `batched_segments` as if it were one segment."""
    if layer.config._attn_implementation != BATCHED_SEGMENTS or hidden_states.device.type in LOOP_DEVICES:
        return type(layer).forward(layer, hidden_states, cu_seqlens, **options)
    if cu_seqlens not in _SEGMENTS:
        _SEGMENTS[cu_seqlens] = Segments.from_bounds(cu_seqlens)
    whole = torch.tensor([0, len(hidden_states)])  # on the CPU, so that reading it does not wait for the GPU
    return type(layer).forward(layer, hidden_states, whole, segments=_SEGMENTS[cu_seqlens], **options)


def add_deepstack_by_index(language_model: nn.Module) -> None:
    """Lets a language model with deepstack, in place, also take indices of visual tokens as its `visual_pos_masks`:
    int64 (n,), of the B * L flattened positions."""
    if hasattr(language_model, "_deepstack_process"):
        vars(language_model)["_deepstack_process"] = MethodType(_add_deepstack, language_model)


def _add_deepstack(
    language_model: Any, hidden_states: torch.Tensor, visual_pos_masks: torch.Tensor, visual_embeds: torch.Tensor
) -> torch.Tensor:
    if visual_pos_masks.dtype == torch.bool:
        return type(language_model)._deepstack_process(language_model, hidden_states, visual_pos_masks, visual_embeds)
    rows = hidden_states.flatten(0, 1)
    return rows.index_add(0, visual_pos_masks, visual_embeds.to(rows.dtype)).view_as(hidden_states)


def batched_segments(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    segments: Segments | None = None,
    **options,
) -> tuple[torch.Tensor, None]:
    """Bidirectional attention within each segment; `query`, `key`, `value` (1, heads, L, head width).

    Returns (1, L, heads, head width). Without `segments`, all of it is one segment: that is how transformers' loop
    calls it.
    """
    if segments is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if attention.can_run_kernel(query, options.get("dropout", 0.0)):
        return attention.run_kernel(
            query, key, value, segments.bounds, causal=False, scaling=options.get("scaling")
        ), None
    tokens = [tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value)]  # each (L, heads, head width)
    if segments.order is not None:
        tokens = [tensor.index_select(0, segments.order) for tensor in tokens]
    sizes = [count * length for count, length in segments.groups]
    outputs = []
    for (count, length), *group in zip(segments.groups, *(tensor.split(sizes) for tensor in tokens), strict=True):
        batch = [tensor.unflatten(0, (count, length)).transpose(1, 2) for tensor in group]
        query, key, value = batch
        outputs.append(sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0].flatten(0, 1))
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if segments.inverse is not None:
        output = output.index_select(0, segments.inverse)
    return output.unsqueeze(0), None


AttentionInterface.register(BATCHED_SEGMENTS, batched_segments)
