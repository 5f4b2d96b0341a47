"""A start from which a small Llama+ViT learns to see within minutes, where nothing is pretrained.

From the library's default initialisation such a model learns the order of steps and never to find an element: looking
something up on a screen takes attention that compares content, and copying what was found takes a value path that is an
identity, and neither emerges from noise in the time a laptop has. So both are given as a start, not as a constraint:

- keys equal queries, and output projections are the transpose of value projections: attention begins as matching;
- one embedding dimension marks text and one marks vision, and two heads of three prefer to look from text to vision;
- half of those match what is said and bring where it is, the others match places and bring what is there. They match in
  dimensions that rotary positions hardly turn between the ends of a screen;
- the other heads look one, two, … tokens back, and bring what the first find by and what they found: what is asked for
  is known where the answer begins. All layers share one basis for that: bases drawn at random for each agree in a sixth
  of their dimensions (1,200 lessons upon a vision that names 95 % of icons taught the right row of 59 % of them with a
  shared basis, of 33 % without);
- coordinates start from the sinusoid that also marks the places of visual tokens: rows hold its y half, columns its x;
- the head starts as a copy of the embeddings, scaled down.

Real checkpoints need none of this and are never touched by it.
"""

from dataclasses import dataclass

import torch
from torch import nn

from vlm_agent.models.llama_vit import LlamaViT, grid_sinusoid, sinusoid
from vlm_agent.models.word_tokenizer import coordinate_ids

LOGIT_SHARE = 0.5
"""The head's logits start with this standard deviation times that of a unit embedding's dot product."""

_MODALITY, _MARKS = 4.0, 2
_LOOK_AT_SCREEN = 1.0
_LOOK_BACK, _FASTEST = 1.5, 6
_MATCH = 1.75
"""By the same measure 16 % with 1.2, and 30 % with 2.5."""

_SLOW = 1 / 300
"""Radians a token: a dimension that turns faster says nothing of what matches across a screen."""

_KEY_STD = 0.03
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
    bases = _bases(model)
    frequencies = model.language_model.model.rotary_emb.inv_freq
    for layer in model.language_model.model.layers:
        _initialise_layer(layer, config.num_attention_heads, frequencies, bases)
    _initialise_embeddings(model, tokenizer, bins)


@dataclass(frozen=True)
class _Bases:
    """Orthonormal rows (n, hidden), none with a share in the two dimensions that mark text and vision: `places` span
    where visual tokens are, the most telling first, `contents` all that is left."""

    places: torch.Tensor
    contents: torch.Tensor

    def shuffled(self) -> torch.Tensor:
        return self.contents[torch.randperm(len(self.contents))]


def _bases(model: LlamaViT) -> _Bases:
    # Not the model's own, which a recipe in bfloat16 has rounded: what spans them may turn by that.
    positions = grid_sinusoid(*model.config.visual_grid, model.projector.positions.shape[1])
    positions[:, :_MARKS] = 0
    _, strength, directions = torch.linalg.svd(positions, full_matrices=False)
    places = directions[strength > 1e-3 * strength[0]][: positions.shape[1] // 2]
    others = torch.randn(positions.shape[1] - _MARKS - len(places), positions.shape[1])
    others[:, :_MARKS] = 0
    others -= others @ places.t() @ places
    return _Bases(places, torch.linalg.qr(others.t()).Q.t())


def _initialise_layer(layer: nn.Module, heads: int, frequencies: torch.Tensor, bases: _Bases) -> None:
    attention, mlp = layer.self_attn, layer.mlp
    for linear in (mlp.gate_proj, mlp.up_proj):
        nn.init.normal_(linear.weight, std=_WEIGHT_STD)
    nn.init.normal_(mlp.down_proj.weight, std=0.02)
    # Where queries begin at 0 keys do not, or neither would ever have a gradient.
    nn.init.normal_(attention.k_proj.weight, std=_KEY_STD)
    attention.k_proj.weight[:, :_MARKS] = 0
    nn.init.zeros_(attention.q_proj.weight)
    nn.init.zeros_(attention.v_proj.weight)
    query, key, value = (
        projection.weight.view(heads, -1, projection.in_features)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    size, looking = query.shape[1], max(1, heads * 2 // 3)
    finding = looking - looking // 2
    # The last dimension of a head rotates slowest: a preference put there holds at any distance.
    slow = [place for place in range(size - 1) if frequencies[place % len(frequencies)] < _SLOW]
    own = bases.shuffled()
    for head in range(looking):
        finds = head < finding
        matched = bases.contents if head == 0 else own if finds else bases.places
        _look_at_screen(query[head], key[head], slow, matched)
        _fill(value[head], bases.places if finds else bases.shuffled())
    for back, head in enumerate(reversed(range(looking, heads)), start=1):
        _look_back(query[head], key[head], back, frequencies)
        _fill(value[head], torch.cat([bases.contents[: len(slow)], bases.places]))
    attention.o_proj.weight.copy_(attention.v_proj.weight.t())


def _fill(rows: torch.Tensor, basis: torch.Tensor) -> None:
    """As many of the basis as there are; others stay as they are."""
    shared = min(len(rows), len(basis))
    rows[:shared] = basis[:shared]


def _look_at_screen(query: torch.Tensor, key: torch.Tensor, slow: list[int], basis: torch.Tensor) -> None:
    """Weights (width, hidden) of a head that matches the first of the basis, and prefers vision where text asks."""
    matched = torch.zeros(len(slow), query.shape[1])
    _fill(matched, basis)
    query[slow] = key[slow] = matched * _MATCH
    query[-1, 0] = _LOOK_AT_SCREEN
    key[-1, 0], key[-1, 1] = -_LOOK_AT_SCREEN, _LOOK_AT_SCREEN


def _look_back(query: torch.Tensor, key: torch.Tensor, back: int, frequencies: torch.Tensor) -> None:
    """Weights (width, hidden) of a head that looks `back` tokens back from any text, whatever it says.

    Rotary positions turn both by their place; a query that is turned on by `back` more agrees with the key there alone,
    as far as the fastest frequencies tell places apart.
    """
    fast = frequencies[:_FASTEST]
    here, half = torch.arange(len(fast)), query.shape[0] // 2
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
