"""Copies between host and device that do not wait for the GPU.

A training step that reads a value back, or copies from pageable memory, waits until the GPU has finished everything
before. So what decides shapes is computed where batches are collated. Of a batch, tensors, also those in dictionaries,
move to the device; NumPy arrays and numbers stay on the host: neither accelerate nor Trainer, DDP or DeepSpeed moves
them.
"""

from collections.abc import Sequence

import numpy as np
import torch


def to_device(
    values: torch.Tensor | np.ndarray | Sequence[float],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Values of the host as a tensor on the device. On CUDA the copy is asynchronous, from pinned memory."""
    tensor = torch.as_tensor(values, dtype=dtype)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def filled(embeddings: torch.Tensor, places: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Embeddings (B, L, width) with `tokens` (n, width) at `places`, int64 (n,), of the B * L flattened positions.

    The same values as `masked_scatter`, whose backward pass waits for the GPU to count the mask.
    """
    rows = embeddings.flatten(0, 1)
    return rows.index_copy(0, places, tokens.to(rows.dtype)).view_as(embeddings)
