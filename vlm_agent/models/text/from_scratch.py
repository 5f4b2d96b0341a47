"""An initialisation with which a small text model from random weights learns to copy from its prompt.

With the default initialisation of transformers, a model of a few million weights learns the form of a reply long before
it reads the prompt. Copying needs heads that compare tokens; here they are a start, not a constraint:

- the last two heads of every layer attend one and two tokens back, and write what they find in a basis of their own;
- of the other heads, one half matches a token's content with what precedes other tokens (an induction head: it finds
  what followed the last time), the other half with the content of other tokens. Both copy content;
- the head starts as a copy of the embeddings, scaled down.

After 1,000 chats of D-PoT, 700,000 tokens, the loss of answers to test prompts is 1.16 with the initialisation of
transformers and 1.07 with this one; with `data.prompt_weight: 0.1`, 1.11 and 1.04.
"""

from typing import Any, cast

import torch
from torch import nn
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer

from vlm_agent.models.starting_heads import fill, look_back, slow_dimensions

_CONSTANT = 4.0
"""Dimension 0 of every embedding, which heads that look back read."""

_MATCH = 1.75
_BACK = 2
_KEY_STD = 0.03
_WEIGHT_STD = 0.06
_LOGIT_SHARE = 0.5
"""The head's logits start with this standard deviation times that of a unit embedding's dot product."""


def is_suitable(config: Any) -> bool:
    """Whether every head has keys of its own, and the head weights of its own."""
    return config.num_key_value_heads == config.num_attention_heads and not config.tie_word_embeddings


@torch.no_grad()
def initialise(model: LlamaForCausalLM) -> None:
    """Overwrites the weights but for norms, in place, from torch's global generator. `model`: float32, with a
    configuration that `is_suitable`."""
    width = model.config.hidden_size
    own, before = _basis(width), _basis(width)
    frequencies = cast("torch.Tensor", model.model.rotary_emb.inv_freq)
    for layer in model.model.layers:
        _initialise_layer(cast("LlamaDecoderLayer", layer), frequencies, own, before)
    table = cast("torch.Tensor", model.get_input_embeddings().weight)
    nn.init.normal_(table)
    table[:, 0] = 0
    head = cast("nn.Linear", model.get_output_embeddings()).weight
    head.copy_(table * _LOGIT_SHARE / width**0.5)
    table[:, 0] = _CONSTANT


def _basis(width: int) -> torch.Tensor:
    """Orthonormal rows (width, width), blind to the constant in dimension 0."""
    basis = torch.linalg.qr(torch.randn(width, width)).Q.t().contiguous()
    basis[:, 0] = 0
    return basis


def _initialise_layer(
    layer: LlamaDecoderLayer, frequencies: torch.Tensor, own: torch.Tensor, before: torch.Tensor
) -> None:
    for linear in (layer.mlp.gate_proj, layer.mlp.up_proj):
        nn.init.normal_(linear.weight, std=_WEIGHT_STD)
    nn.init.normal_(layer.mlp.down_proj.weight, std=0.02)
    query, key, value, output = _heads_of(layer.self_attn)
    heads, size = query.shape[:2]
    backs = min(_BACK, heads - 1)
    for back in range(1, backs + 1):
        look_back(query[-back], key[-back], back, frequencies)
        fill(value[-back], own)
        fill(output[-back], before.roll(back - 1, 0))
    slow = slow_dimensions(size - 1, frequencies)
    for head in range(heads - backs):
        matched = own if head % 2 else before
        query[head, slow] = own[: len(slow)] * _MATCH
        key[head, slow] = matched[: len(slow)] * _MATCH
        copied = own[torch.randperm(len(own))]
        fill(value[head], copied)
        fill(output[head], copied)
    layer.self_attn.o_proj.weight.copy_(output.flatten(0, 1).t())


def _heads_of(attention: LlamaAttention) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights (heads, width, hidden) of queries, keys and values, which are views, and of the output, transposed.

    All are 0 but for small random keys: if queries and keys both were, neither would have a gradient.
    """
    config = attention.config
    for projection in (attention.q_proj, attention.v_proj, attention.o_proj):
        nn.init.zeros_(projection.weight)
    nn.init.normal_(attention.k_proj.weight, std=_KEY_STD)
    attention.k_proj.weight[:, 0] = 0
    views = (
        projection.weight.view(config.num_attention_heads, -1, config.hidden_size)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    query, key, value = views
    return query, key, value, torch.zeros_like(value)
