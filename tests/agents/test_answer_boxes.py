"""Agents with a local model return the box that an answer chooses, whether they answer in batches or step by step."""

from dataclasses import replace

import pytest
import torch
from helpers import tiny
from helpers.models import families
from helpers.runs import auto_ui_run

from vlm_agent.action_languages.element_index import ElementIndexLanguage
from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.auto_ui.agent import AutoUiAgent
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Action
from vlm_agent.models.word_tokenizer import build_word_tokenizer

LANGUAGE = ElementIndexLanguage()
EPISODES = [tiny.episode(0), tiny.episode(1, (Action.tap(0.6, 0.5), Action.press("home")))]
CHOSEN = tiny.ELEMENTS[0].box
"""The element nearest to the tap of step 0."""


@pytest.fixture(scope="module")
def vlm() -> VlmAgent:
    """Trained until it writes the actions of the first episode."""
    words = build_word_tokenizer([one.goal for one in EPISODES], LANGUAGE.vocabulary(), 1000)
    torch.manual_seed(0)
    model, processor = tiny.model(len(words)).train(), families.shared("llama_vit").processor
    sentences = replace(tiny.sentences(words), language=LANGUAGE)
    sentence = sentences.build(EPISODES[0], with_unwritable=True)
    row = {name: value for name, value in processor.collate([sentence]).items() if name not in families.NOT_FOR_MODELS}
    families.fit(model, row, 40)
    return VlmAgent(model.eval(), words, sentences)


def test_a_trajectory_model_names_the_box_in_batches_as_step_by_step(vlm):
    batched, alone = vlm.answer_episodes(EPISODES), answer_step_by_step(vlm, EPISODES)
    assert batched == alone
    answer = batched[0][0]
    assert answer.text == '{"action_type": "click", "idx": 0}'
    assert answer.box == CHOSEN
    assert [one.box for one in batched[0][1:]] == [None] * 4


def test_a_step_model_names_the_box_in_batches_as_step_by_step(tmp_path, monkeypatch):
    auto_ui_run.register(monkeypatch)
    agent = AutoUiAgent.from_run(auto_ui_run.write_run(tmp_path / "run"))
    agent = replace(agent, sentences=replace(agent.sentences, language=LANGUAGE))
    monkeypatch.setattr(type(agent.sentences), "text", lambda *_: '{"action_type": "click", "idx": 0}')
    batched, alone = agent.answer_episodes(EPISODES), answer_step_by_step(agent, EPISODES)
    assert batched == alone
    assert {answer.box for answers in batched for answer in answers} == {CHOSEN}
