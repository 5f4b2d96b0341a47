"""Attention within the segments of a packed sequence by torch's variable-length flash attention.

`torch.nn.attention.varlen` reads all segments in one kernel, forward and backward, also with fewer key heads than query
heads (GQA), and is part of torch. It needs a CUDA GPU of compute capability 8.0 (Ampere), half precision and heads of
at most 256, in multiples of 8; elsewhere `can_run` is False.
"""

import logging
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch.nn.attention.varlen import varlen_attn

from vlm_agent.models.transfer import to_device

_LOG = logging.getLogger(__name__)
_HALF = (torch.bfloat16, torch.float16)
_BIDIRECTIONAL, _CAUSAL = (-1, -1), (-1, 0)
LARGEST_HEAD, HEAD_MULTIPLE = 256, 8
SMALLEST_CAPABILITY = (8, 0)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Where the segments of a packed sequence begin, and where the last one ends.

    `host`: as integers. `device`: int32 (segments + 1,), the same on the device. `longest`: the length of the longest
    segment.
    """

    host: tuple[int, ...]
    device: torch.Tensor
    longest: int

    @classmethod
    def of(cls, cu_seqlens: torch.Tensor) -> "Bounds":
        """`cu_seqlens` (segments + 1,), on any device; its values are read back once."""
        host = tuple(cu_seqlens.tolist())
        return cls(host, cu_seqlens.to(torch.int32), _longest(host))

    @classmethod
    def on(cls, device: torch.device, cu_seqlens: np.ndarray) -> "Bounds":
        """`cu_seqlens` (segments + 1,) of the host; nothing waits for the device."""
        host = tuple(cu_seqlens.tolist())
        return cls(host, to_device(cu_seqlens, device, torch.int32), _longest(host))


def _longest(host: tuple[int, ...]) -> int:
    return max(end - begin for begin, end in pairwise(host))


def can_run(query: torch.Tensor, dropout: float = 0.0) -> bool:
    """Whether `attend` accepts this query, (…, head width). A GPU where it cannot run logs the reason, once."""
    if not query.is_cuda:
        return False
    reason = _obstacle(_dtype(query), query.shape[-1], dropout, torch.cuda.get_device_capability(query.device))
    if reason is not None:
        _warn(reason)
    return reason is None


def _obstacle(dtype: torch.dtype, head: int, dropout: float, capability: tuple[int, int]) -> str | None:
    if dtype not in _HALF:
        return f"it supports bfloat16 and float16, and the states are {dtype}; training.bf16 and --bf16 change that"
    if capability < SMALLEST_CAPABILITY:
        return "it needs compute capability 8.0 (A100, RTX 30 and later), and this GPU has {}.{}".format(*capability)
    if head > LARGEST_HEAD or head % HEAD_MULTIPLE:
        return f"it supports heads of up to {LARGEST_HEAD}, in multiples of {HEAD_MULTIPLE}, and these have {head}"
    if dropout:
        return f"it has no dropout, and this attention has {dropout}"
    return None


@cache
def _warn(reason: str) -> None:
    _LOG.warning(
        "SLOW ATTENTION: packed sentences and vision windows are read by one call of PyTorch's attention per length or "
        "sentence, not by one variable-length kernel per layer: %s.",
        reason,
    )


def _dtype(query: torch.Tensor) -> torch.dtype:
    """The dtype of attention: autocast covers PyTorch's own, not this operator."""
    kind = query.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Bounds, causal: bool, scaling: float | None
) -> torch.Tensor:
    """Attention within each segment: `query` (1, heads, L, width), `key` and `value` (1, key heads, L, width).

    Returns (1, L, heads, width), in the dtype of autocast where it is on. `scaling` None: 1 / sqrt(width).
    """
    dtype, offsets, longest = _dtype(query), bounds.device, bounds.longest
    queries, keys, values = (tensor.squeeze(0).transpose(0, 1).to(dtype) for tensor in (query, key, value))
    output = varlen_attn(
        queries,  # (L, heads, width), and so are keys and values
        keys,
        values,
        offsets,
        offsets,
        longest,
        longest,
        scale=scaling,
        window_size=_CAUSAL if causal else _BIDIRECTIONAL,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(output, torch.Tensor)  # noqa: S101 (a tuple only with return_aux)
    return output.unsqueeze(0)
