"""Before the first step, the heads of a text model from scratch find the tokens before, and what followed a token."""

import pytest
import torch
from helpers import tiny
from helpers.models import tiny_text
from helpers.models.heads import WORDS, attention

from vlm_agent.models.build import Vocabulary, build, build_tokenizer
from vlm_agent.recipe.model import ModelRecipe

WIDTH, HEADS = 192, 6
INDUCTION, MATCH = (0, 2), (1, 3)
"""Heads of six; the last attends one token back, the one before it two."""


def started_recipe(model_type: str = "llama", leading_spaces: bool = False, **config) -> ModelRecipe:
    """The network of recipes/comparison/text_chats_tiny.yaml; `config`: changes to its configuration."""
    shape = {
        "model_type": model_type,
        "hidden_size": WIDTH,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    parts = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "full")
    words = {"vocabulary": 1500, "leading_spaces": leading_spaces}
    return ModelRecipe(language_model={"config": shape | config}, word_tokenizer=words, train=parts)


def started(model_type: str = "llama", **config):
    recipe = started_recipe(model_type, **config)
    tokenizer = build_tokenizer(recipe, Vocabulary(tiny.LANGUAGE.vocabulary(), WORDS))
    torch.manual_seed(0)
    return build(recipe, tokenizer, tiny_text.LANGUAGE).eval()


@pytest.fixture(scope="module")
def model():
    return started()


def text(model, seed: int, length: int = 400) -> torch.Tensor:
    """int64 (length,): words that occur once, but for the last, which is also the word 100 tokens earlier."""
    drawn = torch.randperm(1200, generator=torch.Generator().manual_seed(seed))[:length]
    ids = model.config.vocab_size - 1 - drawn  # the last of the vocabulary are the words of the data
    ids[-1] = ids[-101]
    return ids


@torch.no_grad()
def attended(model, ids: torch.Tensor, layer: int) -> torch.Tensor:
    """float32 (heads, length): the attention of the last token in a layer."""
    hidden = model(input_ids=ids[None], output_hidden_states=True).hidden_states[layer]
    return attention(model.model, hidden, layer, len(ids) - 1)


def mean_attention(model, layer: int, heads: tuple[int, ...]) -> torch.Tensor:
    """float32 (heads, length), relative to equal attention to every token."""
    texts = [text(model, seed) for seed in range(20)]
    return torch.stack([attended(model, ids, layer)[list(heads)] for ids in texts]).mean(0) * len(texts[0])


def test_the_last_heads_attend_one_and_two_tokens_back(model):
    weights = attended(model, text(model, 0), 0)
    assert weights[-1, 398] > 0.9
    assert weights[-2, 397] > 0.9


def test_heads_of_the_first_layer_find_a_word_again(model):
    assert torch.all(mean_attention(model, 0, MATCH)[:, 299] > 50)


def test_heads_of_the_second_layer_find_what_followed_a_word_the_last_time(model):
    assert torch.all(mean_attention(model, 1, INDUCTION)[:, 300] > 5)


@pytest.mark.parametrize(
    "changes", [{"num_key_value_heads": 2}, {"tie_word_embeddings": True}, {"model_type": "qwen2"}]
)
def test_other_networks_start_as_transformers_initialises_them(changes):
    config = {name: value for name, value in changes.items() if name != "model_type"}
    model = started(changes.get("model_type", "llama"), **config)
    assert model.model.layers[0].self_attn.q_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_the_start_depends_on_the_seed_alone():
    one, other = started(), started()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_mistral_starts_with_the_same_heads():
    model = started("mistral", sliding_window=None)
    assert int(attended(model, text(model, 0), 0)[-1].argmax()) == 398


def test_a_word_with_its_leading_space_starts_like_the_word():
    recipe = started_recipe(leading_spaces=True)
    tokenizer = build_tokenizer(recipe, Vocabulary(tiny.LANGUAGE.vocabulary(), ["settings tap", "tap settings"]))
    table = build(recipe, tokenizer, tiny_text.LANGUAGE).get_input_embeddings().weight
    spaced, bare = (tokenizer(text, add_special_tokens=False).input_ids[-1] for text in (" settings", "settings"))
    other = tokenizer("tap", add_special_tokens=False).input_ids[-1]
    assert torch.cosine_similarity(table[spaced], table[bare], dim=0) > 0.85
    assert torch.cosine_similarity(table[spaced], table[other], dim=0) < 0.5
    assert table[spaced].std().item() == pytest.approx(table[bare].std().item(), rel=0.2)
