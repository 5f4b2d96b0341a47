"""One agent on several phones at once answers as it does on each alone, and reads only what is new."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.data.notes import ALL, lines, with_texts
from helpers.models import families
from torch import nn

from vlm_agent.agents import Asked, demonstrated
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import recorded_screen
from vlm_agent.models.decoding import ReadSentence
from vlm_agent.models.weights.precision import cast_linear_weights
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.sentences.windows import EarlierSteps

EPISODES = [with_texts(tiny.episode(number, tiny.ACTIONS[: 2 + number])) for number in range(3)]


def agent_of(name: str, **options) -> VlmAgent:
    family = families.family(name)
    return VlmAgent(family.model.eval(), family.words, family.sentences, **options)


def asked(number: int, episodes=EPISODES) -> list[Asked]:
    """Step `number` of every episode that has it."""
    longer = [episode for episode in episodes if number < len(episode)]
    return [Asked(one.goal, demonstrated(one, number), recorded_screen(one, number)) for one in longer]


def assert_same(agent, steps) -> None:
    together = agent.together()
    for step in steps:
        answers, expected = together.act(step), [agent.act(*one) for one in step]
        assert [one.text for one in answers] == [one.text for one in expected]
        assert [one.usage.tokens for one in answers] == [one.usage.tokens for one in expected]


@pytest.mark.parametrize("constrained", [False, True], ids=["free", "constrained"])
@pytest.mark.parametrize("name", families.NAMES)
def test_tokens_equal_those_of_each_phone_alone(name, constrained):
    assert_same(agent_of(name, constrained=constrained), map(asked, range(4)))


@pytest.mark.parametrize("control", CONTROLS)
def test_tokens_under_a_control_equal_those_of_each_phone_alone(control):
    assert_same(ControlledAgent(agent_of("llama_vit"), CONTROLS[control]), map(asked, range(4)))


@pytest.mark.parametrize("past", [None, EarlierSteps(0), EarlierSteps(1)], ids=str)
def test_tokens_with_notes_and_windows_equal_those_of_each_phone_alone(past):
    agent = agent_of("llama_vit")
    writer = replace(agent.sentences, past=past, notes=lines(ALL, max_tokens=20))
    assert_same(replace(agent, sentences=writer), map(asked, range(4)))


def test_a_phone_may_be_asked_again_or_leave_or_change_its_history():
    other = [tiny.episode(7)]
    steps = [asked(0), asked(0), asked(1), asked(1)[1:], asked(2), asked(2), asked(1), asked(3, other), asked(1)]
    assert_same(agent_of("llama_vit"), steps)
    changed = replace(EPISODES[2].steps[0], screenshot=EPISODES[2].steps[1].screenshot)
    episode = replace(EPISODES[2], steps=(changed, *EPISODES[2].steps[1:]))
    assert_same(agent_of("llama_vit"), [asked(3), asked(3, [episode])])  # the same tokens, another picture


@pytest.mark.parametrize("name", families.NAMES)
def test_only_new_tokens_are_read(name, monkeypatch):
    agent, lengths = agent_of(name), []
    together, plain = agent.together(), agent.decoder.read_on

    def read_on(parts, before):
        lengths.append([len(part) for part in parts])
        return plain(parts, before)

    monkeypatch.setattr(agent.decoder, "read_on", read_on)
    whole = []
    for number in range(4):
        lengths.clear()
        together.act(asked(number)[-1:])
        whole.append(len(agent.prompt(*asked(number)[-1]).sentence))
        if number:
            assert lengths[0][0] <= whole[-1] - whole[-2] + agent.limits.max_tokens
        assert all(length == [1] for length in lengths[1:])


def test_what_was_read_is_cut_before_a_screen_that_changed():
    agent, read = agent_of("llama_vit"), ReadSentence()
    sentence = agent.sentences.build(EPISODES[2])
    with torch.inference_mode():
        agent.decoder.read_on([sentence], [read])
    first = sentence.input_ids.index(SCREEN_TOKEN)
    screens = [np.zeros_like(sentence.screens[0]), *sentence.screens[1:]]
    rest = read.rest_of(replace(sentence, screens=screens))
    assert len(sentence) - len(rest) == len(read.ids) == len(read.positions) == first
    assert rest.screens == screens
    assert read.screens == []
    assert read.cache.get_seq_length() == first
    assert rest.input_ids == sentence.input_ids[first:]


def test_weights_that_were_cast_once_have_the_same_results_in_mixed_precision():
    agent = agent_of("llama_vit", bf16=True)
    agent = replace(agent, model=deepcopy(agent.model), decoder=None)
    sentences = [agent.sentences.build(episode) for episode in EPISODES]

    def logits():
        with torch.inference_mode(), agent.precision():
            return agent.decoder.prefill(sentences).logits(0)

    before, weight = logits(), agent.model.get_input_embeddings().weight
    cast_linear_weights(agent.model, torch.bfloat16)
    assert torch.equal(logits(), before)
    assert weight.dtype == torch.float32
    linear = [module for module in agent.model.modules() if type(module) is nn.Linear]
    assert {module.weight.dtype for module in linear} == {torch.bfloat16}
