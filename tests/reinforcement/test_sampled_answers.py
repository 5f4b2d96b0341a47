"""The learner scores exactly the tokens that were sampled, after exactly what the agent read."""

import random
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from helpers import tiny
from helpers.models import families

from vlm_agent.agents import Asked, Turn
from vlm_agent.agents.decoding.sampling import SampledAnswer, Sampling
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import recorded_screen
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.reinforcement.rollouts import RecordedAnswer
from vlm_agent.reinforcement.sentences import Scored, collated, dealt, scored
from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.image_sizes import CachedScreens

TEMPERATURE = 0.7
EPISODES = [tiny.episode(number) for number in range(3)]


def agent_of(name: str) -> VlmAgent:
    family = families.family(name)
    sentences = replace(family.sentences, screens=CachedScreens(family.sentences.screens))
    return VlmAgent(family.model.eval(), family.words, sentences)


def played(agent: VlmAgent, apart: bool = False) -> list[Scored]:
    """The sentences of three phones that show recorded screens and perform the recorded actions. `apart`: a sentence
    for each answer."""
    sampling = Sampling(TEMPERATURE, "seed")
    together = replace(agent, sampling=sampling).together()
    histories: dict[str, list[Turn]] = {episode.id: [] for episode in EPISODES}
    prompts: dict[str, list[Sentence]] = {episode.id: [] for episode in EPISODES}
    for step in range(3):
        asked = [Asked(one.goal, tuple(histories[one.id]), recorded_screen(one, step)) for one in EPISODES]
        for episode, question, answer in zip(EPISODES, asked, together.act(asked), strict=True):
            prompts[episode.id].append(agent.prompt(*question).sentence)
            histories[episode.id].append(Turn(question.screen, answer, episode.steps[step].action))
    found = []
    for episode in EPISODES:
        drawn = [sampling.answers[episode.id, step] for step in range(3)]
        answers = [RecordedAnswer(one.ids, one.log_probabilities, fmean(one.entropies), "") for one in drawn]
        rows = list(zip(prompts[episode.id], answers, [NO_ACTION] * 3, [1.0, -1.0, 0.5], strict=True))
        for part in [[row] for row in rows] if apart else [rows]:
            found += scored(*zip(*part, strict=True))
    return found


def learned(agent: VlmAgent, row: list[Scored], bf16: bool = False) -> torch.Tensor:
    """The log-probabilities of the learner for the sampled tokens of a row."""
    batch = collated(row, families.processor_of(agent.model.config), TEMPERATURE, (0.2, 0.28))
    inputs = {name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        return -agent.model(**inputs).token_losses


def drawn_in(row: list[Scored]) -> torch.Tensor:
    return torch.tensor(
        [
            value
            for one in row
            for value, label in zip(one.log_probabilities, one.sentence.labels, strict=True)
            if label != IGNORED
        ]
    )


@pytest.mark.parametrize("name", families.NAMES)
def test_learner_and_sampler_agree_in_float32(name):
    agent = agent_of(name)
    row = played(agent)
    assert (learned(agent, row) - drawn_in(row)).abs().mean() <= 1e-4
    assert drawn_in(row).numel() == sum(one.sentence.supervised for one in row) > 40


def test_learner_and_sampler_agree_in_bfloat16():
    agent = replace(agent_of("llama_vit"), bf16=True)
    row = played(agent)
    assert (learned(agent, row, bf16=True) - drawn_in(row)).abs().mean() <= 0.02


def sentence_of(ids, prompt=()) -> Sentence:
    sentence = Sentence()
    sentence.read([*prompt, *ids])
    return sentence


@pytest.mark.parametrize("name", families.NAMES)
def test_branches_have_the_loss_and_gradients_of_sentences_of_their_own(name):
    agent = agent_of(name)
    rows = [played(agent), played(agent, apart=True)]
    assert any(one.sentence.branches for one in rows[0])
    assert sum(len(one.sentence) for one in rows[0]) < sum(len(one.sentence) for one in rows[1])
    batches = [collated(row, families.processor_of(agent.model.config), TEMPERATURE, (0.2, 0.28)) for row in rows]
    (loss, found), (expected_loss, expected) = (loss_and_gradients(agent.model, batch) for batch in batches)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert found.keys() == expected.keys()
    largest = max(gradient.abs().max() for gradient in expected.values())
    assert max((found[name] - expected[name]).abs().max() for name in found) < 1e-5 * largest


def loss_and_gradients(model: torch.nn.Module, batch: dict) -> tuple[float, dict[str, torch.Tensor]]:
    loss = model(**{name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}).loss
    return loss.item(), families.gradients(model, loss)


ANSWERS = [RecordedAnswer([id_], [-float(id_)], 0.0, "") for id_ in (7, 8, 5)]


def test_an_answer_that_the_history_repeats_is_scored_inside_it_and_every_other_one_as_a_branch():
    prompts = [sentence_of([1]), sentence_of([1, 7, 2]), sentence_of([1, 7, 2, 9, 3])]
    (trunk,) = scored(prompts, ANSWERS, [0, 1, 2], [0.1, 0.2, 0.3])
    assert trunk.sentence.input_ids == [1, 7, 2, 9, 3, 5, 2, 8]
    assert trunk.sentence.positions() == [0, 1, 2, 3, 4, 5, 2, 3]
    assert trunk.sentence.labels == [IGNORED, 7, *[IGNORED] * 3, 5, IGNORED, 8]
    assert trunk.advantages == [0, 0.1, 0, 0, 0, 0.3, 0, 0.2]
    assert trunk.log_probabilities[7] == -8
    assert [trunk.sentence.kinds[place] for place in (1, 5, 7)] == [0, 2, 1]
    assert (trunk.sentence.branches, trunk.sentence.prefix(6).branches) == ([(6, 2)], [])


def test_an_answer_to_what_the_last_prompt_no_longer_holds_ends_a_sentence_of_its_own():
    prompts = [sentence_of([1]), sentence_of([1, 7, 2]), sentence_of([4, 2, 9, 3])]
    trunk, *own = scored(prompts, ANSWERS, [0, 1, 2], [0.1, 0.2, 0.3])
    assert trunk.sentence.input_ids == [4, 2, 9, 3, 5]
    assert [one.sentence.input_ids for one in own] == [[1, 7], [1, 7, 2, 8]]
    assert own[1].sentence.labels == [IGNORED] * 3 + [8]
    assert own[1].advantages == [0, 0, 0, 0.2]


def test_a_sampled_token_depends_on_seed_episode_and_step_alone():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))

    def draw(episode: str, step: int) -> list[int]:
        choice = Sampling(1.0, "0/1").of_step(episode, step)
        return [choice([], 0, lambda: logits) for _ in range(8)]

    assert draw("a", 0) == draw("a", 0)
    assert len({tuple(draw(episode, step)) for episode in "ab" for step in range(3)}) == 6


def test_tokens_are_drawn_with_their_probabilities_at_the_temperature():
    logits, counts = torch.tensor([1.0, 0.0, -1.0]), [0, 0, 0]
    choice = SampledAnswer(0.5, random.Random(0))
    for _ in range(4000):
        counts[choice([], 0, lambda: logits)] += 1
    expected = torch.softmax(logits / 0.5, -1)
    assert [count / 4000 for count in counts] == pytest.approx(expected.tolist(), abs=0.03)
    assert choice.log_probabilities[0] == pytest.approx(float(expected.log()[choice.ids[0]]))
    assert choice.entropies[0] == pytest.approx(float(-(expected * expected.log()).sum()))


def test_rows_hold_every_sentence_once_and_about_equally_many_tokens():
    sentences = [Scored.of(sentence_of(range(3 + number % 11))) for number in range(60)]
    rows = dealt(sentences, 8, "seed")
    assert sorted(id(one) for row in rows for one in row) == sorted(map(id, sentences))
    sizes = [sum(len(one.sentence) for one in row) for row in rows]
    assert max(sizes) - min(sizes) <= 13
    assert dealt(sentences, 8, "seed") == rows != dealt(sentences, 8, "other")
    assert [] in dealt(sentences[:3], 8, "seed")
