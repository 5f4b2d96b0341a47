"""An initialisation with which a small text model from random weights learns to copy from its prompt.

With the default initialisation of transformers, a model of a few million weights learns the form of a reply long before
it reads the prompt. Copying needs heads that compare tokens; here they are a start, not a constraint:

- the last two heads of every layer attend one and two tokens back, and write what they find in a basis of their own;
- of the other heads, one half matches a token's content with what precedes other tokens (an induction head: it finds
  what followed the last time), the other half with the content of other tokens. Both copy content;
- the head starts as a copy of the embeddings, scaled down;
- a word with the space before it has nearly the embedding of the word without it, so that heads match either.

After 1,000 chats of D-PoT, 700,000 tokens, the loss of answers to test prompts is 1.16 with the initialisation of
transformers and 1.07 with this one; with `data.prompt_weight: 0.1`, 1.11 and 1.04.
"""

from typing import Any, cast

import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from vlm_agent.models.llama_vit.from_scratch import LOGIT_SHARE, MATCH, fill, look_back, slow_dimensions, start_layer
from vlm_agent.models.word_tokenizer import words_by_space

_CONSTANT = 4.0
"""Dimension 0 of every embedding, which heads that look back read."""

_BACK = 2

_SAME_WORD = 0.9
"""The cosine of the embeddings of a word with and without the space before it."""


def is_suitable(config: Any) -> bool:
    """Whether every head has keys of its own, and the head weights of its own."""
    return config.num_key_value_heads == config.num_attention_heads and not config.tie_word_embeddings


@torch.no_grad()
def initialise(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> None:
    """Overwrites the weights but for norms, in place, from torch's global generator. `model`: float32, with a
    configuration that `is_suitable`."""
    width = model.config.hidden_size
    own, before = _basis(width), _basis(width)
    frequencies = cast("torch.Tensor", model.model.rotary_emb.inv_freq)
    for layer in model.model.layers:
        _initialise_layer(cast("LlamaDecoderLayer", layer), frequencies, own, before)
    table = cast("torch.Tensor", model.get_input_embeddings().weight)
    nn.init.normal_(table)
    spaced, bare = words_by_space(tokenizer)
    table[spaced] = _SAME_WORD * table[bare] + (1 - _SAME_WORD**2) ** 0.5 * table[spaced]
    table[:, 0] = 0
    head = cast("nn.Linear", model.get_output_embeddings()).weight
    head.copy_(table * LOGIT_SHARE / width**0.5)
    table[:, 0] = _CONSTANT


def _basis(width: int) -> torch.Tensor:
    """Orthonormal rows (width, width), blind to the constant in dimension 0."""
    basis = torch.linalg.qr(torch.randn(width, width)).Q.t().contiguous()
    basis[:, 0] = 0
    return basis


def _initialise_layer(
    layer: LlamaDecoderLayer, frequencies: torch.Tensor, own: torch.Tensor, before: torch.Tensor
) -> None:
    query, key, value = start_layer(layer, blind=1)
    output = torch.zeros_like(value)  # transposed
    heads, size = query.shape[:2]
    backs = min(_BACK, heads - 1)
    for back in range(1, backs + 1):
        look_back(query[-back], key[-back], back, frequencies)
        fill(value[-back], own)
        fill(output[-back], before.roll(back - 1, 0))
    slow = slow_dimensions(size - 1, frequencies)
    for head in range(heads - backs):
        matched = own if head % 2 else before
        query[head, slow] = own[: len(slow)] * MATCH
        key[head, slow] = matched[: len(slow)] * MATCH
        copied = own[torch.randperm(len(own))]
        fill(value[head], copied)
        fill(output[head], copied)
    layer.self_attn.o_proj.weight.copy_(output.flatten(0, 1).t())
