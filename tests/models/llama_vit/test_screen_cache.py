"""A screen is encoded once, and the outputs do not change."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import tiny

from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.models.llama_vit.family import ScreenCache
from vlm_agent.sentences.windows import EarlierSteps

WORDS = tiny.tokenizer()
SCREENS = [step.screenshot.transpose(2, 0, 1).copy() for step in tiny.episode().steps]


@pytest.fixture
def model():
    return tiny.model(len(WORDS), visual_norm=0.7, visual_positions=True)


@pytest.fixture
def looked(model, monkeypatch) -> list[int]:
    """How many screens each call of the encoder was for."""
    calls, see = [], model.see
    monkeypatch.setattr(model, "see", lambda screens: calls.append(len(screens)) or see(screens))
    return calls


def test_cached_screen_embeddings_equal_those_of_the_model(model):
    with torch.inference_mode():
        assert torch.equal(ScreenCache(model)(SCREENS), model.see(torch.from_numpy(np.stack(SCREENS)))[1])


def test_a_screen_is_encoded_once(model, looked):
    seen = ScreenCache(model)
    with torch.inference_mode():
        first = seen(SCREENS[:3])
        again = seen([SCREENS[2], SCREENS[3], SCREENS[0], SCREENS[0]])
    assert sum(looked) == 4
    assert torch.equal(again[0], first[2])
    assert torch.equal(again[2], first[0])
    assert torch.equal(again[3], first[0])


def test_a_gpu_encodes_all_new_screens_together(monkeypatch):
    calls = []

    def see(screens):
        calls.append(len(screens))
        return None, torch.zeros(len(screens), 2, 4)

    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device: tensor)
    seen = ScreenCache(SimpleNamespace(device=SimpleNamespace(type="cuda"), see=see))
    seen(SCREENS[:2])
    assert seen([*SCREENS[:2], *SCREENS[:4]]).shape == (6, 2, 4)
    seen(SCREENS[:4])
    assert calls == [2, 2]


def test_mixed_precision_has_its_own_cache_entry(model, looked):
    seen = ScreenCache(model)
    with torch.inference_mode():
        seen(SCREENS[:1])
        with torch.autocast("cpu", torch.bfloat16):
            seen(SCREENS[:1])
        seen(SCREENS[:1])
    assert sum(looked) == 2


def test_only_the_latest_are_kept(model, looked):
    with torch.inference_mode():
        of_one = ScreenCache(model)(SCREENS[:1]).nbytes
        looked.clear()
        seen = ScreenCache(model, kept_bytes=2 * of_one)
        for number in (0, 1, 0, 2, 0, 1):
            seen(SCREENS[number : number + 1])
    assert sum(looked) == 4, "0, 1, 2, and 1 again, which had to go for 2"


def test_more_screens_than_are_kept_can_be_asked_for(model):
    with torch.inference_mode():
        assert len(ScreenCache(model, kept_bytes=1)(SCREENS)) == len(SCREENS)


def test_controls_use_the_screens_that_the_agent_encoded(model, looked):
    agent = VlmAgent(model, WORDS, tiny.sentences(WORDS))
    episode = tiny.episode()
    agent.answer_episodes([episode])[0]
    assert sum(looked) == len(episode)
    ControlledAgent(agent, CONTROLS["no_history"]).answer_episodes([episode])
    replace(agent, constrained=True).answer_episodes([episode])[0]
    assert sum(looked) == len(episode)
    ControlledAgent(agent, CONTROLS["grey_screens"]).answer_episodes([episode])
    assert sum(looked) == len(episode) + 1


def test_an_acting_agent_encodes_only_new_screens(model, looked):
    agent, episode = VlmAgent(model, WORDS, tiny.sentences(WORDS)), tiny.episode()
    answer_step_by_step(agent, [episode])
    assert sum(looked) == len(episode)


@pytest.mark.parametrize("past", [0, 1, 3])
def test_with_past_screens_each_screen_of_an_episode_is_encoded_once(model, looked, past):
    """Its sentences have every screen up to `past` + 1 times."""
    sentences = replace(tiny.sentences(WORDS), past=EarlierSteps(past))
    episode = tiny.episode()
    copies = sum(len(sentence.screens) for sentence in sentences.sentences_of(episode))
    assert copies == sum(min(number, past) + 1 for number in range(len(episode)))
    answers = VlmAgent(model, WORDS, sentences).answer_episodes([episode])[0]
    assert sum(looked) == len(episode)
    assert [answers] == answer_step_by_step(VlmAgent(model, WORDS, sentences), [episode])
