"""One forward pass over an episode says what an agent says step by step, token for token."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.agents import vlm
from vlm_agent.agents.vlm import VlmAgent
from vlm_agent.episodes import Action
from vlm_agent.training.data import collate

WORDS = tiny.tokenizer()
EPISODES = [tiny.episode(number) for number in range(3)]


def make_agent(model, grey: bool = False, remember: bool = True) -> VlmAgent:
    return VlmAgent(model, WORDS, tiny.sentences(WORDS, grey), remember)


def trained(steps: int):
    """A model that has seen the first episode so often that it agrees with some of it."""
    model = tiny.model(len(WORDS)).train()
    batch = collate([tiny.sentences(WORDS).build(EPISODES[0])])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return model.eval()


MODELS = {"random": 0, "half trained": 25, "trained": 60}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return trained(MODELS[request.param])


def step_by_step(agent: VlmAgent, episode) -> list:
    return [
        agent.act(episode.goal, episode.steps[:number], step.screenshot) for number, step in enumerate(episode.steps)
    ]


def said_ids(agent: VlmAgent, monkeypatch, speak) -> tuple[list, list]:
    """The answers of `speak`, and the token ids behind each."""
    ids = []
    plain = VlmAgent._answer
    monkeypatch.setattr(VlmAgent, "_answer", lambda self, said: (ids.append(list(said)), plain(self, said))[1])
    answers = speak(agent)
    monkeypatch.undo()
    return answers, ids


@pytest.mark.parametrize("remember", [True, False])
@pytest.mark.parametrize("number", range(len(EPISODES)))
def test_the_whole_episode_at_once_is_the_same_tokens_as_step_by_step(model, number, remember, monkeypatch):
    agent, episode = make_agent(model, remember=remember), EPISODES[number]
    at_once, ids_at_once = said_ids(agent, monkeypatch, lambda agent: agent.answer_episode(episode))
    stepwise, ids_stepwise = said_ids(agent, monkeypatch, lambda agent: step_by_step(agent, episode))
    assert at_once == stepwise
    assert (ids_at_once[::-1] if remember else ids_at_once) == ids_stepwise


def test_both_kinds_of_step_occur():
    """The test above means something: some of its answers agree with the demonstration and some leave it."""
    agreeing = [
        answer.action is not None and answer.text == tiny.LANGUAGE.render(step.action)
        for steps in MODELS.values()
        for answer, step in zip(make_agent(trained(steps)).answer_episode(EPISODES[0]), EPISODES[0].steps, strict=True)
    ]
    assert any(agreeing)
    assert not all(agreeing)
    assert all(agreeing[-len(EPISODES[0]) :]), "60 steps are enough to learn five actions by heart"


def test_one_forward_pass_reads_the_screens(model, monkeypatch):
    calls = []
    see = type(model).see
    monkeypatch.setattr(type(model), "see", lambda self, screens: (calls.append(len(screens)), see(self, screens))[1])
    make_agent(model).answer_episode(EPISODES[0])
    assert calls == [len(EPISODES[0])]


def test_an_answer_is_cut_off_and_means_nothing(monkeypatch):
    """Cut off in the middle of a word it would never end, an answer is wrong; it is no exception."""
    model, long_text = tiny.model(len(WORDS)), "q" * 40
    monkeypatch.setattr(vlm, "MAX_ACTION_TOKENS", 12)
    forever = WORDS.convert_tokens_to_ids("q")
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
        model.language_model.model.norm.weight.zero_()
        model.get_output_embeddings().bias = torch.nn.Parameter(torch.zeros(len(WORDS)))
        model.get_output_embeddings().bias[forever] = 1.0
    agent = make_agent(model)
    for answer in [*agent.answer_episode(EPISODES[0]), *step_by_step(agent, EPISODES[0])]:
        assert answer.action is None
        assert answer.text == "q" * 12
    steps = (replace(EPISODES[0].steps[0], action=Action.type_text(long_text)),)
    assert agent.answer_episode(replace(EPISODES[0], steps=steps))[0].action is None


def test_a_demonstrated_action_that_is_too_long_to_say_is_cut_off_alike(monkeypatch):
    """Agreeing token by token with twenty-six letters does not let an agent say more than it may."""
    steps = tuple(
        replace(step, action=Action.type_text("abcdefghijklmnopqrstuvwxyz")) for step in EPISODES[0].steps[:2]
    )
    episode = replace(EPISODES[0], steps=steps)
    model = tiny.model(len(WORDS)).train()
    batch = collate([tiny.sentences(WORDS).build(episode)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    agent = make_agent(model.eval())
    assert agent.answer_episode(episode)[0].action == steps[0].action
    monkeypatch.setattr(vlm, "MAX_ACTION_TOKENS", 12)
    assert agent.answer_episode(episode) == step_by_step(agent, episode)
    assert agent.answer_episode(episode)[0].action is None


def test_the_bound_holds_every_ordinary_action():
    text = BinnedLanguage(1000).render(Action.type_text("what is the weather like in São Paulo tomorrow morning?"))
    assert len(WORDS(text).input_ids) < vlm.MAX_ACTION_TOKENS


def test_a_blind_agent_says_the_same_on_any_screen(model):
    agent = make_agent(model, grey=True)
    white = np.full((*tiny.SCREEN, 3), 255, np.uint8)
    other = replace(EPISODES[0], steps=tuple(replace(step, screenshot=white) for step in EPISODES[0].steps))
    assert agent.answer_episode(EPISODES[0]) == agent.answer_episode(other)


def test_without_history_what_came_before_changes_nothing(model):
    agent = make_agent(model, remember=False)
    step = EPISODES[0].steps[2]
    alone = agent.act(EPISODES[0].goal, (), step.screenshot)
    assert agent.act(EPISODES[0].goal, EPISODES[1].steps, step.screenshot) == alone
    assert agent.answer_episode(EPISODES[0])[2] == alone


def test_screens_of_any_size_are_read(model):
    agent = make_agent(model)
    assert len(agent.answer_episode(tiny.episode(5, size=(120, 54)))) == len(tiny.ACTIONS)


def test_mixed_precision_answers_every_step(model):
    agent = replace(make_agent(model), bf16=True)
    assert len(agent.answer_episode(EPISODES[0])) == len(EPISODES[0])


def test_the_agent_can_be_imported_first():
    # peft and parts of transformers cannot be, on a CPU build of torch: see models/torchvision_on_cpu.py.
    assert subprocess.run([sys.executable, "-c", "import vlm_agent.agents.vlm"], check=False).returncode == 0
