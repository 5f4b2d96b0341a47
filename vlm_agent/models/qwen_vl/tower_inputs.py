"""What a Qwen-VL vision tower computes from the sizes of screens alone, computed where rows are collated.

transformers would read the sizes back from the GPU. Its towers accept each of these under its own name instead
(`transformers.vision_utils`).
"""

from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from vlm_agent.models.attention.varlen import Bounds
from vlm_agent.models.qwen_vl.vision_kernels import remember

_LONGEST = {"cu_seqlens": "max_seqlen", "cu_window_seqlens": "max_window_seqlen"}
"""The argument for the bounds of segments → the argument for the longest segment."""


def tower_inputs(grids: torch.Tensor, vision: PretrainedConfig) -> dict[str, Any]:
    """The inputs of `grids`, int64 (screens, 3) on the CPU: time, rows and columns of patches.

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
            remember(bounds)
            options |= {name: bounds.device, longest: bounds.longest}
    return options
