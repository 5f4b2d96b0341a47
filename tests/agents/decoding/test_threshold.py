"""An agent with `complete_above` declares the end only with that probability, and is otherwise greedy."""

from dataclasses import replace
from itertools import chain

import pytest
import torch
from helpers import tiny
from helpers.models import families
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.decoding.threshold import CompleteThreshold
from vlm_agent.agents.loading import agent_settings
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Action
from vlm_agent.errors import UserError

COMPLETE = [3, 1]
LOGITS = st.lists(st.floats(-9, 9, width=32), min_size=5, max_size=5, unique=True).map(torch.tensor)


@given(LOGITS, st.lists(st.integers(0, 4), max_size=3), st.floats(0.01, 1))
def test_another_token_is_chosen_only_where_an_unlikely_complete_would_be_written(logits, tokens, least):
    best = int(logits.argmax())
    chosen = CompleteThreshold(COMPLETE, least)(tokens, best, lambda: logits)
    writes_complete = [*tokens, best] in (COMPLETE[:1], COMPLETE)
    if writes_complete and logits.softmax(-1)[best] < least:
        assert chosen == int(logits.argsort()[-2])
    else:
        assert chosen == best


def test_an_answer_that_only_begins_like_complete_does_not_compute_probabilities():
    assert CompleteThreshold(COMPLETE, 1.0)([3], 2, pytest.fail) == 2


@pytest.fixture(scope="module")
def completing():
    """An agent whose model has begun to learn the end of three short episodes."""
    family = families.family("llama_vit")
    episodes = [tiny.episode(number, (Action.tap(0.5, 0.5), Action.complete())) for number in range(3)]
    families.fit(family.model.train(), family.row(*map(family.sentences.build, episodes)), 25)
    return VlmAgent(family.model.eval(), family.words, family.sentences), episodes


@pytest.mark.parametrize("least", [0.3, 0.7, 1.0])
def test_batched_answers_are_those_of_single_steps_and_complete_is_rarer(completing, least):
    greedy, episodes = completing
    agent = replace(greedy, complete_above=least)
    batched = agent.answer_episodes(episodes)
    stepwise = answer_step_by_step(agent, episodes)
    assert [one.text for one in chain(*batched)] == [one.text for one in chain(*stepwise)]
    free, certain = (
        sum(one.action == Action.complete() for one in chain(*answers))
        for answers in (greedy.answer_episodes(episodes), batched)
    )
    assert free > 0 and certain <= free and (least < 1 or certain == 0)


@pytest.mark.parametrize("other", [{"constrained": True}, {"temperature": 1.0}])
def test_only_one_setting_chooses_tokens(other):
    with pytest.raises(UserError, match=r"complete_above and .* exclude each other"):
        agent_settings("phone_vlm_tiny", overrides={"complete_above": 0.8, **other})


def test_the_setting_changes_the_identity_of_the_agent():
    plain, certain = (agent_settings("phone_vlm_tiny", overrides={"complete_above": least}) for least in (0.0, 0.8))
    assert "complete_above" not in plain.identity()
    assert certain.identity() == plain.identity() | {"complete_above": 0.8}
    assert certain.load().complete_above == 0.8
