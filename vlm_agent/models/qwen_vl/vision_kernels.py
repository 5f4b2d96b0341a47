"""Faster equivalents of operations of transformers' Qwen-VL vision towers; weights and their names stay.

Sizes: what a tower computes from the sizes of screens alone is computed where rows are collated (`tower_inputs`);
transformers would read the sizes back from the GPU. Its towers accept each of these under its own name instead
(`transformers.vision_utils`).
Patch embedding: a Conv3d whose stride is its kernel is a matrix product of flattened patches, and cuDNN runs it many
times slower than that product (pytorch/pytorch#174051).
Attention: transformers reads the segment bounds (screens, windows of Qwen2.5-VL) back from the GPU
in every layer. Here they come from the host (`tower_inputs`), else are read back once per forward pass, and a layer is
one call of `attention.within_segments`.
Widths: the gated MLP of Qwen2.5-VL (3B and 7B) is 3,420 wide, no multiple of 8, and cuBLAS then runs a kernel for
Ampere: 12 % of a training step on an H200. Where it is frozen, it computes at 3,424 on a GPU (`pad_width`). One that
trains keeps its width. All other widths are multiples of 8: layers of 1,280, 1,024 and 1,152, MLPs of 5,120 (Qwen2-VL),
3,456 (Qwen2.5-VL 32B and 72B), 4,096 and 4,304 (Qwen3-VL), heads of 80, 64 and 72, patches of 1,176 and 1,536 values.
So are those of Llama+ViT's towers: ViT-L, CLIP, SigLIP, DINOv2, Qwen-VL (2023). EVA-02-L's MLP is 2,730 wide and stays
so, as it normalises its inner states.
Deepstack (Qwen3-VL): transformers adds features to the visual tokens under a mask, and waits for the GPU to count it;
here they are added by index.
"""

import inspect
from functools import lru_cache
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import PretrainedConfig, PreTrainedModel
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from vlm_agent.models.attention import WITHIN_SEGMENTS, Bounds


def use_fast_kernels(vision: PreTrainedModel) -> None:
    """Replaces the patch embedding and the attention of a tower, in place, and the width of its MLPs on a GPU. A tower
    whose attention takes no segment bounds keeps it."""
    flatten_patch_embedding(vision)
    for module in vision.modules():
        gate: Any = getattr(module, "gate_proj", None)
        if gate is not None and gate.out_features % WIDTH_MULTIPLE:
            module.register_forward_pre_hook(_pad_on_gpu)
    attention = [module for module in vision.modules() if hasattr(module, "qkv")]
    layers = [one for one in attention if "cu_seqlens" in inspect.signature(type(one).forward).parameters]
    if layers and vision.config._attn_implementation == "sdpa":
        for layer in layers:
            vars(layer)["forward"] = MethodType(_attend, layer)
        vision.set_attn_implementation(WITHIN_SEGMENTS)


def flatten_patch_embedding(vision: nn.Module) -> None:
    """Replace, in place, the forward pass of every non-overlapping Conv3d by a matrix product over the same weights."""
    for module in vision.modules():
        if not isinstance(module, nn.Conv3d) or module.stride != module.kernel_size or module.groups != 1:
            continue
        if set(module.dilation) == {1} and set(module.padding) == {0}:
            vars(module)["forward"] = MethodType(_embed_patches, module)


def _embed_patches(conv: nn.Conv3d, pixels: torch.Tensor) -> torch.Tensor:
    """`pixels` (P, channels, *kernel): one patch each. Returns (P, width, 1, 1, 1), as the convolution does."""
    if pixels.shape[2:] != conv.kernel_size:
        return nn.Conv3d.forward(conv, pixels)
    embedded = functional.linear(pixels.flatten(1), conv.weight.flatten(1), conv.bias)
    return embedded[:, :, None, None, None]


_ON_HOST: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Bounds tensor → its values: all layers of a forward pass share the same tensors."""

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
        parts = [_interpolation(*grid, side, merge) for grid in grids.tolist()]
        inputs["interp_indices"], inputs["interp_weights"] = (torch.cat(part) for part in zip(*parts, strict=True))
    return inputs


@lru_cache(maxsize=64)
def _interpolation(frames: int, rows: int, columns: int, side: int, merge: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs of one screen. Screens of a data set share few sizes, and 16 screens of 1,280 tokens would take half a
    second, which evaluation spends beside a GPU that waits."""
    grid = torch.tensor([[frames, rows, columns]])
    return get_vision_interpolation_indices_and_weights(grid, side, align_corners=True, spatial_merge_size=merge)


def tower_options(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The keyword arguments of a tower for `tower_inputs`, whose tensors are on the device already."""
    options = dict(inputs)
    for name, longest in _LONGEST.items():
        if name in inputs:
            bounds = Bounds.on(device, inputs[name])
            _ON_HOST[bounds.device] = bounds.host  # where attention layers find them
            options |= {name: bounds.device, longest: bounds.longest}
    return options


def _attend(layer: Any, hidden_states: torch.Tensor, cu_seqlens: torch.Tensor, **options) -> torch.Tensor:
    """transformers' forward pass, which passes the whole sequence to the attention as if it were one segment."""
    if layer.config._attn_implementation != WITHIN_SEGMENTS:
        return type(layer).forward(layer, hidden_states, cu_seqlens, **options)
    if cu_seqlens not in _ON_HOST:
        _ON_HOST[cu_seqlens] = tuple(cu_seqlens.tolist())
    bounds = Bounds(_ON_HOST[cu_seqlens], cu_seqlens.to(torch.int32))
    whole = torch.tensor([0, len(hidden_states)])  # on the CPU, so that reading it does not wait for the GPU
    return type(layer).forward(layer, hidden_states, whole, segment_bounds=bounds, **options)


WIDTH_MULTIPLE = 8
"""Numbers of 2 bytes in the 16 bytes at which tensor cores of Hopper and later read the rows of a matrix."""


def _pad_on_gpu(mlp: Any, _: Any) -> None:
    if mlp.gate_proj.weight.is_cuda:
        pad_width(mlp)


def pad_width(mlp: Any) -> None:
    """Pads `gate_proj`, `up_proj` and `down_proj` with zeros to a multiple of `WIDTH_MULTIPLE`, in place.

    The added outputs of the first two meet zero columns of the third, so results are equal within rounding. Weights and
    biases become views, of their own shapes, into the padded tensors, so names, counts and saved files stay; the MLP
    takes 0.1 % more memory. An MLP with a layer that trains, is adapted, partitioned (ZeRO-3), quantised or replaced
    stays as it is.
    """
    layers = (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    if all(map(_can_be_padded, layers)):
        for layer in layers:
            if _padded(layer) is None:
                _pad(layer)


def _can_be_padded(layer: nn.Module) -> bool:
    forward = vars(layer).get("forward")
    is_plain = type(layer) is nn.Linear and (forward is None or forward.__func__ is _read_padded)
    return is_plain and not any(weight.requires_grad or hasattr(weight, "ds_id") for weight in layer.parameters())


def _pad(layer: nn.Linear) -> None:
    padded = {}
    # Not in inference mode: what it allocates could not take part in training later.
    with torch.inference_mode(False), torch.no_grad():
        for name, weight in layer.named_parameters():
            padded[name] = weight.new_zeros(_rounded_up(weight.shape))
            view = padded[name][tuple(map(slice, weight.shape))]
            weight.data = view.copy_(weight)
    vars(layer)["padded"] = padded
    vars(layer)["forward"] = MethodType(_read_padded, layer)


def _padded(layer: Any) -> dict[str, torch.Tensor] | None:
    """The padded tensors. None: the weights are no longer views of them (moved, or in another dtype), or train."""
    padded = vars(layer).get("padded")
    if padded is None:
        return None
    for name, weight in layer.named_parameters():
        is_view = padded[name].data_ptr() == weight.data_ptr() and padded[name].shape == _rounded_up(weight.shape)
        if weight.requires_grad or not is_view:
            return None
    return padded


def _rounded_up(shape: torch.Size) -> torch.Size:
    return torch.Size(-(-size // WIDTH_MULTIPLE) * WIDTH_MULTIPLE for size in shape)


def _read_padded(layer: nn.Linear, states: torch.Tensor) -> torch.Tensor:
    """The padded width on one side: of the result (gate, up) or of `states` (down)."""
    padded = _padded(layer)
    return nn.Linear.forward(layer, states) if padded is None else functional.linear(states, **padded)


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
