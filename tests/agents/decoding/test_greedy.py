"""Decoding after the prefill: a prefill without masks, steps of equal shapes, and steps that can be replayed."""

from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.hardware import recorded_graph
from helpers.models import families
from torch.nn import functional
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.models import attention
from vlm_agent.models.attention import within_segments

EPISODES = [tiny.episode(number, tiny.ACTIONS[: 2 + number]) for number in range(3)]
every_family = pytest.mark.parametrize("name", families.NAMES)


def agent_of(name: str) -> VlmAgent:
    family = families.family(name)
    return VlmAgent(family.model.eval(), family.words, family.sentences, batch_tokens=1 << 20)


@every_family
def test_the_prefill_attends_within_sentences_without_a_mask(name, monkeypatch):
    agent, masks = agent_of(name), []
    plain = functional.scaled_dot_product_attention

    def attend(*tensors, attn_mask=None, **options):
        masks.append(attn_mask)
        return plain(*tensors, attn_mask=attn_mask, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    with torch.inference_mode():
        prefill = agent.decoder.prefill([agent.sentences.build(episode) for episode in EPISODES])
    assert masks
    assert all(mask is None for mask in masks)
    assert prefill.cache.layers[0].keys.shape[0] == 1  # one row


@every_family
def test_the_prefill_of_several_sentences_equals_that_of_each(name):
    agent = agent_of(name)
    sentences = [agent.sentences.build(episode) for episode in EPISODES]
    with torch.inference_mode():
        together = agent.decoder.prefill(sentences)
        alone = [agent.decoder.prefill([sentence]) for sentence in sentences]
        logits = torch.stack([together.logits(index) for index in range(len(together.best))])
        expected = [one.logits(index) for one in alone for index in range(len(one.best))]
    assert together.best == [token for one in alone for token in one.best]
    assert [*together.positions] == [position for one in alone for position in one.positions]
    torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-4, atol=1e-5)


@every_family
def test_steps_have_the_shapes_of_the_first_until_most_answers_are_finished(name, monkeypatch):
    agent, shapes = agent_of(name), []
    step = agent.decoder.step

    def stepped(ids, positions, mask, cache):
        shapes.append((tuple(ids.shape), tuple(mask.shape), cache.layers[0].keys.data_ptr()))
        return step(ids, positions, mask, cache)

    monkeypatch.setattr(agent.decoder, "step", stepped)
    answers = [answer for episode in agent.answer_episodes(EPISODES) for answer in episode]
    caches = len(set(shapes))
    assert len(shapes) > 10
    assert caches <= 3  # 9 answers, then at most 2
    assert not any(answer.usage.from_prefill for answer in answers)


@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
@every_family
def test_replayed_steps_have_the_tokens_of_step_by_step(name, constrained, monkeypatch):
    agent = replace(agent_of(name), constrained=constrained)
    expected = [[answer.text for answer in answers] for answers in answer_step_by_step(agent, EPISODES)]
    graphs = recorded_graph.install(monkeypatch)
    found = [[answer.text for answer in answers] for answers in agent.answer_episodes(EPISODES)]
    assert found == expected
    assert constrained or sum(graph.replays for graph in graphs) > 5  # constrained answers may end in two steps


def test_a_capture_that_fails_is_logged_once_and_the_tokens_stay(monkeypatch, caplog):
    agent = agent_of("qwen2_5_vl")
    expected = [[answer.text for answer in answers] for answers in answer_step_by_step(agent, EPISODES)]
    graphs = recorded_graph.install(monkeypatch)

    def fail(graph):
        graph.__exit__(None, None, None)
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture\nmore")

    monkeypatch.setattr(recorded_graph.RecordedGraph, "capture_end", fail)
    found = [[answer.text for answer in answers] for answers in agent.answer_episodes(EPISODES)]
    assert found == expected
    assert len(graphs) == 1
    assert caplog.messages == [
        "decoding runs without CUDA graphs, which is several times slower: CUDA error: operation failed due to a "
        "previous error during capture"
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_behind_a_cache_share_key_heads_without_repeating_the_cache(dtype, monkeypatch):
    torch.manual_seed(0)
    query = torch.randn(2, 6, 3, 8, dtype=dtype)
    key, value = torch.randn(2, 2, 2, 11, 8, dtype=dtype)
    mask = torch.rand(2, 1, 3, 11) < 0.5
    mask[..., 0] = True
    module = torch.nn.Module()
    module.num_key_value_groups = 3
    expected, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.3)
    monkeypatch.setattr(attention, "sdpa_attention_forward", None)
    found, _ = within_segments(module, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(found, expected)
