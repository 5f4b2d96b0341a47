"""In every family, packed sentences have the losses and gradients of separate rows."""

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.models import families
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import DynamicLayer

from vlm_agent.errors import UserError
from vlm_agent.models import attention
from vlm_agent.models.attention import WITHIN_SEGMENTS, choose_attention, packed_options, within_segments
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.loss import supervise

EPISODES = [
    tiny.episode(0, tiny.ACTIONS[:2]),
    tiny.episode(1, tiny.ACTIONS[2:3], size=(50, 40)),
    tiny.episode(2, tiny.ACTIONS[1:4], size=(40, 64)),
]
every_family = pytest.mark.parametrize("name", families.NAMES)


@pytest.fixture(scope="module")
def adapted():
    """The family of a name, with adapters; one for the module, left in evaluation mode."""
    built_models = {}

    def get(name: str) -> families.Family:
        if name not in built_models:
            built_models[name] = families.adapted(name)
        return built_models[name]

    return get


def built(family: families.Family) -> list:
    return [family.sentences.build(episode) for episode in EPISODES]


def language_model(family: families.Family):
    model = family.model
    return (model.get_base_model() if hasattr(model, "get_base_model") else model).language_model


def block_diagonal(cu_seqlens: np.ndarray) -> torch.Tensor:
    """bool (1, 1, L, L): causal, and within sentences."""
    owner = torch.repeat_interleave(torch.arange(len(cu_seqlens) - 1), torch.from_numpy(np.diff(cu_seqlens)))
    return (owner[:, None] == owner).tril()[None, None]


def with_mask(family: families.Family, row: dict, mask: torch.Tensor):
    base = family.model.get_base_model()
    if isinstance(base, LlamaViT):
        return base(**row, attention_mask=mask)
    labels, _ = row.pop("labels"), row.pop("target_places")
    return supervise(base.read(**row, attention_mask=mask).last_hidden_state, labels, base.lm_head, None)


@every_family
def test_a_packed_row_has_the_loss_of_every_token_that_it_has_alone(name):
    family = families.family(name)
    sentences = built(family)
    with torch.inference_mode():
        packed = family.model(**family.row(*sentences))
        language_model(family).set_attn_implementation("sdpa")
        alone = [family.model(**family.row(sentence)) for sentence in sentences]
    assert torch.allclose(packed.token_losses, torch.cat([output.token_losses for output in alone]), atol=1e-5)
    assert packed.loss.item() == pytest.approx(packed.token_losses.mean().item(), rel=1e-6)
    assert torch.allclose(packed.logits, torch.cat([output.logits for output in alone]), atol=1e-5)


@every_family
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "activations recomputed"])
def test_a_packed_row_has_the_gradients_that_its_sentences_have_together(name, checkpointed, adapted):
    family = families.adapted(name) if checkpointed else adapted(name)
    sentences = built(family)
    total = sum(sentence.supervised for sentence in sentences)
    language_model(family).set_attn_implementation("sdpa")
    alone = [
        families.gradients(family.model, family.model(**family.row(sentence), num_items_in_batch=total).loss)
        for sentence in sentences
    ]
    language_model(family).set_attn_implementation(WITHIN_SEGMENTS)
    if checkpointed:
        family.model.activation_checkpointing_enable()
        family.model.train()
    packed = families.gradients(family.model, family.model(**family.row(*sentences)).loss)
    assert any("lora_A" in weight for weight in packed)
    assert packed.keys() == alone[0].keys()
    for weight in packed:
        assert torch.allclose(packed[weight], sum(one[weight] for one in alone), atol=1e-6, rtol=1e-4), weight
        assert packed[weight].abs().max() > 0, weight


@every_family
def test_a_block_diagonal_mask_computes_the_same(name, adapted):
    family = adapted(name)
    row = family.row(*built(family))
    packed = family.model(**row)
    gradients = families.gradients(family.model, packed.loss)
    language_model(family).set_attn_implementation("sdpa")
    masked = with_mask(family, row, block_diagonal(row.pop("cu_seqlens")))
    expected = families.gradients(family.model, masked.loss)
    language_model(family).set_attn_implementation(WITHIN_SEGMENTS)
    assert torch.allclose(packed.token_losses, masked.token_losses, atol=1e-5)
    for weight in gradients:
        # By the whole matrix: a single element may be the small difference of large ones, on one processor or another.
        apart = (gradients[weight] - expected[weight]).norm() / expected[weight].norm()
        assert apart < 5e-5, (weight, apart)


@every_family
def test_a_packed_row_without_bounds_computes_other_logits(name):
    """So the claims above are not vacuous: sentences that see each other have other losses."""
    family = families.shared(name)
    row = family.row(*built(family))
    with torch.inference_mode():
        packed, mixed = (family.model(**row | {"cu_seqlens": bounds}) for bounds in (row["cu_seqlens"], None))
    first = family.sentences.build(EPISODES[0]).supervised
    assert torch.allclose(packed.token_losses[:first], mixed.token_losses[:first], atol=1e-5)
    assert not torch.allclose(packed.token_losses[first:], mixed.token_losses[first:], atol=1e-3)


@every_family
def test_the_loss_of_each_action_is_the_same_in_the_whole_and_when_the_sentence_ends_there(name):
    family = families.shared(name)
    episode = tiny.episode(3)
    with torch.inference_mode():
        whole = family.model(**family.row(family.sentences.build(episode))).token_losses
        at = 0
        for number, step in enumerate(episode.steps):
            cut = family.sentences.build(episode, last=number + 1, first_supervised_step=number)
            losses = family.model(**family.row(cut)).token_losses
            assert len(losses) == len(tiny.action_ids(family.sentences, step.action))
            assert torch.allclose(losses, whole[at : at + len(losses)], atol=1e-5)
            at += len(losses)
    assert at == len(whole)


@every_family
def test_attention_that_would_mix_sentences_is_refused(name):
    family = families.family(name)
    language_model(family).set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="'sdpa' mixes packed sentences"):
        family.model(**family.row(*built(family)))
    assert packed_options(language_model(family), np.array([0, 9]), torch.device("cpu")) == {}


@every_family
def test_a_mask_of_padding_is_kept(name):
    """The mask of a batch as transformers' own `generate` makes it, padded on the left."""
    family = families.family(name)
    text = language_model(family)
    backbone = getattr(text, "model", text)
    ids = torch.tensor([[0, 0, 5, 6, 7], [8, 9, 5, 6, 7]])
    mask = (ids > 0).long()
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        padded = backbone(input_ids=ids, attention_mask=mask, position_ids=places).last_hidden_state
        alone = backbone(input_ids=ids[:1, 2:]).last_hidden_state
    assert torch.allclose(padded[:1, 2:], alone, atol=1e-5)


@pytest.mark.parametrize("autocast", [False, True])
def test_on_a_cpu_without_amx_bfloat16_attends_in_float32_also_under_autocast(autocast, monkeypatch):
    """PyTorch's bfloat16 kernel is slower there, and less exact."""
    monkeypatch.setattr(attention, "has_bf16", lambda: False)
    rng = torch.Generator().manual_seed(0)
    parts = [torch.randn(1, 2, 40, 16, generator=rng, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    bounds = attention.Bounds.on(torch.device("cpu"), np.array([0, 25, 40]))
    module = torch.nn.Module()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = within_segments(module, *parts, None, bounds)[0]
    exact = within_segments(module, *(part.detach().float() for part in parts), None, bounds)[0]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, exact.bfloat16())
    assert all(gradient.dtype == torch.bfloat16 for gradient in torch.autograd.grad(found.sum(), parts))


def test_several_tokens_behind_a_cache_need_a_mask():
    query, key = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 9, 4)
    with pytest.raises(ValueError, match="need a mask"):
        within_segments(torch.nn.Module(), query, key, key, None)
    mask = torch.ones(1, 1, 3, 9, dtype=torch.bool)
    assert within_segments(torch.nn.Module(), query, key, key, mask)[0].shape == (1, 3, 2, 4)


@every_family
def test_a_training_row_builds_no_cache(name, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("keys and values were copied into a cache")

    monkeypatch.setattr(DynamicLayer, "update", refuse)
    family = families.family(name)
    family.model.train()
    assert family.model(**family.row(*built(family))).loss.requires_grad


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, "a sliding window of 4096 tokens"),
        ({"model_type": "gemma2"}, "layers of sliding_attention"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}, "rope_type dynamic"),
        ({"model_type": "gemma2", "layer_types": ["full_attention"] * 2, "sliding_window": None}, "caps logits"),
    ],
)
def test_a_language_model_with_other_attention_is_refused(changes, reason):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**tiny.LLAMA | changes, vocab_size=8))
    with pytest.raises(UserError, match=reason):
        choose_attention(model, model)


def test_a_mistral_without_a_sliding_window_is_accepted():
    config = AutoConfig.for_model(**tiny.LLAMA | {"model_type": "mistral", "sliding_window": None}, vocab_size=8)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    choose_attention(model, model)
