"""Before the first step, the heads of a model from scratch attend to the named element and one or two tokens back."""

from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.models.heads import WORDS, attention
from torch import nn

from shipped_weights.phone_vlm_tiny.settings import read_pretraining
from vlm_agent.models.build import Vocabulary, build, build_tokenizer
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.recipe.model import ModelRecipe

RECIPE = Path(__file__).resolve().parents[3] / "shipped_weights/phone_vlm_tiny/curriculum.yaml"
TEXT, VISION, MARKS = 0, 1, 2
"""The dimensions that mark each, and how many they are."""

FIND, READ, BACK = (0, 1), (2, 3), (4, 5)
"""Heads of six."""

NAME, ANSWER = 1, 3
"""Where in the text of a lesson a name stands, and where its answer begins, two tokens on."""

SCREENS = 40


def started(**changes) -> LlamaViT:
    """The network that pretraining starts with; `changes` to its language model."""
    ours = read_pretraining(RECIPE, {})[0].model
    content = ours.model_dump(exclude_none=True)
    content["language_model"]["config"] |= changes
    recipe = ModelRecipe(**{key: content[key] for key in ours.model_fields_set})
    tokenizer = build_tokenizer(recipe, Vocabulary(tiny.LANGUAGE.vocabulary(), WORDS))
    torch.manual_seed(0)
    return build(recipe, tokenizer, tiny.LANGUAGE).eval()


@pytest.fixture(scope="module")
def model() -> LlamaViT:
    return started()


def lesson(model: LlamaViT, seed: int) -> tuple[torch.Tensor, int]:
    """float32 (1, tokens, hidden) of a screen that names itself and of text about it; which place the text names."""
    generator = torch.Generator().manual_seed(seed)
    table, places = model.get_input_embeddings().weight, model.projector.positions
    drawn = len(table) - 1 - torch.randperm(1200, generator=generator)  # the last are the words of the data
    names, text = drawn[: len(places)], drawn[len(places) : len(places) + 5]
    named = int(torch.randint(len(places), (), generator=generator))
    text[NAME] = names[named]
    screen = table[names].clone()
    screen[:, :MARKS] = 0
    screen = 0.7 * screen / screen.pow(2).mean(-1, keepdim=True).sqrt() + places
    return torch.cat([screen, table[text]])[None], named


@torch.inference_mode()
def looks(model: LlamaViT, layer: int, at: int) -> list[tuple[torch.Tensor, int]]:
    """(attention, the place that was named), of each of the screens; `at` counts in the text."""
    found = []
    for seed in range(SCREENS):
        embeddings, named = lesson(model, seed)
        decoder = model.language_model.model
        states = decoder(inputs_embeds=embeddings, output_hidden_states=True).hidden_states
        found.append((attention(decoder, states[layer], layer, len(model.projector.positions) + at), named))
    return found


@pytest.mark.parametrize(("head", "back"), [(5, 1), (4, 2)])
def test_the_last_heads_look_one_and_two_tokens_back_whatever_stands_there(model, head, back):
    """For 200 tokens, in the first layer, whose inputs are the embeddings."""
    found = [where[head] for where, _ in looks(model, 0, ANSWER)]
    assert sum(float(where[-1 - back]) for where in found) / SCREENS > 0.6
    assert sum(int(where.argmax()) == len(where) - 1 - back for where in found) > SCREENS * 0.6


def test_the_first_heads_find_what_a_token_names(model):
    """One place of 196 by chance."""
    for head in FIND:
        assert sum(int(where[head].argmax()) == named for where, named in looks(model, 0, NAME)) > SCREENS * 0.6


@torch.inference_mode()
def test_what_was_found_brings_its_place(model):
    """After one layer the token that names something is nearer to its place than to nine of ten others."""
    ranks = []
    for seed in range(SCREENS):
        embeddings, named = lesson(model, seed)
        states = model.language_model.model(inputs_embeds=embeddings, output_hidden_states=True).hidden_states
        at = len(model.projector.positions) + NAME
        nearness = model.projector.positions[:, MARKS:] @ (states[1] - states[0])[0, at, MARKS:]
        ranks.append(int((nearness > nearness[named]).sum()))
    assert sorted(ranks)[SCREENS // 2] < len(nearness) / 10


def test_heads_match_by_content_dimensions_and_read_by_position_dimensions(model):
    positions = model.projector.positions.detach().clone()
    positions[:, :MARKS] = 0
    _, strength, directions = torch.linalg.svd(positions, full_matrices=False)
    places = directions[strength > 1e-3 * strength[0]]
    for block in model.language_model.model.layers:
        for head in (*FIND, *READ):
            matched = rows(block.self_attn.q_proj, head)[slow(model)]
            of_places = (matched @ places.t()).norm() / matched.norm()
            assert float(of_places) == pytest.approx(1 if head in READ else 0, abs=1e-4)


def test_all_layers_find_and_look_back_in_one_basis(model):
    first, *others = (block.self_attn for block in model.language_model.model.layers)
    basis = rows(first.q_proj, FIND[0])[slow(model)]
    for attending in others:
        torch.testing.assert_close(rows(attending.q_proj, FIND[0])[slow(model)], basis)
        for head in BACK:
            brought = rows(attending.v_proj, head)
            kept = basis @ brought.t() @ brought  # what of the basis it passes on
            torch.testing.assert_close(kept[:, MARKS:], basis[:, MARKS:], atol=1e-5, rtol=0)


def rows(projection: nn.Linear, head: int) -> torch.Tensor:
    return projection.weight.detach().view(6, -1, projection.in_features)[head]


def slow(model: LlamaViT) -> list[int]:
    """Dimensions of a head that a screen's length hardly turns; without the last, which holds the preference."""
    frequencies = model.language_model.model.rotary_emb.inv_freq
    turned = torch.cat([frequencies, frequencies])[:-1] * len(model.projector.positions)
    return torch.nonzero(turned < 0.7).flatten().tolist()


def test_no_weight_of_attention_begins_where_it_can_have_no_gradient(model):
    for block in model.language_model.model.layers:
        query, key = block.self_attn.q_proj.weight, block.self_attn.k_proj.weight
        assert ((query.abs().sum(1) + key.abs().sum(1)) > 0).all()


@pytest.mark.parametrize(("heads", "looking"), [(1, 1), (2, 1), (4, 2), (6, 4)])
def test_any_number_of_heads_will_do(heads, looking):
    model = started(num_attention_heads=heads, num_key_value_heads=heads)
    preferring = model.language_model.model.layers[0].self_attn.k_proj.weight[:, VISION]
    assert int((preferring.abs() > 0.5).sum()) == looking
