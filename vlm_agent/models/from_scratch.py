"""A start from which a small Llama+ViT learns to see within minutes, where nothing is pretrained.

From the library's default initialisation such a model learns the order of steps and never to find an element: looking
something up on a screen takes attention that compares content, and copying what was found takes a value path that is an
identity, and neither emerges from noise in the time a laptop has. So both are given as a start, not as a constraint:

- keys equal queries, and output projections are the transpose of value projections: attention begins as matching;
- one embedding dimension marks text and one marks vision, and two heads of three prefer to look from text to vision;
- the other heads look one, two, … tokens back: what is asked for is known where the answer begins, and what was copied
  last is known where the next is to come. Without them the lessons of `recipes/pretrain_phone_vlm_tiny.yaml` taught
  naming what is at a place, and hardly ever finding what was named;
- coordinates start from the sinusoid that also marks the places of visual tokens: rows hold its y half, columns its x;
- the head starts as a copy of the embeddings, scaled down.

Real checkpoints need none of this and are never touched by it.
"""

import torch
from torch import nn

from vlm_agent.models.llama_vit import LlamaViT, sinusoid
from vlm_agent.models.word_tokenizer import coordinate_ids

LOGIT_SHARE = 0.5
"""The head's logits start with this standard deviation times that of a unit embedding's dot product."""

_MODALITY = 4.0
_LOOK_AT_SCREEN = 1.0
_QUERY_STD = 0.075
_LOOK_BACK, _FASTEST = 1.5, 6
_WEIGHT_STD = 0.06
_PLACE = 1.4


@torch.no_grad()
def initialise(model: LlamaViT, tokenizer, bins: int) -> None:
    """Overwrite the language model's and the positions' initial weights in place, from torch's global generator.

    Raises ValueError for a configuration whose attention this start cannot describe (grouped keys, tied head, no
    visual positions).
    """
    config = model.config.text_config
    if config.num_key_value_heads != config.num_attention_heads or config.tie_word_embeddings:
        raise ValueError("a model from scratch needs as many key-value heads as heads, and an untied head")
    if not model.config.visual_positions:
        raise ValueError("a model from scratch needs visual_positions: true")
    frequencies = model.language_model.model.rotary_emb.inv_freq
    for layer in model.language_model.model.layers:
        _initialise_layer(layer, config.num_attention_heads, frequencies)
    _initialise_embeddings(model, tokenizer, bins)


def _initialise_layer(layer: nn.Module, heads: int, frequencies: torch.Tensor) -> None:
    attention, mlp = layer.self_attn, layer.mlp
    for linear in (mlp.gate_proj, mlp.up_proj):
        nn.init.normal_(linear.weight, std=_WEIGHT_STD)
    nn.init.normal_(mlp.down_proj.weight, std=0.02)
    query, key = attention.q_proj.weight, attention.k_proj.weight
    nn.init.normal_(query, std=_QUERY_STD)
    key.copy_(query)
    # The last dimension of a head rotates slowest: a preference put there holds at any distance.
    slowest = torch.zeros(query.shape[0])
    looking = max(1, heads * 2 // 3)
    slowest.view(heads, -1)[:looking, -1] = 1.0
    for weight in (query, key):
        weight[:, :2] = 0
        weight[slowest > 0] = 0
    query[:, 0] = slowest * _LOOK_AT_SCREEN
    key[:, 0] = -slowest * _LOOK_AT_SCREEN
    key[:, 1] = slowest * _LOOK_AT_SCREEN
    for back, head in enumerate(reversed(range(looking, heads)), start=1):
        _look_back(
            query.view(heads, -1, query.shape[1])[head], key.view(heads, -1, key.shape[1])[head], back, frequencies
        )
    nn.init.orthogonal_(attention.v_proj.weight, gain=0.7)
    attention.o_proj.weight.copy_(attention.v_proj.weight.t())


def _look_back(query: torch.Tensor, key: torch.Tensor, back: int, frequencies: torch.Tensor) -> None:
    """Weights (width, hidden) of a head that looks `back` tokens back from any text, whatever it says.

    Rotary positions turn both by their place; a query that is turned on by `back` more agrees with the key there alone,
    as far as the fastest frequencies tell places apart.
    """
    fast = frequencies[:_FASTEST]
    here, half = torch.arange(len(fast)), query.shape[0] // 2
    query.zero_()
    key.zero_()
    key[here, 0] = _LOOK_BACK
    query[here, 0] = _LOOK_BACK * torch.cos(back * fast)
    query[here + half, 0] = -_LOOK_BACK * torch.sin(back * fast)


def _initialise_embeddings(model: LlamaViT, tokenizer, bins: int) -> None:
    table = model.get_input_embeddings().weight
    width = table.shape[1]
    nn.init.normal_(table)
    rows, columns = coordinate_ids(tokenizer, bins)
    places = sinusoid((torch.arange(bins) + 0.5) / bins, width // 2) * _PLACE
    table[rows] = torch.cat([places, torch.zeros_like(places)], dim=-1)
    table[columns] = torch.cat([torch.zeros_like(places), places], dim=-1)
    head = model.get_output_embeddings().weight
    head.copy_(table)
    head[:, :2] = 0
    table[:, 0], table[:, 1] = _MODALITY, 0
    model.projector.positions[:, 0], model.projector.positions[:, 1] = 0, _MODALITY
