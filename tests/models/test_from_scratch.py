"""Before the first step, a model from scratch looks where it is to: at the screen, and a token or two back."""

import pytest
import tiny
import torch
from transformers import AutoConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from vlm_agent.models.from_scratch import _initialise_layer

HEADS, WIDTH, LENGTH = 6, 32, 40
TEXT, VISION = 0, 1
"""The dimensions that mark each."""


@pytest.fixture(scope="module")
def language_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return started(HEADS)


def started(heads: int) -> LlamaForCausalLM:
    """One layer of so many heads, as it starts."""
    sizes = {"hidden_size": heads * WIDTH, "num_hidden_layers": 1, "vocab_size": 10, "rope_theta": 1e6}
    counts = {"num_attention_heads": heads, "num_key_value_heads": heads}
    model = LlamaForCausalLM(AutoConfig.for_model(**tiny.LLAMA | sizes | counts))
    with torch.no_grad():
        _initialise_layer(model.model.layers[0], heads, model.model.rotary_emb.inv_freq)
    return model


def attention(model: LlamaForCausalLM, marks: list[int], at: int) -> torch.Tensor:
    """float32 (HEADS, at + 1): where a token `at` looks, of random tokens each marked as text or vision."""
    torch.manual_seed(1)
    hidden = torch.randn(1, len(marks), HEADS * WIDTH)
    hidden[..., [TEXT, VISION]] = 0
    hidden[0, torch.arange(len(marks)), torch.tensor(marks)] = 4.0
    places = model.model.rotary_emb(hidden, torch.arange(len(marks))[None])
    layer = model.model.layers[0].self_attn
    sides = [side(hidden).view(1, len(marks), HEADS, WIDTH).transpose(1, 2) for side in (layer.q_proj, layer.k_proj)]
    query, key = apply_rotary_pos_emb(*sides, *places)
    with torch.no_grad():
        return ((query[0, :, at, None] * key[0, :, : at + 1]).sum(-1) / WIDTH**0.5).softmax(-1)


@pytest.mark.parametrize(("head", "back"), [(5, 1), (4, 2)])
@pytest.mark.parametrize("at", [5, 17, LENGTH - 1])
def test_the_last_heads_look_one_and_two_tokens_back_whatever_stands_there(language_model, head, back, at):
    looks = attention(language_model, [TEXT] * LENGTH, at)[head]
    assert int(looks.argmax()) == at - back
    assert looks.max() > 0.9


def test_the_other_heads_prefer_the_screen_to_text(language_model):
    marks = [VISION] * 20 + [TEXT] * 20
    looks = attention(language_model, marks, LENGTH - 1)
    on_screen = looks[:, :20].sum(-1)
    assert (on_screen[:4] > 0.8).all()
    assert (on_screen[4:] < 0.05).all()


@pytest.mark.parametrize(("heads", "looking"), [(1, 1), (2, 1), (4, 2), (6, 4)])
def test_any_number_of_heads_will_do(heads, looking):
    preferring = started(heads).model.layers[0].self_attn.k_proj.weight[:, VISION]
    assert int((preferring != 0).sum()) == looking
