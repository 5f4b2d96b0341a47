"""The choice of attention, and attention within each sentence of a packed row.

On a GPU and in half precision, a variable-length kernel reads a whole row: flash-attn's where it is installed, else
torch's own (`varlen.py`). Otherwise PyTorch's attention (SDPA) is called once per sentence: on a CPU that takes less
than half the time of one call with a block-diagonal mask; on a GPU it selects a flash kernel, which a mask would rule
out.
"""

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import is_flash_attn_2_available

from vlm_agent.errors import RecipeError
from vlm_agent.models.attention import varlen
from vlm_agent.models.attention.varlen import Bounds
from vlm_agent.models.weights.precision import has_bf16

WITHIN_SENTENCES = "within_sentences"
_FLASH = "flash_attention_2"


def choose_attention(vision: PreTrainedModel | None, language_model: PreTrainedModel) -> None:
    """Sets the attention implementation of both, in place. flash-attn supports half precision only, so float32 keeps
    PyTorch's. `vision`: None for a text model.

    Raises RecipeError for a language model without full causal attention in every layer: it would train with another
    attention than its own, or its packed sentences would attend to each other.
    """
    _check_mixing(language_model)
    flash = _has_flash_attention_2()
    half = language_model.dtype != torch.float32
    language_model.set_attn_implementation(
        _FLASH if flash and half and language_model._supports_flash_attn else WITHIN_SENTENCES
    )
    if vision is None:
        return
    if flash and half and vision._supports_flash_attn:
        vision.set_attn_implementation(_FLASH)
    elif vision._supports_sdpa:
        vision.set_attn_implementation("sdpa")


def _has_flash_attention_2() -> bool:
    """The check of transformers (flash-attn 4 has a module of the same name), and a GPU that supports the kernel."""
    return is_flash_attn_2_available() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)


def _check_mixing(language_model: PreTrainedModel) -> None:
    config = language_model.config
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    window = getattr(config, "sliding_window", None)
    if not language_model._supports_attention_backend:
        reason = "transformers gives its attention no choice of implementation"
    elif kinds:
        reason = f"it has layers of {', '.join(sorted(kinds))}"
    elif window is not None:
        reason = f"it attends within a sliding window of {window} tokens"
    elif getattr(config, "attn_logit_softcapping", None) is not None:
        reason = "its attention caps logits, which PyTorch's does not"
    else:
        return
    raise RecipeError(
        f"a {config.model_type!r} language model like this one cannot read packed sentences here: {reason}. Take one "
        "with full attention in every layer, such as llama, qwen2 or a mistral without sliding_window"
    )


def packed_options(language_model: PreTrainedModel, cu_seqlens: np.ndarray | None, device: torch.device) -> dict:
    """The keyword arguments that keep attention within the sentences of a row.

    `cu_seqlens` int32 (sentences + 1,), on the host; None: one sentence, or several behind a mask of the caller. Single
    sentences need no bounds, but with them transformers does not look for several in `position_ids`, which would wait
    for the device, with flash-attn in every layer.
    """
    implementation = language_model.config._attn_implementation
    if cu_seqlens is None or (len(cu_seqlens) <= 2 and implementation not in (WITHIN_SENTENCES, _FLASH)):
        return {}
    if implementation not in (WITHIN_SENTENCES, _FLASH):
        raise ValueError(
            f"attention {implementation!r} would let packed sentences see each other; "
            f"use {WITHIN_SENTENCES!r} or {_FLASH!r}"
        )
    bounds = Bounds.on(device, cu_seqlens)
    if implementation == WITHIN_SENTENCES:
        return {"sentence_bounds": bounds, "attention_mask": torch.empty(1, 1, 1, 1, device=device)}
    return {
        "cu_seq_lens_q": bounds.device,
        "cu_seq_lens_k": bounds.device,
        "max_length_q": bounds.longest,
        "max_length_k": bounds.longest,
    }


def within_sentences(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    sentence_bounds: Bounds | None = None,
    **options,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sentence of one row; without bounds, PyTorch's SDPA.

    With bounds, `attention_mask` is ignored: transformers passes on a mask of 4 dimensions and builds none.
    `query` (1, heads, L, width); `key`, `value` (1, key heads, L, width). Returns (1, L, heads, width).
    Raises ValueError for several tokens behind a cache without a mask: which of the cached tokens each
    attends to would be undefined.
    """
    if sentence_bounds is None:
        if attention_mask is None and 1 < query.shape[2] < key.shape[2]:
            raise ValueError("several tokens behind a cache need a mask; decode with attention 'sdpa', which makes one")
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if varlen.can_run(query, options.get("dropout", 0.0)):
        return varlen.attend(query, key, value, sentence_bounds, causal=True, scaling=options.get("scaling")), None
    widened = query.device.type == "cpu" and not has_bf16()
    # Without AMX, PyTorch's bfloat16 kernel takes two to three times as long on a CPU as that of float32, forward and
    # backward. Autocast would call it.
    wide = [part.float() if widened else part for part in (query, key, value)]
    parts = []
    with torch.autocast("cpu", enabled=False) if widened else nullcontext():
        for begin, end in pairwise(sentence_bounds.host):
            one_query, one_key, one_value = (part[:, :, begin:end] for part in wide)
            parts.append(sdpa_attention_forward(module, one_query, one_key, one_value, None, **options)[0])
    return torch.cat(parts, dim=1).to(query.dtype), None


def _mask(
    *sizes: Any, attention_mask: torch.Tensor | None = None, q_offset: int = 0, **options: Any
) -> torch.Tensor | None:
    """SDPA's mask for padding or a cache. A packed row has neither, and its L × L mask is never built."""
    if attention_mask is None and isinstance(q_offset, int) and q_offset == 0:
        return None
    return sdpa_mask(*sizes, **options | {"attention_mask": attention_mask, "q_offset": q_offset})


AttentionInterface.register(WITHIN_SENTENCES, within_sentences)
AttentionMaskInterface.register(WITHIN_SENTENCES, _mask)
