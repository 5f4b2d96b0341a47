"""Where the heads of a Llama attend."""

import torch
from transformers.models.llama.modeling_llama import LlamaModel, apply_rotary_pos_emb

WORDS = tuple(f"n{chr(97 + n // 676)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}" for n in range(1300))
"""Words of a data set, for a tokenizer whose last tokens are they."""


@torch.no_grad()
def attention(decoder: LlamaModel, hidden: torch.Tensor, layer: int, at: int) -> torch.Tensor:
    """float32 (heads, at + 1): the attention of token `at` in a layer. `hidden` (1, tokens, width): its input."""
    block, length = decoder.layers[layer], hidden.shape[1]
    heads = decoder.config.num_attention_heads
    seen = block.input_layernorm(hidden)
    sides = (block.self_attn.q_proj, block.self_attn.k_proj)
    query, key = (side(seen).view(1, length, heads, -1).transpose(1, 2) for side in sides)
    query, key = apply_rotary_pos_emb(query, key, *decoder.rotary_emb(seen, torch.arange(length)[None]))
    return ((query[0, :, at, None] * key[0, :, : at + 1]).sum(-1) / key.shape[-1] ** 0.5).softmax(-1)
