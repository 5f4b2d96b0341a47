"""Dynamic NTK scaling of RoPE and log-n attention: sentences longer than those of the pretraining, without training.

Both act in inference alone, as in the published code of Qwen (2023), modeling_qwen.py:

- dynamic NTK: a prompt of more than n = `ntk_length` tokens is read with the base b · (2^(d+1) − 1)^(w / (w − 2)). b is
  the rotary base, w the width of a head, d the least number of doublings of n that reach the length of the prompt.
  Decoded tokens keep the base of their prompt, also beyond the next doubling: all keys in a cache have one base;
- log-n attention: the query of the i-th token, i > n = `log_n_length`, is multiplied by log i / log n.

The published code reads every prompt anew. Here an answer is the same whether its history was read alone, in one
prefill with later steps, or part by part: a history is read once per base (`greedy.answer_sentences`), and again when
it needs another one (`ReadSentence.rest_of`).

A position id carries the doublings in its upper 32 bits. Whatever counts positions on from there, such as a cache or a
batch of prompts of several lengths, so keeps the base of each token.
"""

from functools import cache
from types import MethodType
from typing import Any

import numpy as np
import torch

from vlm_agent.models.attention import WITHIN_SEGMENTS, to_device

_SHIFT = 32
_MOST_DOUBLINGS = 16


def first_position(ntk_length: int | None, tokens: int) -> int:
    """The position id of the first of `tokens` in a prompt; None: dynamic NTK is off."""
    doublings = 0 if ntk_length is None else (-(-tokens // ntk_length) - 1).bit_length()
    return doublings << _SHIFT


def extend_context(language_model: Any, ntk: bool, log_n_length: int | None) -> None:
    """Makes a causal language model of transformers read the positions of `first_position`, and scale its queries, in
    place. Its attention becomes the one of this package, the only one that scales queries."""
    if ntk:
        vars(language_model.model.rotary_emb)["forward"] = MethodType(_rotate, language_model.model.rotary_emb)
    if log_n_length is not None:
        language_model.set_attn_implementation(WITHIN_SEGMENTS)
        for layer in language_model.model.layers:
            layer.self_attn.log_n_length = log_n_length
            layer.self_attn.scale_query = MethodType(_scale_query, layer.self_attn)


@torch.no_grad()
def _rotate(rotary: Any, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin (B, L, width) for `position_ids` int64 (B, L), in place of the rotary embedding's own."""
    width = 2 * len(rotary.inv_freq)
    table = _frequencies(rotary.config.rope_parameters["rope_theta"], width, x.device)
    angles = _index(position_ids)[..., None].float() * table[position_ids >> _SHIFT]
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(x.dtype), both.sin().to(x.dtype)


@cache
def _frequencies(base: float, width: int, device: torch.device) -> torch.Tensor:
    """float32 (doublings, width / 2)"""
    exponents = torch.arange(0, width, 2).float() / width
    alphas = (2 ** (doublings + 1) - 1 for doublings in range(_MOST_DOUBLINGS + 1))
    with torch.inference_mode(False):
        table = torch.stack([1.0 / (base * alpha ** (width / (width - 2))) ** exponents for alpha in alphas])
        return to_device(table, device)


def _scale_query(attention: Any, query: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    """`query` (B, heads, L, width) of the tokens at `position_ids` int64 (B, L)."""
    if attention.training:
        return query
    places = (_index(position_ids) + 1).clamp(min=attention.log_n_length)
    factors = places.log() / float(np.log(attention.log_n_length))
    return query * factors[:, None, :, None].to(query.dtype)


def _index(position_ids: torch.Tensor) -> torch.Tensor:
    """The index of each token in its sentence."""
    return position_ids & ((1 << _SHIFT) - 1)
