"""Agents of runs with `data.past_screens`: batched answers are those of each step alone, under controls too."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.data.notes import ALL, lines, with_texts
from helpers.models import families
from helpers.runs import served_qwen

from vlm_agent.agents import answer_step_by_step, demonstrated
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import recorded_screen
from vlm_agent.models.build import load_sentences
from vlm_agent.models.run_layout import MODEL_FOLDER
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.sentences.windows import EarlierSteps

WORDS = tiny.tokenizer()
EPISODES = [with_texts(tiny.episode(0)), with_texts(tiny.episode(1, tiny.ACTIONS[::-1]))]


@pytest.fixture(scope="module")
def model():
    """Trained on the steps of one episode, so that some of its answers agree with the demonstration."""
    family = families.family("llama_vit")
    model = family.model.train()
    writer = replace(family.sentences, past=EarlierSteps(1))
    batch = family.row(*(writer.build_step(EPISODES[0], number) for number in range(len(EPISODES[0]))))
    families.fit(model, batch, 40)
    return model.eval()


def agent(model, past: EarlierSteps, with_notes: bool = False, **options) -> VlmAgent:
    changed = {"notes": lines(ALL, max_tokens=20)} if with_notes else {}
    return VlmAgent(model, WORDS, replace(tiny.sentences(WORDS), past=past, **changed), **options)


@pytest.mark.parametrize("control", [None, "no_history", "grey_screens"])
@pytest.mark.parametrize("past", [EarlierSteps(0), EarlierSteps(0, 0), EarlierSteps(1), EarlierSteps(2, 1)], ids=str)
def test_batched_steps_answer_as_each_step_alone(model, past, control):
    for with_notes in (False, True):
        one = agent(model, past, with_notes)
        controlled = one if control is None else ControlledAgent(one, CONTROLS[control])
        assert controlled.answer_episodes(EPISODES) == answer_step_by_step(controlled, EPISODES)


def test_a_trained_agent_answers_each_step(model):
    (answers,) = agent(model, EarlierSteps(1)).answer_episodes(EPISODES[:1])
    assert [answer.action for answer in answers] == [step.action for step in EPISODES[0].steps]
    assert all(answer.usage.from_prefill for answer in answers)


def test_constrained_steps_are_actions_and_equal_each_step_alone(model):
    one = agent(model, EarlierSteps(1), constrained=True)
    constrained = one.answer_episodes(EPISODES)
    assert constrained == answer_step_by_step(one, EPISODES)
    assert all(answer.action is not None for answers in constrained for answer in answers)


def test_screens_before_the_last_ones_change_nothing(model):
    one, episode = agent(model, EarlierSteps(1)), EPISODES[0]
    last = len(episode) - 1
    hidden = [
        replace(step, screenshot=np.zeros_like(step.screenshot)) if n < last - 1 else step
        for n, step in enumerate(episode.steps)
    ]
    usual, changed = (one.answer_episodes([each])[0][last] for each in (episode, replace(episode, steps=tuple(hidden))))
    assert usual == changed


def test_the_tokens_read_do_not_grow_with_screens(model):
    few, many = (agent(model, EarlierSteps(screens)).answer_episodes([EPISODES[0]])[0] for screens in (0, 9))
    for number, (one, other) in enumerate(zip(few, many, strict=True)):
        assert (one.usage.tokens_read < other.usage.tokens_read) == (number > 0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return served_qwen.write_merged_run(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("past", [EarlierSteps(0), EarlierSteps(2, 1)], ids=str)
def test_a_servers_prompt_has_the_tokens_of_training(run, past):
    server = served_qwen.Server(run.parent / "merged" / MODEL_FOLDER)
    sentences = load_sentences(run, tiny.LANGUAGE, DataRecipe(past_screens=past.screens, history=past.words))
    episode, image = served_qwen.EPISODES[1], server.model.config.image_token_id
    for number in range(len(episode)):
        history, screen = demonstrated(episode, number), recorded_screen(episode, number)
        messages = trained_messages(sentences, episode.goal, history, screen)
        theirs = server.inputs(messages)["input_ids"][0].tolist()
        ours = sentences.prompt(replace(episode, steps=episode.steps[: number + 1])).input_ids
        assert [SCREEN_TOKEN if id_ == image else id_ for id_ in theirs] == ours
