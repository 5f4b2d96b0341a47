"""An initialisation with which a small Llama+ViT without pretrained parts learns to find elements within minutes.

With the default initialisation of transformers, such a model learns the order of steps and never finds an element.
Finding one needs attention that compares content, copying it needs a value path that is an identity; neither emerges
from noise in the training time of a laptop. Both are an initialisation here, not a constraint:

- keys equal queries, and output projections are the transpose of value projections: attention starts as matching;
- one embedding dimension marks text, one marks vision, and two of three heads prefer attention from text to vision;
- half of these heads match content and copy its position, the others match positions and copy the content there. They
  match in dimensions that rotary positions hardly rotate between the ends of a screen;
- the other heads attend one, two, … tokens back and copy both, so that the query is available where the answer starts.
  All layers share one basis for this; independent random bases would agree in a sixth of their dimensions (after 1,200
  lessons on a vision encoder that names 95 % of icons, the right row of 59 % of them with a shared basis, of 33 %
  without);
- coordinates start from the sinusoid that also marks the positions of visual tokens: rows hold its y half, columns x;
- the head starts as a copy of the embeddings, scaled down.

Models from checkpoints are not affected.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import RecipeError
from vlm_agent.models.llama_vit.model import LlamaViT, grid_sinusoid, sinusoid
from vlm_agent.models.starting_heads import MATCH, fill, look_back, slow_dimensions, start_layer
from vlm_agent.models.word_tokenizer import coordinate_ids

_MODALITY, _MARKS = 4.0, 2
_LOOK_AT_SCREEN = 1.0
_PLACE = 1.4


@torch.no_grad()
def initialise(model: LlamaViT, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary) -> None:
    """Overwrite the initial weights of the language model and the positions, in place, from torch's global generator.

    Raises RecipeError for a configuration whose attention this start cannot describe (grouped keys, tied head, no
    visual positions).
    """
    config = model.config.text_config
    if config.num_key_value_heads != config.num_attention_heads or config.tie_word_embeddings:
        raise RecipeError("a model from scratch needs as many key-value heads as heads, and an untied head")
    if not model.config.visual_positions:
        raise RecipeError("a model from scratch needs model.visual_positions: true")
    bases = _bases(model)
    llama = cast("LlamaForCausalLM", model.language_model).model
    frequencies = cast("torch.Tensor", llama.rotary_emb.inv_freq)
    for layer in llama.layers:
        _initialise_layer(cast("LlamaDecoderLayer", layer), frequencies, bases)
    _initialise_embeddings(model, tokenizer, language)


@dataclass(frozen=True)
class _Bases:
    """Orthonormal rows (n, hidden) without the two dimensions that mark text and vision. `places` span the positions of
    visual tokens, strongest first; `contents` span the rest."""

    places: torch.Tensor
    contents: torch.Tensor

    def shuffled(self) -> torch.Tensor:
        return self.contents[torch.randperm(len(self.contents))]


def _bases(model: LlamaViT) -> _Bases:
    # Not the model's own positions: rounded to bfloat16, they could span another basis.
    rows, columns = model.config.visual_grid
    positions = grid_sinusoid(rows, columns, _positions(model).shape[1])
    positions[:, :_MARKS] = 0
    _, strength, directions = torch.linalg.svd(positions, full_matrices=False)
    places = directions[strength > 1e-3 * strength[0]][: positions.shape[1] // 2]
    others = torch.randn(positions.shape[1] - _MARKS - len(places), positions.shape[1])
    others[:, :_MARKS] = 0
    others -= others @ places.t() @ places
    return _Bases(places, torch.linalg.qr(others.t()).Q.t())


def _positions(model: LlamaViT) -> nn.Parameter:
    return cast("nn.Parameter", model.projector.positions)


def _initialise_layer(layer: LlamaDecoderLayer, frequencies: torch.Tensor, bases: _Bases) -> None:
    query, key, value = start_layer(layer, _MARKS)
    heads = len(query)
    size, looking = query.shape[1], max(1, heads * 2 // 3)
    finding = looking - looking // 2
    # The last dimension of a head rotates slowest: a preference there holds at any distance.
    slow = slow_dimensions(size - 1, frequencies)
    own = bases.shuffled()
    for head in range(looking):
        finds = head < finding
        matched = bases.contents if head == 0 else own if finds else bases.places
        _look_at_screen(query[head], key[head], slow, matched)
        fill(value[head], bases.places if finds else bases.shuffled())
    for back, head in enumerate(reversed(range(looking, heads)), start=1):
        look_back(query[head], key[head], back, frequencies)
        fill(value[head], torch.cat([bases.contents[: len(slow)], bases.places]))
    layer.self_attn.o_proj.weight.copy_(layer.self_attn.v_proj.weight.t())


def _look_at_screen(query: torch.Tensor, key: torch.Tensor, slow: list[int], basis: torch.Tensor) -> None:
    """Weights (width, hidden) of a head that matches the first rows of the basis and, from text, prefers vision."""
    matched = torch.zeros(len(slow), query.shape[1])
    fill(matched, basis)
    query[slow] = key[slow] = matched * MATCH
    query[-1, 0] = _LOOK_AT_SCREEN
    key[-1, 0], key[-1, 1] = -_LOOK_AT_SCREEN, _LOOK_AT_SCREEN


def _initialise_embeddings(model: LlamaViT, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary) -> None:
    table = cast("torch.Tensor", model.get_input_embeddings().weight)
    width = table.shape[1]
    nn.init.normal_(table)
    for axis in (0, 1):
        coordinates = language.axis(axis)
        places = sinusoid(torch.tensor([each.place for each in coordinates]), width // 2) * _PLACE
        halves = [torch.zeros_like(places), torch.zeros_like(places)]
        halves[axis] = places
        table[coordinate_ids(tokenizer, coordinates)] = torch.cat(halves, dim=-1)
    head = cast("torch.Tensor", model.get_output_embeddings().weight)
    head.copy_(table)
    head[:, :2] = 0
    table[:, 0], table[:, 1] = _MODALITY, 0
    _positions(model)[:, 0], _positions(model)[:, 1] = 0, _MODALITY
