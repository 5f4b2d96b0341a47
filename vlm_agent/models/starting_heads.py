"""Attention heads with a purpose, as a start for language models with rotary positions and no pretrained weights."""

import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

LOGIT_SHARE = 0.5
"""The head's logits start with this standard deviation times that of a unit embedding's dot product."""

MATCH = 1.75
"""The weight of a matched dimension. With others a Llama+ViT names fewer right rows: 16 % with 1.2, 30 % with 2.5."""

_LOOK_BACK, _FASTEST = 1.5, 6
_KEY_STD = 0.03
_WEIGHT_STD = 0.06

_SLOW = 1 / 300
"""Radians per token: a dimension that rotates faster cannot match content across a screen."""


def start_layer(layer: LlamaDecoderLayer, blind: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Initialises a layer without heads, in place, and returns views (heads, width, hidden) of the weights of its
    queries, keys and values, which are 0 but for small random keys. The output projection is left to the caller.

    If queries and keys both were 0, neither would have a gradient. Keys are `blind` to that many first dimensions.
    """
    attention, mlp = layer.self_attn, layer.mlp
    for linear in (mlp.gate_proj, mlp.up_proj):
        nn.init.normal_(linear.weight, std=_WEIGHT_STD)
    nn.init.normal_(mlp.down_proj.weight, std=0.02)
    nn.init.normal_(attention.k_proj.weight, std=_KEY_STD)
    attention.k_proj.weight[:, :blind] = 0
    nn.init.zeros_(attention.q_proj.weight)
    nn.init.zeros_(attention.v_proj.weight)
    query, key, value = (
        projection.weight.view(attention.config.num_attention_heads, -1, projection.in_features)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    return query, key, value


def slow_dimensions(count: int, frequencies: torch.Tensor) -> list[int]:
    """The dimensions, among the first `count` of a head, that can match content at any distance.

    `frequencies`: radians per token of the first half of its dimensions; the second half has the same.
    """
    return [place for place in range(count) if frequencies[place % len(frequencies)] < _SLOW]


def look_back(query: torch.Tensor, key: torch.Tensor, back: int, frequencies: torch.Tensor) -> None:
    """Makes a head attend to the token `back` positions earlier, whatever its content, in place.

    `query`, `key` (width, hidden): its weights, which read a constant in dimension 0 of the hidden states. Rotary
    positions rotate query and key by their positions; a query rotated by `back` more matches the key at that distance
    only, as far as the fastest frequencies separate positions.
    """
    fast = frequencies[:_FASTEST]
    here, half = torch.arange(len(fast)), query.shape[0] // 2
    key[here, 0] = _LOOK_BACK
    query[here, 0] = _LOOK_BACK * torch.cos(back * fast)
    query[here + half, 0] = -_LOOK_BACK * torch.sin(back * fast)


def fill(rows: torch.Tensor, basis: torch.Tensor) -> None:
    """Copies the basis into the first rows; further rows stay unchanged."""
    shared = min(len(rows), len(basis))
    rows[:shared] = basis[:shared]
