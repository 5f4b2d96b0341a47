"""Attention within each segment of a packed sequence: the choice of its implementation, and its kernels.

On a GPU and in half precision, a variable-length kernel reads a whole row, forward and backward, also with fewer key
heads than query heads (GQA): torch's own (`torch.nn.attention.varlen`), which needs compute capability 8.0 (Ampere) and
heads of at most 256, in multiples of 8. It runs FlashAttention-4 where that is installed and supports the GPU
(`precision.use_fa4`), else the FlashAttention-2 inside torch. Otherwise PyTorch's attention (SDPA) is called once per
segment: on a CPU that takes less than half the time of one call with a block-diagonal mask; on a GPU it selects a flash
kernel, which a mask would rule out. It is also called for rows with branches, and for screens of many patches on Hopper
(`has_long_segments`).
"""

import inspect
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from vlm_agent.errors import RecipeError
from vlm_agent.models.weights.precision import has_bf16, use_fa4

_LOG = logging.getLogger(__name__)

WITHIN_SEGMENTS = "within_segments"
_HALF = (torch.bfloat16, torch.float16)
_BIDIRECTIONAL, _CAUSAL = (-1, -1), (-1, 0)
LARGEST_HEAD, HEAD_MULTIPLE = 256, 8
SMALLEST_CAPABILITY = (8, 0)

HOPPER = (9, 0)
LONG_SEGMENT = 2048
"""Mean tokens from which one SDPA call a segment is faster on Hopper, where it runs cuDNN's kernel, than the
variable-length kernel of FlashAttention-2. Measured on an H200 with torch 2.11, bidirectional, 16 heads of 80: 21
screens of 2,964 patches took 2.97 and 3.75 ms, their 1,050 windows of up to 64 patches 24.6 and 0.43 ms."""

WIDENED_HEAD = 32
"""Heads of up to this width are computed in float32 on a CPU, and all heads on a CPU without `has_bf16`, where
autocast would call the bfloat16 kernel. Forward and backward with AMX, 6 heads of 32, 300, 800 and 1,500 tokens: 3.1,
13.8 and 41 ms in place of 5.0, 20.9 and 45. On Intel without AMX bfloat16 takes two to three times as long."""

_TAKES_GQA = "enable_gqa" in inspect.signature(varlen_attn).parameters
"""torch 2.11 has no such option; its kernel reads fewer key heads without it."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Where the segments of a packed sequence begin, and where the last one ends.

    `host`: as integers. `device`: int32 (segments + 1,), the same on the device. `caches`: for new tokens of sentences,
    what was read of each before; every layer appends the keys and values of a segment to its own cache. `branches`: see
    `sentences/packing.py`.
    """

    host: tuple[int, ...]
    device: torch.Tensor
    caches: Sequence[Cache] = ()
    branches: np.ndarray | None = None

    @classmethod
    def on(cls, device: torch.device, cu_seqlens: np.ndarray, **others: Any) -> "Bounds":
        """`cu_seqlens` (segments + 1,) of the host; nothing waits for the device. `others`: of the fields."""
        return cls(tuple(cu_seqlens.tolist()), to_device(cu_seqlens, device, torch.int32), **others)

    @cached_property
    def longest(self) -> int:
        """The length of the longest segment."""
        return max(end - begin for begin, end in pairwise(self.host))

    @cached_property
    def parts(self) -> Sequence[tuple[int, int, int, torch.Tensor | None]]:
        """The calls of SDPA: (begin of the segment, first token, last + 1, mask)."""
        segments = [(begin, begin, end, None) for begin, end in pairwise(self.host)]
        return segments if self.branches is None else self._with_branches(self.branches.tolist())

    def _with_branches(self, branches: list[list[int]]) -> list[tuple[int, int, int, torch.Tensor | None]]:
        """A segment is causal; its branches are another part, with a mask bool (1, 1, tokens, L) over the segment. One
        part with a mask would take 1.6 times as long."""
        parts: list[tuple[int, int, int, torch.Tensor | None]] = []
        for number, (begin, end) in enumerate(pairwise(self.host)):
            own = [(at, prefix) for sentence, at, prefix in branches if sentence == number]
            trunk = begin + own[0][0] if own else end
            parts.append((begin, begin, trunk, None))
            if own:
                mask = torch.ones(end - trunk, end - begin, dtype=torch.bool).tril(trunk - begin)
                for at, prefix in own:
                    mask[begin + at - trunk :, :prefix] = True
                    mask[begin + at - trunk :, prefix:at] = False
                parts.append((begin, trunk, end, to_device(mask[None, None], self.device.device)))
        return parts

    @cached_property
    def masks(self) -> tuple[torch.Tensor | None, ...]:
        """Which tokens of its cache, and of itself, each token of a segment attends to: bool (1, 1, new, all), made
        before the first layer appends; None for a single token, which attends to all."""
        masks: list[torch.Tensor | None] = []
        for own, (begin, end) in zip(self.caches, pairwise(self.host), strict=True):
            new, old = end - begin, own.get_seq_length()
            size, device = (1, 1, new, old + new), self.device.device
            masks.append(None if new == 1 else torch.ones(size, dtype=torch.bool, device=device).tril(old))
        return tuple(masks)


def to_device(
    values: torch.Tensor | np.ndarray | Sequence[float], device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Values of the host as a tensor on the device. On CUDA the copy is asynchronous, from pinned memory.

    A training step that reads a value back, or copies from pageable memory, waits until the GPU has finished everything
    before. So what decides shapes is computed on the host, where batches are collated.
    """
    tensor = torch.as_tensor(values, dtype=dtype)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def choose_attention(vision: PreTrainedModel | None, language_model: PreTrainedModel) -> None:
    """Sets the attention implementation of both, in place. `vision`: None for a text model.

    Raises RecipeError for a language model without full causal attention in every layer: it would train with another
    attention than its own, or its packed sentences would attend to each other.
    """
    _check_mixing(language_model)
    language_model.set_attn_implementation(WITHIN_SEGMENTS)
    if vision is not None and vision._supports_sdpa:
        vision.set_attn_implementation("sdpa")


def _check_mixing(language_model: PreTrainedModel) -> None:
    config = language_model.config
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    window = getattr(config, "sliding_window", None)
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if not language_model._supports_attention_backend:
        reason = "transformers gives its attention no choice of implementation"
    elif kinds:
        reason = f"it has layers of {', '.join(sorted(kinds))}"
    elif window is not None:
        reason = f"it attends within a sliding window of {window} tokens"
    elif getattr(config, "attn_logit_softcapping", None) is not None:
        reason = "its attention caps logits, which PyTorch's does not"
    elif rope in ("dynamic", "longrope"):
        reason = f"its rotary frequencies (rope_type {rope}) depend on the longest sentence of a row"
    else:
        return
    raise RecipeError(
        f"a {config.model_type!r} language model like this one cannot read packed sentences here: {reason}. Take one "
        "with full attention in every layer, such as llama, qwen2 or a mistral without sliding_window"
    )


def packed_options(
    language_model: PreTrainedModel, cu_seqlens: np.ndarray | None, device: torch.device, **others: Any
) -> dict:
    """The keyword arguments that keep attention within the sentences of a row.

    `cu_seqlens` int32 (sentences + 1,), on the host; None: one sentence, or several behind a mask of the caller. Single
    sentences need no bounds, but with them transformers does not look for several in `position_ids`, which would wait
    for the device. `others`: of the fields of `Bounds`.
    """
    implementation = language_model.config._attn_implementation
    if cu_seqlens is None or (len(cu_seqlens) <= 2 and implementation != WITHIN_SEGMENTS):
        return {}
    if implementation != WITHIN_SEGMENTS:
        raise ValueError(f"attention {implementation!r} mixes packed sentences; use {WITHIN_SEGMENTS!r}")
    bounds = Bounds.on(device, cu_seqlens, **others)
    return {"segment_bounds": bounds, "attention_mask": torch.empty(1, 1, 1, 1, device=device)}


def within_segments(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    segment_bounds: Bounds | None = None,
    **options,
) -> tuple[torch.Tensor, None]:
    """Attention within each segment of one row: causal within sentences, bidirectional (`is_causal` False) within the
    screens and windows of a vision tower. Without bounds, PyTorch's SDPA.

    With bounds, `attention_mask` is ignored: transformers passes on a mask of 4 dimensions and builds none.
    `query` (1, heads, L, width); `key`, `value` (1, key heads, L, width). Returns (1, L, heads, width).
    A module may have `scale_query`, a function of the query and the `position_ids` of the layer.
    Raises ValueError for several tokens behind a cache without a mask: which of the cached tokens each
    attends to would be undefined.
    """
    if hasattr(module, "scale_query"):
        query = module.scale_query(query, options["position_ids"])
    if segment_bounds is None:
        if attention_mask is None and 1 < query.shape[2] < key.shape[2]:
            raise ValueError("several tokens behind a cache need a mask; decode with attention 'sdpa', which makes one")
        if attention_mask is not None and 1 < query.shape[2] < key.shape[2] and query.shape[1] > key.shape[1]:
            return _behind_cache(query, key, value, attention_mask, options.get("scaling")), None
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if segment_bounds.caches:
        return _behind_own_caches(module, query, key, value, segment_bounds, options.get("scaling")), None
    causal = options.get("is_causal", True)
    can_run = segment_bounds.branches is None and can_run_kernel(query, options.get("dropout", 0.0))
    if can_run and not has_long_segments(query, segment_bounds, causal):
        return run_kernel(query, key, value, segment_bounds, causal, options.get("scaling")), None
    widened = query.device.type == "cpu" and (query.shape[-1] <= WIDENED_HEAD or not has_bf16())
    wide = [part.float() if widened else part for part in (query, key, value)]
    parts = []
    with torch.autocast("cpu", enabled=False) if widened else nullcontext():
        for begin, first, end, mask in segment_bounds.parts:
            read = (wide[0][:, :, first:end], wide[1][:, :, begin:end], wide[2][:, :, begin:end])
            parts.append(sdpa_attention_forward(module, *read, mask, **options)[0])
    return torch.cat(parts, dim=1).to(query.dtype), None


def _behind_own_caches(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Bounds, scaling: float | None
) -> torch.Tensor:
    """Causal attention of each segment behind its cache; shapes as in `within_segments`. Caches of unequal lengths are
    neither padded nor copied."""
    parts = []
    for own, mask, (begin, end) in zip(bounds.caches, bounds.masks, pairwise(bounds.host), strict=True):
        keys, values = own.update(key[:, :, begin:end], value[:, :, begin:end], module.layer_idx)
        parts.append(_behind_cache(query[:, :, begin:end], keys, values, mask, scaling))
    return torch.cat(parts, dim=1)


def _behind_cache(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scaling: float | None
) -> torch.Tensor:
    """Attention of S new tokens behind a cache, `query` (B, heads, S, width) and `mask` (B, 1, S, L) or None, also with
    fewer key heads: (B, S, heads, width). The queries that share a key head become tokens of one head; transformers
    would repeat the whole cache."""
    batch, heads, new, width = query.shape
    groups = heads // key.shape[1]
    grouped = query.reshape(batch, key.shape[1], groups * new, width)
    attended = functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=None if mask is None else mask.repeat(1, 1, groups, 1), scale=scaling
    )
    return attended.reshape(batch, heads, new, width).transpose(1, 2)


def _mask(
    *sizes: Any, attention_mask: torch.Tensor | None = None, q_offset: int = 0, **options: Any
) -> torch.Tensor | None:
    """SDPA's mask for padding or a cache. A packed row has neither, and its L × L mask is never built."""
    if attention_mask is None and isinstance(q_offset, int) and q_offset == 0:
        return None
    return sdpa_mask(*sizes, **options | {"attention_mask": attention_mask, "q_offset": q_offset})


def can_run_kernel(query: torch.Tensor, dropout: float = 0.0) -> bool:
    """Whether `run_kernel` accepts this query, (…, head width). A GPU that cannot run it logs the reason, once; for one
    that can, FlashAttention-4 is activated where it is installed."""
    if not query.is_cuda:
        return False
    capability = torch.cuda.get_device_capability(query.device)
    reason = _obstacle(_dtype(query), query.shape[-1], dropout, capability)
    if reason is not None:
        _warn(reason)
        return False
    use_fa4(capability)
    return True


def has_long_segments(query: torch.Tensor, bounds: Bounds, causal: bool) -> bool:
    """Whether one SDPA call a segment is faster than a variable-length kernel that could run: few long segments without
    a causal mask, on Hopper and later without FlashAttention-4."""
    if causal or not query.is_cuda or bounds.host[-1] < LONG_SEGMENT * (len(bounds.host) - 1):
        return False
    capability = torch.cuda.get_device_capability(query.device)
    return capability >= HOPPER and not use_fa4(capability)


def _obstacle(dtype: torch.dtype, head: int, dropout: float, capability: tuple[int, int]) -> str | None:
    if dtype not in _HALF:
        return (
            f"it supports bfloat16 and float16, and the states are {dtype}; training.bf16 and --agent.bf16 change that"
        )
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
        "SLOW ATTENTION: packed sentences and vision windows are read by one call of PyTorch's attention each, not by "
        "one variable-length kernel per layer: %s.",
        reason,
    )


def _dtype(query: torch.Tensor) -> torch.dtype:
    """The dtype of attention: autocast covers PyTorch's own, not this operator."""
    kind = query.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype


def run_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: Bounds, causal: bool, scaling: float | None
) -> torch.Tensor:
    """Attention within each segment: `query` (1, heads, L, width), `key` and `value` (1, key heads, L, width).

    Returns (1, L, heads, width), in the dtype of autocast where it is on. `scaling` None: 1 / sqrt(width).
    """
    dtype, offsets, longest = _dtype(query), bounds.device, bounds.longest
    gqa: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if _TAKES_GQA else {}
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
        **gqa,
    )
    assert isinstance(output, torch.Tensor)  # noqa: S101 (a tuple only with return_aux)
    return output.unsqueeze(0)


AttentionInterface.register(WITHIN_SEGMENTS, within_segments)
AttentionMaskInterface.register(WITHIN_SEGMENTS, _mask)
